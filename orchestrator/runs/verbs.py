"""What people and programs ask of runs: start, advance, resume, settle. Pages, API and commands call nothing else.

Each verb is one transaction, or joins the caller's; but `advance` runs nodes, and refuses inside one. `by=None` means
the system (commands without --by). A person acts with his own rights (`require_rights`), where the settings say that
verbs ask for them; pages, API and commands have asked before.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints import audit_log, lines, payloads, timeline, uploads
from checkpoints.conf import conf
from checkpoints.core.arguments import checked_moment, checked_number, checked_seconds, checked_text
from checkpoints.core.ids import uuid7
from checkpoints.core.status import ENDS, Status
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.db.clock import db_in
from checkpoints.db.limits import within_limits
from checkpoints.event_log import NewEvent
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import departure, locked_run
from checkpoints.ledger.commit import Payload
from checkpoints.ledger.removed_keys import require_never_removed
from checkpoints.models import Run
from checkpoints.models.run_line import Travel
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
from orchestrator.engine.notes import checked_metadata
from orchestrator.engine.plan import begin
from orchestrator.execution import cancellation, diagnostics, loop
from orchestrator.runs import fork_adoption, labels, travel, travel_plan, unknown_outcomes, version_choice
from orchestrator.runs.act import check_person, locked, name_of, require_rights, sees
from orchestrator.runs.keys import checked_key, get
from orchestrator.runs.needed_secrets import graph_of, require_own_secrets, require_secrets
from orchestrator.runs.overlay import Patch

MOST_PRIORITY = 1000
LONGEST_REASON = 10_000
LONGEST_DELAY = 10 * 366 * 86_400


def start(
    graph: str,
    input: Mapping[str, Any],
    *,
    key: str | None = None,
    by: AbstractBaseUser | None = None,
    on_behalf_of: AbstractBaseUser | None = None,
    resume_failed: bool = False,
    restart: bool = False,
    allow_effects: Collection[str] = (),
    priority: int = 0,
    due_at: datetime | None = None,
    due_in: float = 0.0,
    metadata: Mapping[str, Any] | None = None,
) -> Run:
    """A run of the graph's current version, queued; a worker takes it. Joins the caller's transaction.

    The same key with the same graph and input gives the same run as it is, woken only where it wants a worker (and,
    with `resume_failed`, resumed where it failed). Among the runs that are due, those of a higher `priority` go first.
    `due_at`, or `due_in` (seconds by the database's clock), lets it begin later. `metadata` are small values by name
    that lists show and find the run by; a run that is there already keeps its own.

    Raises `UnknownThing` (no such graph), `InvalidValue` (input, key, priority, time or metadata, naming the place),
    `KeyConflict` (the key has another graph or input, or its run was removed by retention), `WrongKey` (the graph is
    encrypted, and there is no key), `MissingSecrets` (nobody has what the graph needs), `UnknownBackend` (the settings
    do not know where its payloads go), `SaveFailed`.
    """
    queued = Queued(priority, due_at, due_in)
    again = Again(resume_failed, restart, allow_effects)
    return start_or_find(StartRequest(graph, input, key, by, on_behalf_of, again, queued, metadata))[0]


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
class Again:
    """What becomes of a run that is there already: resumed where it failed, or rewound to its beginning."""

    resume_failed: bool = False
    restart: bool = False
    allow_effects: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What `start` is asked for."""

    graph: str
    input: Mapping[str, Any]
    key: str | None = None
    by: Any = None
    on_behalf_of: Any = None
    again: Again = Again()
    queued: Queued = Queued()
    metadata: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for path, person in (("by", self.by), ("on_behalf_of", self.on_behalf_of)):
            check_person(person, path)
        checked_key(self.key)


def start_or_find(asked: StartRequest) -> tuple[Run, bool]:
    """As `start`, and whether this call made the run."""
    _require_may_start(asked)
    compiled = registry.current(asked.graph)
    staged = compiled.stage_input(asked.input, limit=conf().max_value_bytes)
    uploads.check_refs(staged, by=asked.by)
    metadata = checked_metadata(asked.metadata or {})
    run = _new(asked, compiled, staged)
    note_version(compiled)
    payload = Payload(compiled.fresh_state(), diagnostics.fresh(), begin(compiled).to_json())
    try:
        with transaction.atomic():
            opened = ledger.create_run(
                run,
                payload=payload,
                input_json=staged,
                actor=name_of(asked.by),
                metadata=metadata,
                indexed=compiled.graph.indexed_metadata,
            )
            require_never_removed(asked.key)
            require_secrets(compiled)  # a run that is there already is found all the same
    except IntegrityError:
        return _same(asked, run, staged), False
    # The row has the database's own time; to read it back would cost a query each start.
    opened.due_at = asked.queued.due_at or opened.created_at + timedelta(seconds=asked.queued.due_in)
    return opened, True


def _require_may_start(asked: StartRequest) -> None:
    require_rights(asked.by, "start_run")
    if asked.again.resume_failed or asked.again.restart:
        require_rights(asked.by, "steer_run")


def _new(asked: StartRequest, compiled: Compiled, staged: Any) -> Run:
    new, key, queued = uuid7(), checked_key(asked.key), asked.queued
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
    if not sees(asked.by, run):
        raise KeyConflict("this key is taken")
    if run.imported:
        raise KeyConflict(f"key {run.key} belongs to a run that was imported", key=run.key, run=str(run.id))
    # Under the cover of the run that is there: keys and the graph's encryption may have changed since.
    if (run.graph, run.input_hash) != (wanted.graph, protection_of(run).digest(canonical.dumps(staged))):
        message = f"key {run.key} already belongs to a run with another graph or input"
        raise KeyConflict(message, key=run.key, run=str(run.id))
    if asked.again.restart:
        return travel.rewind(run.id, f"{run.key}:initial", allow_effects=asked.again.allow_effects, by=asked.by)
    if run.status == Status.FAILED and asked.again.resume_failed:
        return resume(run.id, by=asked.by)
    if run.status in (Status.QUEUED, Status.RUNNING):
        notify.notify_workers()
    return _read_again(run) if run.status in ENDS else run


def _read_again(run: Run) -> Run:
    """The row of a run that has ended, under its lock: an erasure of its values has ended before this look, or it ends
    after the caller's transaction, and finds what that keeps of the answer.
    """
    with transaction.atomic():
        return within_limits(Run.objects.select_for_update().filter(id=run.id)).first() or run


def advance(run_id: UUID | str) -> Run:
    """Claim the run and work on it here and now, until it is paused, ended, stopped or waits. For commands and tests.

    Does nothing while another lease is live; takes over an expired one. Like a worker it leaves alone what this process
    has no version for, unless it has the graph's newest and can say that the run's is gone. Raises `UnknownThing`,
    `MissingSecrets` where it would take the run and this process lacks what its version needs, and `OpenTransaction`
    inside a transaction of the caller, before anything is claimed.
    """
    refuse_open_transaction("runs.advance")
    run = get(run_id)
    require_own_secrets(run)
    while is_ours(run.graph, run.fingerprint) and (claim := leases.claim_one(run.id)):
        loop.run_slice(claim.id, claim.epoch)
    return get(run.id)


def resume(
    run_id: UUID | str,
    *,
    patch: Patch = None,
    allow_effects: Collection[str] = (),
    reason: str = "",
    by: AbstractBaseUser | None = None,
) -> Run:
    """Queue again a run that failed, one that stopped before an effect that needs a yes (`allow_effects` gives it), a
    fork that was made paused, one that is incompatible or queued and whose version no live worker has, or a tampered
    one that verifies. Of a graph that is here in another version it goes on with that, if it can, be it an older one;
    so does one that waits for people, who are then asked on.

    What its open superstep kept is used; only tasks without a result run. With a `patch` it goes on from its newest
    checkpoint on a new line; the patch obeys the rules of a fork's. An id of a checkpoint names its run, where it is
    the newest. A fork that a store made gets its row here. Raises `WrongStatus` for any other status: a run that waits
    for people passes its gate by their signatures alone; `InvalidValue` (patch, nodes), `MissingSecrets`, `TamperedRow`
    or `WrongKey`, naming the first fault.
    """
    require_rights(by, "steer_run")
    allow_effects = travel_plan.checked_names(allow_effects)
    if (fork := fork_adoption.adopt_fork(run_id, by=by, allow_effects=allow_effects, reason=reason)) is not None:
        return resume(fork.id, patch=patch, allow_effects=allow_effects, reason=reason, by=by) if patch else fork
    run = _of_newest_checkpoint(run_id) or get(run_id)
    require_rights(by, "steer_run", run)
    if patch:
        return travel.resume_patched(run, patch, travel.Wanted(Travel.RESUME, patch, None, allow_effects, reason, by))
    if run.status == Status.TAMPERED:
        _require_whole(run, by=by)
    # Before the lock, for it runs code of the author's.
    adopts = run.status == Status.PAUSED and version_choice.can_adopt(run)
    with locked(run.id, by=by) as run:
        stranded = _queue_again(run, allow_effects, adopts=adopts, by=by)
    if stranded:
        version_choice.adopt_current(run)
    return run


def _queue_again(run: Run, allow_effects: Collection[str], *, adopts: bool, by: Any) -> bool:
    """Queue a locked run again, with its lines. Whether nobody else can take it."""
    allowed = [*_started(run, by=by), *_allowed(run, allow_effects, by=by)]
    if run.status == Status.PAUSED and not allowed:
        _require_waits_for_nobody(run, adopts=adopts)
    stranded = version_choice.is_stranded(run)
    allowed.append(NewEvent("run_resumed", {"was": run.status}, actor=name_of(by)))
    locked_run.requeue_run(run, events=allowed, only=_RESUMABLE | ({Status.QUEUED} if stranded else set()))
    audit_log.record_act("resumed", run, actor=by, seq=run.event_seq, allowed=sorted(allow_effects))
    if (graph := graph_of(run)) is not None:
        require_secrets(graph)
    return stranded


_RESUMABLE = frozenset({Status.PAUSED, Status.FAILED, Status.INCOMPATIBLE, Status.TAMPERED})


def _of_newest_checkpoint(checkpoint: UUID | str) -> Run | None:
    """The run of which that is the newest checkpoint; None for what is no checkpoint. Raises `WrongStatus` for an older
    one.
    """
    found = timeline.find_checkpoint(checkpoint)
    if found is None:
        return None
    if found.id != found.run.head:
        message = f"checkpoint {found} is not the newest of run {found.run.key}: rewind the run to it, or fork it"
        raise WrongStatus(message, status=found.run.status, run=str(found.run_id))
    return found.run


def _started(run: Run, *, by: Any) -> list[NewEvent]:
    """Let the nodes of a fork start that was made paused."""
    row = lines.line_row(run, run.line)
    if row is None or lines.NOT_STARTED not in row.stops:
        return []
    return [departure.allow_effects(run, row, [lines.NOT_STARTED], by=by)]


def _allowed(run: Run, nodes: Collection[str], *, by: Any) -> list[NewEvent]:
    """Give the nodes of a locked run their yes. Raises `InvalidValue` for one that needs none."""
    if not nodes:
        return []
    row = lines.line_row(run, run.line)
    stops = row.stops if row else []
    wrong = sorted({*nodes} - {*stops}) if not isinstance(nodes, str) else [nodes]
    if wrong or row is None:
        message = f"run {run.key} needs no yes for {', '.join(map(str, wrong))}"
        raise InvalidValue(f"{message}; it stops before {', '.join(stops) or 'nothing'}", path="allow_effects")
    return [departure.allow_effects(run, row, list(nodes), by=by)]


def _require_waits_for_nobody(run: Run, *, adopts: bool) -> None:
    """Raise `WrongStatus` where a paused run waits for people and is not brought onto another version (`adopts`), or
    where it waits for a yes.
    """
    if ApprovalRequest.objects.filter(run=run.id, line=run.line, status=RequestStatus.OPEN).exists():
        if adopts:
            return
        message = f"run {run.key} waits for people: {run.at_node}; it goes on when they have signed"
        raise WrongStatus(f"{message}{version_choice.cure_of_stranded(run)}", status=run.status)
    if run.at_node and (row := lines.line_row(run, run.line)) and row.stops:
        message = f"run {run.key} stopped before {run.at_node}, for what it does has happened, or may have"
        raise WrongStatus(f"{message}; name it in allow_effects", status=run.status, needs_yes=list(row.stops))


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
    run = get(run_id)
    require_rights(by, "steer_run", run)
    with locked(run.id, by=by) as run:
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
    run = get(run_id)
    require_rights(by, "settle_task", run)
    with locked(run.id, by=by) as run:
        unknown_outcomes.settle_task(run, task, by=by, **said)
    return run


def input_of(run: Run) -> Any:
    """The run's input, as it was staged."""
    return read_value(run, "input")
