"""The words, icons and colours of statuses, effects and verdicts: one place, used by
every page. Pure.
"""

from dataclasses import dataclass

from checkpoints.core.status import Status


@dataclass(frozen=True, slots=True)
class Look:
    """How a status or a verdict appears: its label, the icon's name, and the style of
    the pill or stamp.
    """

    label: str
    icon: str
    style: str


STATUS = {
    Status.QUEUED: Look("Queued", "dots", "off"),
    Status.RUNNING: Look("Running", "spin", "run"),
    Status.PAUSED: Look("Needs review", "pen", "wait"),
    Status.WAITING: Look("Waiting", "clock", "off"),
    Status.COMPLETED: Look("Completed", "check", "ok"),
    Status.REJECTED: Look("Rejected", "x", "off"),
    Status.CANCELLED: Look("Cancelled", "slash", "off"),
    Status.FAILED: Look("Failed", "x", "bad"),
    Status.UNKNOWN: Look("Outcome unknown", "info", "bad"),
    Status.INCOMPATIBLE: Look("Incompatible", "warn", "bad"),
    Status.TAMPERED: Look("Tampered", "lock", "bad"),
}

STANDING = {
    "not_started": Look("Not started", "dots", "off"),
    "needs_yes": Look("Needs a yes", "pen", "wait"),
}
"""Looks of paused runs that need no signature, by what they wait for
(`views.run_standings`).
"""

VERDICT = {
    "approve": Look("Approved", "check", "a"),
    "edit": Look("Edited", "pen", "e"),
    "reject": Look("Rejected", "x", "n"),
    "skip": Look("Skipped", "slash", "n"),
}

EFFECTS = {
    "pure": "Same input, same result. Runs again freely.",
    "read": "Looks something up. Runs again, may see newer data.",
    "write": "Changes data. Its recorded result is reused, not repeated.",
    "external": "Acts outside: money, mail, other systems. Never repeated silently.",
    "human": "A person answers. The answer is reused, not asked again.",
}
"""Effect class -> the sentence of its mark, lightest first."""

RIGHTS = {
    "view_run": "See all runs",
    "start_run": "Start runs",
    "steer_run": "Resume, fork, replay, rewind and cancel runs",
    "settle_task": "Settle unknown outcomes",
    "export_run": "Export runs as bundles",
    "import_run": "Import bundles",
    "manage_retention": "Manage retention: clean up, pin, hold and erase",
    "reassign": "Hand reviews to other people",
    "view_audit": "Read the whole audit log",
    "manage_webhooks": "Manage webhooks: what is sent to other services",
    "manage_doors": "Manage doors: what other services may answer",
}
"""Right of `approvals.permissions.RIGHTS` -> the actions that it permits."""

JOBS = {
    "anchor_heads": "Numbers and chains new lines of the audit log",
    "fork_runs": "Forks many runs",
    "erase_run": "Erases values of runs",
    "measure_storage": "Measures how much each graph stores, by age",
    "prune_runs": "Removes old history",
    "run_policies": "Runs the retention policies",
    "rotate_keys": "Encrypts rows under the newest key",
    "stamp_audit_log": "Has the head of the audit log stamped by an authority outside",
    "send_notices": "Passes on what waits for people and what came of it",
    "send_webhook": "Sends notices to another service",
    "deliver_messages": "Delivers what came at a door before its question",
    "sweep_door_messages": "Removes messages at doors that are a week old",
    "sweep_access": "Removes expired tokens, sessions and kept answers of the API",
    "meet_deadline": "Decides in a review what was left open at its deadline",
    "end_window": "Lets a review that nobody has decided sign by itself",
    "meet_tier": "Reminds of a review, or asks others too",
    "sweep_bulk_forks": "Removes old lists of forks made in bulk",
    "sweep_jobs": "Removes jobs that ended long ago",
    "sweep_memory": "Forgets memory that is too old",
    "sweep_notices": "Removes notices that are a month old",
    "sweep_payloads": "Removes stored payloads that no row points to",
    "sweep_uploads": "Removes uploads that no run uses",
    "sweep_workers": "Removes workers that left long ago",
    "verify_runs": "Verifies runs and the audit log",
}
"""Kind of a job -> the work it does, as the workers page lists it."""

EVENTS = {
    "run_started": "run started",
    "effects_started": "started",
    "checkpoint_saved": "checkpoint saved",
    "checkpoint_kept": "checkpoint stays",
    "task_failed": "failed",
    "retry_planned": "will be tried again",
    "request_opened": "asks for a review",
    "write_edited": "write edited",
    "write_rebased": "write came back, its current value moved",
    "texts_changed": (
        "write came back, an edit changed the title or the facts beside it"
    ),
    "decision_signed": "decision signed",
    "request_settled": "review settled",
    "run_paused": "run paused",
    "run_completed": "run completed",
    "run_rejected": "run ended, rejected",
    "run_failed": "run failed",
    "run_unknown": "an outcome is unknown",
    "run_waiting": "run waits",
    "run_resumed": "run resumed",
    "cancel_requested": "cancelling was asked for",
    "request_withdrawn": "review was withdrawn",
    "request_expired": "review was closed by its deadline",
    "request_reminded": "people were reminded of a review",
    "request_escalated": "others were asked too",
    "outcome_reported": "outcome reported",
    "request_reopened": "review was re-opened under another policy",
    "request_claimed": "review taken",
    "request_released": "review given back",
    "request_assigned": "review handed over",
    "run_cancelled": "run cancelled",
    "task_settled": "outcome settled",
    "effect_result": "result recorded",
    "run_incompatible": "run cannot go on with this version",
    "version_changed": "goes on with another version of its graph",
    "run_tampered": "a record does not match its seal",
    "task_unknown": "outcome unknown",
    "approval_not_needed": "needed no approval",
    "gate_applied": "signatures applied",
    "line_begun": "new line started",
    "effects_allowed": "repeating effects was allowed",
    "results_reused": "recorded results reused",
    "task_diverged": "went another way than recorded",
    "memory_written": "memory written",
    "memory_deleted": "memory deleted",
    "history_removed": "history removed",
    "thread_copied": "copied from another thread",
    "thread_ran": "another run of its engine",
    "thread_saved": "checkpoint of a thread saved",
    "thread_written": "writes of a thread kept",
    "warning": "warning",
}
"""Event type -> the words of the log."""
