"""Short words for tests that run graphs on the database, in this process."""

from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group, User

from approvals import reviews
from approvals.models import ApprovalRequest, Receipt
from checkpoints import timeline
from checkpoints.ledger import pending_writes
from checkpoints.models import Checkpoint, PendingWrite, Run, RunEvent
from checkpoints.sealing.sealed_columns import unpack_json
from orchestrator import runs


def reviewer(user: User) -> User:
    """The user as a member of the group that the test graphs ask."""
    group, _ = Group.objects.get_or_create(name="claims")
    # Past the signals, which note it in the audit log.
    User.groups.through.objects.get_or_create(user_id=user.pk, group_id=group.pk)
    return user


def start(graph: str, folder: Path, *, by: User | None = None, **fields: Any) -> Run:
    """A run of a test graph whose effects leave their lines in `folder`, worked on
    until it rests.
    """
    return runs.advance(runs.start(graph, {"folder": str(folder), **fields}, by=by).id)


def state(run: Run) -> dict[str, Any]:
    """The newest scratch partition."""
    return timeline.state_at(Run.objects.values_list("head", flat=True).get(id=run.id))[
        "scratch"
    ]


def pending(run: Run) -> list[PendingWrite]:
    """The newest revisions of all pending writes of a run, by task and position."""
    return list(
        pending_writes.newest(PendingWrite.objects.filter(run=run)).order_by(
            "node", "visit", "index", "position"
        )
    )


def sign(run: Run, by: User, verdicts: list[Any]) -> Receipt:
    """Decide the pending writes in order: "approve", "reject", ("edit", value), or None
    to leave one open.
    """
    items = []
    for row, verdict in zip(pending(run), verdicts, strict=True):
        if verdict is None:
            continue
        word, value = verdict if isinstance(verdict, tuple) else (verdict, None)
        item = {"write": str(row.write), "hash": row.hash, "verdict": word}
        items.append({**item, "value": value} if word == "edit" else item)
    return reviews.sign(run.id, items, by=by)


def sign_open(run: Run, by: User, verdict: str, *, requests: int | None = None) -> None:
    """Give every write of the open requests this verdict; of the first `requests` only,
    by id.
    """
    approval_requests = ApprovalRequest.objects.filter(run=run, status="open").order_by(
        "node", "visit", "index"
    )[:requests]
    tasks = {(one.line, one.task) for one in approval_requests}
    items = [
        {"write": str(row.write), "hash": row.hash, "verdict": verdict}
        for row in pending(run)
        if (row.line, row.task) in tasks
    ]
    reviews.sign(run.id, items, by=by)


def request(run: Run) -> ApprovalRequest:
    return ApprovalRequest.objects.get(run=run)


def sources(run: Run) -> list[str]:
    """The sources of the timeline's rows, oldest first."""
    return list(
        Checkpoint.objects.filter(run=run, kept=True)
        .order_by("seq")
        .values_list("source", flat=True)
    )


def log(run: Run) -> list[str]:
    """The types of all lines, in order."""
    return list(
        RunEvent.objects.filter(run=run).order_by("seq").values_list("type", flat=True)
    )


def event_payloads(run: Run, kind: str) -> list[dict[str, Any]]:
    """The payloads of all lines of one type."""
    return [
        unpack_json(e.payload)
        for e in RunEvent.objects.filter(run=run, type=kind).order_by("seq")
    ]
