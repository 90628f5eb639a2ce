"""What is kept, for how long, and what is removed: holds and pins, dry runs, removals, standing sweeps, erasure."""

from checkpoints.retention.erasure import erase, plan_erasure
from checkpoints.retention.holds import hold, is_held, pin, release_hold, unpin

__all__ = ["erase", "hold", "is_held", "pin", "plan_erasure", "release_hold", "unpin"]
