"""Rows of runs made by hand, for tests of what is read: small, and stating what the
test asserts on.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone

from approvals.models import ApprovalRequest, Decision, RequestReviewer
from checkpoints.core import codec
from checkpoints.ledger import pending_writes
from checkpoints.models import Checkpoint, PendingWrite, Run, RunEvent, Worker
from checkpoints.models.fields import task_columns
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline import snapshot_of
from orchestrator.engine import Task
from orchestrator.engine.values import canonical
from tests.support.forging import rewrite

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
_numbers = count(1)

EMPTY_FRONTIER: dict[str, Any] = {}


def a_run(**columns: Any) -> Run:
    """A run with an input. `input` is JSON."""
    n = next(_numbers)
    values = {
        "key": f"key-{n}",
        "graph": "claim_payout",
        "version": "1",
        "status": "paused",
        "created_at": START + timedelta(minutes=n),
        **columns,
    }
    content = canonical.dumps(values.get("input", {"claim_id": "CLM-1"}))
    values = {
        "input_hash": canonical.digest(content),
        **values,
        "input": codec.pack(content),
    }
    run = Run.objects.create(**values)
    return sealed(run)


def sealed(run: Run, **columns: Any) -> Run:
    """The run's row with these columns, sealed as it then is."""
    for name, value in columns.items():
        setattr(run, name, value)
    seal = run_row.seal_columns(
        run,
        head=run.head,
        head_hash=run.head_hash,
        event_seq=run.event_seq,
        event_hash=run.event_hash,
        decisions=run.decisions,
    )
    run.seal = seal["seal"]
    run.seal_key = seal["seal_key"]
    Run.objects.filter(id=run.id).update(**columns, **seal)
    return run


def a_checkpoint(run: Run, seq: int, **columns: Any) -> Checkpoint:
    """A checkpoint whose parent is the one before it. scratch, artifacts, diagnostics
    and versions are JSON.
    """
    payload = {
        name: columns.pop(name, {})
        for name in ("scratch", "artifacts", "diagnostics", "versions", "open")
    }
    payload["frontier"] = columns.pop("frontier", EMPTY_FRONTIER)
    before = (
        Checkpoint.objects.filter(run=run, seq__lt=seq, kept=True)
        .order_by("-seq")
        .values_list("id", flat=True)
    )
    values = {
        "superstep": seq,
        "line": 1,
        "source": "superstep" if seq else "input",
        "parent": before.first(),
        "created_at": START + timedelta(seconds=seq),
        "graph": run.graph,
        "version": run.version,
        **columns,
    }
    full = canonical.dumps(payload)
    made = Checkpoint(
        run=run, seq=seq, anchor=seq, snapshot_hash=canonical.digest(full), **values
    )
    sealed_rows.seal(made, protection_of(run))
    made.snapshot = codec.pack(full)
    made.save(force_insert=True)
    sealed(run, head=made.id, head_seq=seq)
    return made


def many_checkpoints(
    run: Run, last: int, state_of: Callable[[int], dict[str, Any]], nodes: Sequence[str]
) -> None:
    """The checkpoints behind the run's last one up to seq `last`, in one insert. Each
    has the scratch that `state_of` gives for its seq, and lists one of the nodes, in
    turn.
    """
    begun = Checkpoint.objects.get(run=run, seq=run.head_seq)
    document = snapshot_of(begun)
    parent = begun.id
    rows = []
    for seq in range(run.head_seq + 1, last + 1):
        node = nodes[seq % len(nodes)]
        entry = {
            "node": node,
            "visit": seq,
            "effect": "pure",
            "outcome": "ok",
            "tasks": 1,
            "ms": 1,
        }
        payload = {**document, "scratch": {**document["scratch"], **state_of(seq)}}
        payload["frontier"] = {**document["frontier"], "visits": {node: seq}}
        full = canonical.dumps(payload)
        row = Checkpoint(
            id=uuid4(),
            run=run,
            seq=seq,
            anchor=seq,
            superstep=seq,
            line=1,
            source="superstep",
            parent=parent,
            created_at=START + timedelta(seconds=seq),
            graph=run.graph,
            version=run.version,
            event_seq=seq,
            fingerprint=run.fingerprint,
            nodes=[entry],
            changed=[*state_of(seq)],
            snapshot_hash=canonical.digest(full),
            stored_size=len(full),
            state_size=len(full),
        )
        sealed_rows.seal(row, protection_of(run))
        row.snapshot = codec.pack(full)
        parent = row.id
        rows.append(row)
    Checkpoint.objects.bulk_create(rows, batch_size=500)
    sealed(run, head=rows[-1].id, head_seq=last)


def an_event(run: Run, seq: int, **columns: Any) -> RunEvent:
    """A line of a log. `payload` is JSON."""
    payload = pack_json(columns.pop("payload", {}))
    row = RunEvent(
        run=run,
        seq=seq,
        payload=payload,
        **{"type": "checkpoint_saved", "at": START, **columns},
    )
    sealed_rows.seal(row, protection_of(run))
    row.save(force_insert=True)
    return row


def a_request(run: Run, *reviewers: str, **columns: Any) -> ApprovalRequest:
    """A request that names these principals. `title` is a string; `policy` adds to the
    usual one.
    """
    policy = {
        "reviewers": list(reviewers),
        "quorum": 1,
        "reject_quorum": 1,
        "four_eyes": False,
        "all_or_nothing": False,
        "shows": [],
        "reason_required": [],
        **columns.pop("policy", {}),
    }
    values = {
        "line": 1,
        "node": "propose",
        "visit": next(_numbers),
        "graph": run.graph,
        "opened_at": START + timedelta(minutes=next(_numbers)),
        **columns,
    }
    values["title"] = pack_json(values.get("title", "Pay it?"))
    values["facts"] = pack_json(values.get("facts", []))
    request = ApprovalRequest(run=run, policy=policy, policy_hash="p" * 64, **values)
    sealed_rows.seal_and_encrypt([request], protection_of(run))
    request.save(force_insert=True)
    RequestReviewer.objects.bulk_create(
        RequestReviewer(request=request, principal=name) for name in reviewers
    )
    return request


def a_write(
    request: ApprovalRequest,
    position: int,
    *,
    channel: str,
    value: Any,
    base: pending_writes.StoredBase,
) -> PendingWrite:
    """Revision 1 of a write of the request's task."""
    row = pending_writes.staged(
        uuid4(),
        task_columns(
            request.run_id,
            request.line,
            Task(request.node, request.visit, request.index),
        ),
        position=position,
        channel=channel,
        label=f"set {channel}",
        value=value,
        base=base,
        shown={"label": f"set {channel}"},
        policy_hash=request.policy_hash,
        superstep=1,
        at=START,
        protection=protection_of(request.run),
    )
    sealed_rows.seal_and_encrypt([row], protection_of(request.run))
    row.save()
    rewrite(request, writes=request.writes + 1)
    return row


def a_decision(
    write: PendingWrite, request: ApprovalRequest, *, by: Any, verdict: str, seq: int
) -> Decision:
    """A decision on that revision."""
    row = Decision(
        request=request,
        run=request.run_id,
        line=write.line,
        task=write.task,
        write=write.write,
        position=write.position,
        channel=write.channel,
        revision=write.revision,
        seen_hash=write.hash,
        verdict=verdict,
        old_value=pack_json(None),
        proposed_value=bytes(write.value),
        final_value=bytes(write.value),
        reason=pack_json("as agreed"),
        by=by,
        by_name=by.username,
        at=START,
        event_seq=seq,
    )
    sealed_rows.seal_and_encrypt([row], protection_of(request.run))
    row.save(force_insert=True)
    sealed(request.run, decisions=request.run.decisions + 1)
    return row


def missing() -> UUID:
    """An id that names nothing."""
    return uuid4()


def a_worker(**columns: Any) -> Worker:
    """A worker that is there."""
    now = timezone.now()
    return Worker.objects.create(
        **{
            "host": "secret-host",
            "pid": 1,
            "started_at": now,
            "heartbeat_at": now,
            **columns,
        }
    )
