"""Names that stand in databases, settings and task queues of others. More may come;
none is renamed and none goes.
"""

STATUSES = {
    "checkpoints.Run.status": (
        "queued running paused waiting completed rejected failed cancelled unknown"
        " incompatible tampered"
    ),
    "checkpoints.Checkpoint.source": "input superstep settlement failure fork replay"
    " rewind manual version",
    "checkpoints.PendingWrite.reason": "proposal edit rebase texts",
    "checkpoints.TaskResult.outcome": "open done not_done failed unknown",
    "checkpoints.Job.status": "queued running done failed cancelled",
    "approvals.ApprovalRequest.status": "open settled applied withdrawn expired",
    "approvals.Decision.verdict": "approve reject edit",
    "approvals.MailPreference.mode": "at_once digest none",
    "approvals.NoticeMail.status": "waiting delivered given_up",
    "approvals.Webhook.envelope": "standard cloudevents",
    "approvals.WebhookDelivery.status": "waiting delivered given_up",
    "approvals.DoorMessage.status": "kept delivered refused",
    "orchestrator.Preference.theme": "auto light dark",
}
"""Field -> the words that it may hold."""

EVENTS = {
    *(
        "run_started",
        "run_resumed",
        "run_paused",
        "run_waiting",
        "run_completed",
        "run_rejected",
        "run_failed",
    ),
    *("run_unknown", "run_incompatible", "run_cancelled", "cancel_requested"),
    *(
        "effects_started",
        "task_failed",
        "task_unknown",
        "task_settled",
        "retry_planned",
        "warning",
    ),
    *("checkpoint_saved", "checkpoint_kept", "memory_written", "memory_deleted"),
    *(
        "request_opened",
        "approval_not_needed",
        "decision_signed",
        "write_rebased",
        "texts_changed",
        "request_settled",
    ),
    *(
        "request_withdrawn",
        "request_expired",
        "gate_applied",
        "history_removed",
        "line_begun",
        "effects_allowed",
        "results_reused",
    ),
    *("task_diverged", "version_changed"),
    *("thread_copied", "thread_ran", "thread_saved", "thread_written"),
    *("request_claimed", "request_released", "request_assigned"),
    *("request_reminded", "request_escalated", "request_reopened"),
    "outcome_reported",
}
"""Types of the lines of a run's log."""

AUDIT = {
    *(
        "refused_not_a_reviewer",
        "refused_confirmation",
        "passkey_registered",
        "passkey_revoked",
        "webhook_added",
        "webhook_switched",
        "webhook_removed",
        "webhook_tested",
        "webhook_sent_again",
        "door_made",
        "door_rotated",
        "door_switched",
        "door_message_offered",
        "door_messages_removed",
        "refused_tampered",
        "refused_settle",
        "refused_resume",
        "refused_cancel",
    ),
    *(
        "memory_forgotten",
        "runs_verified",
        "signed",
        "not_needed",
        "deadline_passed",
        "veto_asked",
        "policy_asked",
        "request_expired",
        "cancelled",
        "resumed",
        "settled",
        "rewound",
        "forked",
    ),
    *(
        "replayed",
        "refused_right",
        "refused_export",
        "members_changed",
        "rights_changed",
        "account_changed",
    ),
    *("group_deleted", "token_made", "token_revoked", "audit_exported"),
    *("run_held", "hold_released", "checkpoint_pinned", "checkpoint_unpinned"),
    *(
        "thread_pruned",
        "history_pruned",
        "retention_policy_saved",
        "refused_pin",
        "refused_erase",
    ),
    *(
        "retention_policy_confirmed",
        "retention_policy_deleted",
        "retention_policy_refused",
    ),
    *("run_marked", "keys_changed", "delegated", "delegation_revoked"),
    *("standing_policy_made", "standing_policy_revoked", "standing_policy_used"),
    *("request_claimed", "request_released", "request_assigned"),
    *("request_reminded", "request_escalated", "request_reopened"),
    "request_commented",
}
"""Kinds of the lines of the audit log."""

JOBS = {
    *(
        "fork_runs",
        "meet_deadline",
        "meet_tier",
        "end_window",
        "prune_runs",
        "rotate_keys",
        "sweep_access",
        "sweep_bulk_forks",
        "sweep_jobs",
        "sweep_memory",
    ),
    *(
        "sweep_payloads",
        "sweep_uploads",
        "sweep_workers",
        "verify_runs",
        "run_policies",
        "measure_storage",
        "send_notices",
        "send_webhook",
        "sweep_notices",
        "deliver_messages",
        "sweep_door_messages",
    ),
}

CODES = {
    *(
        "already_decided",
        "already_reported",
        "conflicting_writes",
        "forbidden",
        "incompatible_graph",
        "invalid_graph",
        "invalid_value",
    ),
    *(
        "key_conflict",
        "memory_conflict",
        "not_a_reviewer",
        "payload_lost",
        "payload_taken",
        "payload_too_large",
    ),
    *(
        "payloads_unavailable",
        "refused",
        "runaway",
        "save_failed",
        "stale_lease",
        "stale_proposal",
        "tampered_row",
    ),
    *(
        "unknown_backend",
        "unknown_thing",
        "wrong_key",
        "wrong_status",
        "missing_secrets",
        "claimed",
    ),
}
"""Codes of refusals, which rows keep and the API answers."""

SETTINGS = {
    *(
        "LEASE_SECONDS",
        "SLICE_SECONDS",
        "GRACE_SECONDS",
        "NODE_TIMEOUT",
        "POLL_SECONDS",
        "WORKERS",
        "ENVIRONMENT",
    ),
    *(
        "MAX_VALUE_BYTES",
        "MAX_UPLOAD_BYTES",
        "MAX_CLAIMS_WITHOUT_PROGRESS",
        "DOORBELL",
        "SECRETS",
        "SIGNING_KEYS",
    ),
    *(
        "ENCRYPTION_KEYS",
        "MAIL_FROM",
        "SITE_URL",
        "METRICS_TOKEN",
        "WEBHOOKS_OVER_HTTP",
        "WEBHOOKS_TO_PRIVATE_ADDRESSES",
        "CALLBACK_HOSTS",
        "COMPROMISED_KEYS",
        "PAYLOADS",
        "DEFAULT_PAYLOADS",
        "DIRECT_STATEMENTS",
    ),
}
"""Keys of COUNTERSIGN."""

VARIABLES = {
    *(
        "DATABASE_URL",
        "COUNTERSIGN_SECRET_KEY",
        "COUNTERSIGN_DEBUG",
        "COUNTERSIGN_DEMO",
        "COUNTERSIGN_DATA_DIR",
        "COUNTERSIGN_STATIC_DIR",
        "COUNTERSIGN_ALIVE_FILE",
    ),
    *(
        "COUNTERSIGN_ALLOWED_HOSTS",
        "COUNTERSIGN_TRUSTED_ORIGINS",
        "COUNTERSIGN_REDIS_URL",
        "COUNTERSIGN_HTTPS",
    ),
    *(
        "COUNTERSIGN_HSTS_SECONDS",
        "COUNTERSIGN_BEHIND_PROXY",
        "COUNTERSIGN_MAX_BODY_BYTES",
        "COUNTERSIGN_TIME_ZONE",
    ),
    *(
        "COUNTERSIGN_LOG_LEVEL",
        "COUNTERSIGN_ENVIRONMENT",
        "COUNTERSIGN_SLICE_TIMEOUT",
        "COUNTERSIGN_WORKERS",
    ),
    *(
        "COUNTERSIGN_PREPARED_STATEMENTS",
        "COUNTERSIGN_LEASE_SECONDS",
        "COUNTERSIGN_SLICE_SECONDS",
    ),
    *(
        "COUNTERSIGN_NODE_TIMEOUT",
        "COUNTERSIGN_POLL_SECONDS",
        "COUNTERSIGN_GRACE_SECONDS",
        "COUNTERSIGN_PAYLOADS",
    ),
    *(
        "COUNTERSIGN_MAX_VALUE_BYTES",
        "COUNTERSIGN_MAX_CLAIMS_WITHOUT_PROGRESS",
        "COUNTERSIGN_SECRETS",
    ),
    *(
        "COUNTERSIGN_SIGNING_KEYS",
        "COUNTERSIGN_ENCRYPTION_KEYS",
        "COUNTERSIGN_COMPROMISED_KEYS",
    ),
    *("COUNTERSIGN_DEFAULT_PAYLOADS", "COUNTERSIGN_DIRECT_STATEMENTS"),
}
"""Variables of the environment."""

PATHS = {
    "orchestrator.worker.tasks": "advance work",
    "orchestrator.worker.broker": "RunBroker",
    "orchestrator.runs": "start start_or_find advance resume cancel settle get input_of Queued",
    "orchestrator.engine": (
        "END START Append Artifact Command Context CountersignError Custom ErrorInfo"
        " Fact FileRef First Frontier Gate"
        " Graph Interval Last Longest Max Merge Min NotDone Played Proposal Replace"
        " Retry Send Show Sum Task Union"
        " Write idempotency_key outcome_of play registry write_id"
    ),
    "orchestrator.engine.registry": "register replace current",
    "orchestrator.asgi": "application",
    "orchestrator.wsgi": "application",
    "orchestrator.live.routing": "websocket_urlpatterns",
    "orchestrator.urls": "urlpatterns",
    "approvals.reviews": "sign decide",
    "checkpoints.payloads": "DatabasePayloads FilePayloads MemoryPayloads"
    " SealedPayloads PayloadBackend",
    "checkpoints.store": "CheckpointStore MemoryStore Snapshot Stored conformance",
    "checkpoints.retention": "dry_run prune hold release_hold pin unpin",
    "checkpoints.timeline": "list_checkpoints get_checkpoint state_at diff events_after",
}
"""Module -> what others find there: by its dotted path in a queue or in settings, or by
an import.
"""

COMMANDS = {
    *(
        "cancel_run",
        "create_token",
        "drain",
        "resume_run",
        "rotate_keys",
        "run_status",
        "settle_run",
        "start_run",
    ),
    *("check_versions", "prune_runs", "up", "verify_runs", "worker"),
}
"""Commands of manage.py."""
