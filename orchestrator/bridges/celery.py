"""Celery: a task that runs once people have signed its arguments. docs/job-runners.md."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NoReturn

from celery import Celery, Task
from celery.exceptions import Ignore
from celery.utils.time import get_exponential_backoff_interval

from orchestrator.bridges.signed_call import (
    AWAY,
    Rejected,
    SignedCall,
    is_done,
    key_of,
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
            approval = _ask_or_look(self, call, args, kwargs)
            if approval is None or not approval.decided:
                _send_back(self, approval, (look_every, look_at_least_every))
            if is_done(approval):
                raise Ignore("a message came again after its task was done")
            if approval.state != "approved" and on_rejected is not None:
                return on_rejected(approval)
            return call.run(approval)

        return app.task(bind=True, **{**SAFE, **(options or {})})(ask_or_run)

    return decorate


def _ask_or_look(
    task: Task, call: SignedCall, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Approval | None:
    """Return the approval of a task; None while the site is away."""
    key = key_of("celery", task.name, task.request.id)
    approval_id = (task.request.headers or {}).get(ASKED)
    try:
        if approval_id is None:
            return call.ask(key, *args, **kwargs)
        approval = call.client.approval(approval_id)
    except AWAY:
        return None
    if approval.key != key:
        raise Rejected(f"approval {approval.id} is that of another task")
    call.require_asked(approval)
    return approval


def _send_back(
    task: Task, approval: Approval | None, pauses: tuple[int, int]
) -> NoReturn:
    """Send the message of a task again, later. Raises `Retry`."""
    headers = dict(task.request.headers or {})
    if approval is not None:
        headers[ASKED] = approval.id
    first, longest = pauses
    pause = get_exponential_backoff_interval(first, task.request.retries, longest)
    raise task.retry(countdown=pause, headers=headers)
