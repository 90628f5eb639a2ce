"""Celery: a task that runs once people have signed its arguments. docs/job-runners.md."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from celery import Celery, Task
from celery.exceptions import Ignore
from celery.utils.time import get_exponential_backoff_interval

from orchestrator.bridges.signed_call import (
    AWAY,
    Rejected,
    SignedCall,
    is_done,
    key_of,
    signed_arguments,
)
from orchestrator.client import Approval, Client

ASKED = "countersign_approval"
"""The header of a message whose question has been asked."""
SAFE = {"acks_late": True, "reject_on_worker_lost": True, "max_retries": None}


def runs_when_signed(
    app: Celery,
    client: Client,
    *,
    reviewers: Sequence[str],
    look_every: int = 30,
    look_at_least_every: int = 900,
    on_rejected: Callable[[Approval], Any] | None = None,
    options: Mapping[str, Any] | None = None,
    **question: Any,
) -> Callable[[Callable[..., Any]], Task]:
    """Make a task of a function. The worker that gets its message asks people about the
    arguments and sends it back, with growing pauses, until they have decided. What is
    not approved fails with `Rejected`, or ends with what `on_rejected` returns.
    `options` are those of the task, `question` those of `SignedCall`.
    """

    def decorate(function: Callable[..., Any]) -> Task:
        call = SignedCall(client, function, reviewers=reviewers, **question)

        @wraps(function)
        def ask_or_run(self: Task, *args: Any, **kwargs: Any) -> Any:
            headers = dict(self.request.headers or {})
            key = key_of("celery", self.name, self.request.id)
            approval = None
            try:
                if ASKED in headers:
                    approval = client.approval(headers[ASKED])
                else:
                    approval = call.ask(key, *args, **kwargs)
            except AWAY:
                approval = None
            if approval is not None:
                if approval.key != key:
                    raise Rejected(f"approval {approval.id} is that of another task")
                headers[ASKED] = approval.id
            if approval is None or not approval.decided:
                pause = get_exponential_backoff_interval(
                    look_every, self.request.retries, look_at_least_every
                )
                raise self.retry(countdown=pause, headers=headers)
            if is_done(approval):
                raise Ignore("a message came again after its task was done")
            if approval.state != "approved" and on_rejected is not None:
                return on_rejected(approval)
            return call.run(approval.id, signed_arguments(approval))

        return app.task(bind=True, **{**SAFE, **(options or {})})(ask_or_run)

    return decorate
