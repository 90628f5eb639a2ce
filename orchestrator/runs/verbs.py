"""What people and programs ask of runs: start, advance, resume, settle. Pages, API and commands call nothing else.

Each verb is one transaction, or joins the caller's; but `advance` runs nodes, and refuses inside one. `by=None` means
the system (commands without --by). Permissions are asked by the faces; what is refused here is refused to everybody.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from checkpoints import audit_log, payloads, uploads
from checkpoints.conf import conf
from checkpoints.core.arguments import checked_moment, checked_number, checked_person, checked_seconds, checked_text
from checkpoints.core.ids import is_storable, unknown_thing, uuid7
from checkpoints.core.status import Status
from checkpoints.db import query_cache
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.db.clock import db_in
from checkpoints.event_log import NewEvent
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import locked_run
from checkpoints.ledger.commit import Payload
from checkpoints.models import Run
from checkpoints.queue import leases, notify
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import new_protection, protection_of
from checkpoints.verification import verify_run
from orchestrator.discovery import is_ours, note_version
from orchestrator.engine import canonical, registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import (
    CountersignError,
    InvalidValue,
    KeyConflict,
    PayloadLost,
    PayloadsUnavailable,
    TamperedRow,
    TamperedUpload,
    UnknownBackend,
    WrongKey,
    WrongStatus,
)
from orchestrator.engine.plan import begin
from orchestrator.execution import cancellation, diagnostics, loop
from orchestrator.runs import fork_adoption, labels, unknown_outcomes

MOST_PRIORITY = 1000
LONGEST_REASON = 10_000
LONGEST_DELAY = 10 * 366 * 86_400
_KEY = re.compile(r"[^/:\x00\ud800-\udfff]{1,200}")
_LIKE_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


def start(
    graph: str,
    input: Mapping[str, Any],
    *,
    key: str | None = None,
    by: AbstractBaseUser | None = None,
    on_behalf_of: AbstractBaseUser | None = None,
    resume_failed: bool = False,
    priority: int = 0,
    due_at: datetime | None = None,
    due_in: float = 0.0,
) -> Run:
    """A run of the graph's current version, queued; a worker takes it. Joins the caller's transaction.

    The same key with the same graph and input gives the same run as it is, woken only where it wants a worker (and,
    with `resume_failed`, resumed where it failed). Among the runs that are due, those of a higher `priority` go first.
    `due_at`, or `due_in` (seconds by the database's clock), lets it begin later.

    Raises `UnknownThing` (no such graph), `InvalidValue` (input, key, priority or time, naming the place),
    `KeyConflict` (the key has another graph or input), `WrongKey` (the graph is encrypted, and there is no key),
    `UnknownBackend` (the settings do not know where its payloads go), `SaveFailed`.
    """
    queued = Queued(priority, due_at, due_in)
    return start_or_find(StartRequest(graph, input, key, by, on_behalf_of, resume_failed, queued))[0]


@dataclass(frozen=True, slots=True)
class Queued:
    """When a run is to begin, and before which others. Raises `InvalidValue` for what no queue can hold."""

    priority: int = 0
    due_at: datetime | None = None
    due_in: float = 0.0

    def __post_init__(self) -> None:
        checked_number(self.priority, "priority", least=-MOST_PRIORITY, most=MOST_PRIORITY)
        if self.due_at is not None:
            checked_moment(self.due_at, "due_at")
        checked_seconds(self.due_in, "due_in", most=LONGEST_DELAY)


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What `start` is asked for."""

    graph: str
    input: Mapping[str, Any]
    key: str | None = None
    by: Any = None
    on_behalf_of: Any = None
    resume_failed: bool = False
    queued: Queued = Queued()

    def __post_init__(self) -> None:
        for path, person in (("by", self.by), ("on_behalf_of", self.on_behalf_of)):
            _check_person(person, path)
        if self.key is not None and not isinstance(self.key, str):
            raise InvalidValue("a key is a text", path="key")


def start_or_find(asked: StartRequest) -> tuple[Run, bool]:
    """As `start`, and whether this call made the run."""
    compiled = registry.current(asked.graph)
    staged = compiled.stage_input(asked.input, limit=conf().max_value_bytes)
    uploads.check_refs(staged, by=asked.by)
    run = _new(asked, compiled, staged)
    note_version(compiled)
    payload = Payload(compiled.fresh_state(), diagnostics.fresh(), begin(compiled).to_json())
    try:
        with transaction.atomic():
            opened = ledger.create_run(run, payload=payload, input_json=staged, actor=_name(asked.by))
    except IntegrityError:
        return _same(asked, run, staged), False
    # The row has the database's own time; to read it back would cost a query each start.
    opened.due_at = asked.queued.due_at or opened.created_at + timedelta(seconds=asked.queued.due_in)
    return opened, True


def _new(asked: StartRequest, compiled: Compiled, staged: Any) -> Run:
    new, key, queued = uuid7(), asked.key, asked.queued
    if key is not None and (not _KEY.fullmatch(key) or _LIKE_UUID.fullmatch(key)):
        message = "a key is 1 to 200 characters without / and :, and not shaped like a UUID"
        raise InvalidValue(message, path="key", key=key)
    run = Run(id=new, key=key or str(new), started_by=asked.by, on_behalf_of=asked.on_behalf_of)
    run.graph, run.version, run.fingerprint = compiled.name, compiled.version, compiled.fingerprint
    protection = new_protection(encrypted=compiled.graph.encrypted)
    run.encrypted, run.hash_key = protection.encrypted, protection.hash_key
    run.payloads = payloads.chosen(compiled.graph.payloads)
    run.input_hash = protection.digest(canonical.dumps(staged))
    run.priority, run.due_at = queued.priority, queued.due_at or db_in(queued.due_in)
    run.label = labels.run_label(compiled, staged, key=run.key)
    run.facts = labels.run_facts(compiled, staged)
    return run


def _same(asked: StartRequest, wanted: Run, staged: Any) -> Run:
    """The run that has the key, if it is the same journey."""
    run = Run.objects.get(key=wanted.key)
    # Under the cover of the run that is there: keys and the graph's encryption may have changed since.
    if (run.graph, run.input_hash) != (wanted.graph, protection_of(run).digest(canonical.dumps(staged))):
        message = f"key {run.key} already belongs to a run with another graph or input"
        raise KeyConflict(message, key=run.key, run=str(run.id))
    if run.status == Status.FAILED and asked.resume_failed:
        return resume(run.id, by=asked.by)
    if run.status in (Status.QUEUED, Status.RUNNING):
        notify.notify_workers()
    return run


def advance(run_id: UUID | str) -> Run:
    """Claim the run and work on it here and now, until it is paused, ended, stopped or waits. For commands and tests.

    Does nothing while another lease is live; takes over an expired one. Like a worker it leaves alone what this process
    has no version for, unless it has the graph's newest and can say that the run's is gone. Raises `UnknownThing`, and
    `OpenTransaction` inside a transaction of the caller, before anything is claimed.
    """
    refuse_open_transaction("runs.advance")
    run = get(run_id)
    while is_ours(run.graph, run.fingerprint) and (claim := leases.claim_one(run.id)):
        loop.run_slice(claim.id, claim.epoch)
    return get(run.id)


def resume(run_id: UUID | str, *, by: AbstractBaseUser | None = None) -> Run:
    """Queue again a run that failed, one that is incompatible but whose graph is here now, or a tampered one that
    verifies.

    What its open superstep kept is used; only tasks without a result run. A fork that a store made gets its row here.
    Raises `WrongStatus` for any other status: a run that waits for people goes on by their signatures alone;
    `TamperedRow` or `WrongKey`, naming the first fault.
    """
    _check_person(by, "by")
    if (fork := fork_adoption.adopt_fork(run_id, by=by)) is not None:
        return fork
    run = get(run_id)
    if run.status == Status.TAMPERED:
        _require_whole(run, by=by)
    with _locked(run.id, by=by) as run:
        if run.status == Status.PAUSED:
            message = f"run {run.key} waits for people: {run.at_node}; it goes on when they have signed"
            raise WrongStatus(message, status=run.status)
        only = frozenset({Status.FAILED, Status.INCOMPATIBLE, Status.TAMPERED})
        locked_run.requeue_run(run, events=[NewEvent("run_resumed", {"was": run.status}, actor=_name(by))], only=only)
    return run


_REFUSALS: dict[str, Callable[..., CountersignError]] = {
    kind.code_of_class: kind for kind in (PayloadLost, PayloadsUnavailable, TamperedUpload, UnknownBackend, WrongKey)
}
"""What a fault is refused with, by its code; else it is a tampered row."""


def _require_whole(run: Run, *, by: Any) -> None:
    """Raise what the first fault of a run is, if it has one, and leave an audit line."""
    for fault in verify_run(run.id, most=1):
        audit_log.record("refused_tampered", actor=by, run=run.id, row=fault.what)
        kind, message = _REFUSALS.get(fault.code, TamperedRow), f"run {run.key} does not verify: {fault.reason}"
        raise kind(message, run=fault.run, row=fault.what)


def cancel(run_id: UUID | str, *, by: AbstractBaseUser | None = None, reason: str = "") -> Run:
    """Cancel a run: at once where no worker has it, else after the superstep in hand. What it asks is withdrawn now.

    An effect that may have happened makes it unknown first; it is cancelled when that is settled. Cancelling twice
    changes nothing. Raises `UnknownThing`, and `WrongStatus` for a run that ended otherwise.
    """
    checked_text(reason, "reason", most=LONGEST_REASON)
    with _locked(get(run_id).id, by=by) as run:
        cancellation.request_cancel(run, by=by, reason=reason)
    return run


def settle(
    run_id: UUID | str,
    task: str,
    *,
    happened: bool,
    output: Any = None,
    accept_risk: bool = False,
    by: AbstractBaseUser | None = None,
    reason: str = "",
) -> Run:
    """Say of one task with an unknown outcome: it happened, with this output; or it did not, run it again.

    `output` is checked like a node's return. Raises `UnknownThing` (no such unknown task), `InvalidValue` (output, or
    no reason), `WrongStatus` ("it did not" while the attempt may still be going on; `accept_risk` is the extra yes
    where only time speaks for its end). The last settling queues the run.
    """
    checked_text(reason, "reason", most=LONGEST_REASON)
    checked_text(task, "task", most=1000)
    said: dict[str, Any] = {"happened": happened, "output": output, "accept_risk": accept_risk, "reason": reason}
    with _locked(get(run_id).id, by=by) as run:
        unknown_outcomes.settle_task(run, task, by=by, **said)
    return run


@contextmanager
def _locked(run_id: UUID, *, by: Any) -> Iterator[Run]:
    """The run's row, locked for one act of one transaction, then read anew. Where a row is met that is not as it was
    sealed, the run is tampered from then on, with an audit line, and that is raised.
    """
    _check_person(by, "by")
    try:
        with transaction.atomic():
            run = locked_run.lock_run(run_id)
            yield run
    except TamperedRow as found:
        locked_run.mark_tampered(run_id, found)
        audit_log.record("refused_tampered", actor=by, run=run_id, row=str(found.facts.get("row", "")))
        raise
    run.refresh_from_db()


def get(run_id: UUID | str) -> Run:
    """The run of that id or key. Raises `UnknownThing`."""
    text = str(run_id)
    like_uuid = _LIKE_UUID.fullmatch(text)
    if like_uuid:
        found = query_cache.select(Run, _of_id, UUID(text))
    else:
        found = query_cache.select(Run, _of_key, text) if is_storable(text) else []
    if not found:
        raise unknown_thing("run", text)
    return found[0]


def _of_id(run: UUID) -> "QuerySet[Run]":
    return Run.objects.filter(id=run).order_by()


def _of_key(key: str) -> "QuerySet[Run]":
    return Run.objects.filter(key=key).order_by()


def input_of(run: Run) -> Any:
    """The run's input, as it was staged."""
    return read_value(run, "input")


def _check_person(by: Any, path: str) -> None:
    """None is the system."""
    if by is not None:
        checked_person(by, path)


def _name(by: AbstractBaseUser | None) -> str:
    return by.get_username() if by else ""
