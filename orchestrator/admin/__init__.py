"""Runs, checkpoints, tokens and answered requests in the Django admin, and the actions
on them.
"""

from orchestrator.admin import access as access
from orchestrator.admin import checkpoint_rows as checkpoint_rows
from orchestrator.admin import run_rows as run_rows
