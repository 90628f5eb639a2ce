"""What is kept, for how long, and what is removed: legal holds and pins, dry runs, removals, standing sweeps."""

from checkpoints.retention.holds import hold, is_held, pin, release_hold, unpin

__all__ = ["hold", "is_held", "pin", "release_hold", "unpin"]
