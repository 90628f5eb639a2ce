"""The ledger in the Django admin: rows to look at, holds and pins, policies, and the
clean-up.
"""

from checkpoints.admin import clean_up, holds, policies, rows

__all__ = ["clean_up", "holds", "policies", "rows"]
