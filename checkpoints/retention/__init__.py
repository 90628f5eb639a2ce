"""What is kept, for how long, and what is removed: legal holds and pins, dry runs, removals, standing sweeps."""

from checkpoints.retention.dry_runs import DryRun, dry_run
from checkpoints.retention.holds import hold, is_held, pin, release_hold, unpin
from checkpoints.retention.prune_job import prune

__all__ = ["DryRun", "dry_run", "hold", "is_held", "pin", "prune", "release_hold", "unpin"]
