"""Retention of history: holds, pins, dry runs, removals, standing sweeps, erasure."""

from checkpoints.retention.dry_runs import DryRun, dry_run
from checkpoints.retention.erasure import begin_erasure, erase, plan_erasure
from checkpoints.retention.holds import hold, is_held, pin, release_hold, unpin
from checkpoints.retention.policies import delete_policy, save_policy
from checkpoints.retention.policy_schedules import confirm_policy, schedules_of
from checkpoints.retention.prune_job import prune
from checkpoints.retention.thread_history import prune_threads, remove_made_by
from checkpoints.retention.thread_removal import remove_thread

__all__ = [
    "DryRun",
    "begin_erasure",
    "confirm_policy",
    "delete_policy",
    "dry_run",
    "erase",
    "hold",
    "is_held",
    "pin",
    "plan_erasure",
    "prune",
    "prune_threads",
    "release_hold",
    "remove_made_by",
    "remove_thread",
    "save_policy",
    "schedules_of",
    "unpin",
]
