"""The verbs on runs: start, advance, resume, cancel, settle. Pages, API and commands
call nothing else.

Each verb is one transaction, or joins the caller's; but `advance` runs nodes, and
refuses to do so inside one. `by=None` means the system (commands without --by). A
person acts with their own rights if the settings make verbs check
rights; pages, API and commands have checked them before.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction

from approvals import deadlines
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints import lines, payloads, threads, timeline, uploads
from checkpoints.audit import lines as audit_log
from checkpoints.conf import conf
from checkpoints.core import traces
from checkpoints.core.arguments import (
    checked_moment,
    checked_number,
    checked_seconds,
    checked_text,
)
from checkpoints.core.ids import unknown_thing, uuid7
from checkpoints.core.status import CLOSED_TO_DECISIONS, ENDS, Status
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.db.clock import db_in
from checkpoints.db.limits import within_limits
from checkpoints.event_log import NewEvent
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import departure, locked_run
from checkpoints.ledger.commit import Payload
from checkpoints.ledger.removed_keys import require_never_removed
from checkpoints.ledger.run_error import RESTORED
from checkpoints.models import Run
from checkpoints.models.run_line import Travel
from checkpoints.queue import leases, notify
from checkpoints.rights import require_right_of_verb
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import new_protection, protection_of
from checkpoints.verification import verify_run
from orchestrator.discovery import is_encrypted, is_ours, note_version
from orchestrator.engine import registry
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
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.notes import checked_metadata
from orchestrator.engine.step.plan import begin
from orchestrator.engine.values import canonical
from orchestrator.execution import cancellation, diagnostics, loop
from orchestrator.graphs import NAME as SHIPPED
from orchestrator.run_access import labels
from orchestrator.run_access.act import (
    check_person,
    locked,
    name_of,
    run_to_act_on,
    sees,
)
from orchestrator.run_access.keys import checked_key, get
from orchestrator.run_access.needed_secrets import (
    graph_of,
    require_own_secrets,
    require_secrets,
)
from orchestrator.runs import unknown_outcomes, version_choice
from orchestrator.travel import plan as travel_plan
from orchestrator.travel import store_forks as fork_adoption
from orchestrator.travel import verbs as travel
from orchestrator.travel.overlay import Patch

MOST_PRIORITY = 1000
LONGEST_REASON = 10_000
LONGEST_DELAY = 10 * 366 * 86_400


def start(  # noqa: PLR0913
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
    """Return a run of the graph's current version, queued; a worker takes it. Joins the
    caller's transaction.

    The same key with the same graph and input returns the same run as it is, woken only
    if it wants a worker (and, with `resume_failed`, resumed if it failed). Among the
    runs that are due, those of a higher `priority` go first. `due_at`, or `due_in`
    (seconds by the database's clock), lets it begin later. `metadata` are small values
    by name that lists show and by which they find the run; an existing run keeps its
    own.

    Raises `UnknownThing` (no such graph), `InvalidValue` (input, key, priority, time or
    metadata, naming the place), `KeyConflict` (the key has another graph or input, or
    its run was removed by retention), `WrongKey` (the graph is encrypted, and there is
    no key), `MissingSecrets` (nobody has what the graph needs), `UnknownBackend` (the
    settings do not have the backend for its payloads), `SaveFailed`.
    """
    queued = Queued(priority, due_at, due_in)
    again = Again(resume_failed, restart, allow_effects)
    run, _ = start_or_find(
        StartRequest(graph, input, key, by, on_behalf_of, again, queued, metadata)
    )
    return run


@dataclass(frozen=True, slots=True)
class Queued:
    """The time at which a run begins, and its priority. Raises `InvalidValue` for
    values that the queue cannot hold.
    """

    priority: int = 0
    due_at: datetime | None = None
    due_in: float = 0.0

    def __post_init__(self) -> None:
        checked_number(
            self.priority, "priority", least=-MOST_PRIORITY, most=MOST_PRIORITY
        )
        if self.due_at is not None:
            checked_moment(self.due_at, "due_at")
        checked_seconds(self.due_in, "due_in", most=LONGEST_DELAY)


@dataclass(frozen=True, slots=True)
class Again:
    """The treatment of a run that exists already: it is resumed if it failed, or
    rewound to its beginning.
    """

    resume_failed: bool = False
    restart: bool = False
    allow_effects: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class StartRequest:
    """The arguments of `start`. `id` is the run's own, if it has no key; the same id
    returns the same run. `trace` is the `traceparent` that a caller sent, which counts
    where no span is open here. `is_asking` says that `orchestrator.asking` has checked
    what is asked; the graph that the package brings is started by it alone.
    """

    graph: str
    input: Mapping[str, Any]
    key: str | None = None
    by: Any = None
    on_behalf_of: Any = None
    again: Again = Again()
    queued: Queued = Queued()
    metadata: Mapping[str, Any] | None = None
    id: UUID | None = None
    trace: str = ""
    is_asking: bool = False

    def __post_init__(self) -> None:
        for path, person in (("by", self.by), ("on_behalf_of", self.on_behalf_of)):
            check_person(person, path)
        checked_key(self.key)


def start_or_find(request: StartRequest) -> tuple[Run, bool]:
    """Start a run as `start` does. Returns the run, and whether this call made it."""
    _require_may_start(request)
    _require_asked(request)
    compiled = registry.current(request.graph)
    staged = compiled.stage_input(request.input, limit=conf().max_value_bytes)
    uploads.check_refs(staged, by=request.by)
    metadata = checked_metadata(request.metadata or {})
    run = _new_run(request, compiled, staged)
    # It comes from outside, and stays in the log whatever is erased.
    trace = traces.parse_traceparent(request.trace)
    # Whoever configured tracing has imported its API.
    if traces.SDK in sys.modules:
        trace = traces.current_traceparent() or trace
    note_version(compiled)
    payload = Payload(
        compiled.fresh_state(), diagnostics.fresh(), begin(compiled).to_json()
    )
    # Inserted without looking first: if two starts come at once, the unique key admits
    # one.
    try:
        with transaction.atomic():
            opened = ledger.create_run(
                run,
                payload=payload,
                input_json=staged,
                actor=name_of(request.by),
                metadata=metadata,
                indexed=compiled.graph.indexed_metadata,
                trace=trace,
            )
            # After the insert, which waits for a removal of that key that is under way.
            require_never_removed(request.key)
            # Last, because a run that exists already is found without them.
            require_secrets(compiled)
    except IntegrityError:
        return _existing_run(request, run, staged), False
    return opened, True


def _require_may_start(request: StartRequest) -> None:
    require_right_of_verb(request.by, "start_run")
    if request.again.resume_failed or request.again.restart:
        require_right_of_verb(request.by, "steer_run")


def _require_asked(request: StartRequest) -> None:
    """Raise `InvalidValue` for an approval that nobody checked."""
    if request.graph == SHIPPED and not request.is_asking:
        raise InvalidValue(f"{SHIPPED} is asked as an approval", path="graph")


def _new_run(request: StartRequest, compiled: Compiled, staged: Any) -> Run:
    id = request.id or uuid7()
    queued = request.queued
    protection = new_protection(encrypted=is_encrypted(compiled))
    key = checked_key(request.key) or str(id)
    return Run(
        id=id,
        key=key,
        started_by=request.by,
        on_behalf_of=request.on_behalf_of,
        graph=compiled.name,
        version=compiled.version,
        fingerprint=compiled.fingerprint,
        encrypted=protection.encrypted,
        hash_key=protection.hash_key,
        payloads=payloads.chosen(compiled.graph.payloads),
        input_hash=protection.digest(canonical.dumps(staged)),
        priority=queued.priority,
        due_at=queued.due_at or db_in(queued.due_in),
        label=labels.run_label(compiled, staged, key=key),
        facts=labels.run_facts(compiled, staged),
    )


def _existing_run(request: StartRequest, new: Run, staged: Any) -> Run:
    """Return the run that has the key of the new one, resumed or rewound as the request
    says. Raises `KeyConflict` if it is not the same journey.
    """
    run = Run.objects.get(key=new.key)
    # Without facts, because the caller may not see that run.
    if not sees(request.by, run):
        raise KeyConflict("this key is taken")
    if run.imported:
        raise KeyConflict(
            f"key {run.key} belongs to a run that was imported",
            key=run.key,
            run=str(run.id),
        )
    # Hashed under the protection of the existing run: keys and the graph's encryption
    # may have changed since.
    input_hash = protection_of(run).digest(canonical.dumps(staged))
    if run.graph != new.graph or run.input_hash != input_hash:
        message = f"key {run.key} already belongs to a run with another graph or input"
        raise KeyConflict(message, key=run.key, run=str(run.id))
    again = request.again
    if again.restart:
        first = f"{run.key}:initial"
        return travel.rewind(
            run.id, first, allow_effects=again.allow_effects, by=request.by
        )
    if run.status == Status.FAILED and again.resume_failed:
        return resume(run.id, by=request.by)
    # A running run may be under a lease that has expired.
    if run.status in (Status.QUEUED, Status.RUNNING):
        notify.notify_workers()
    if run.status in ENDS:
        return _read_locked(run)
    return run


def _read_locked(run: Run) -> Run:
    """Return the row of a run that has ended, read under its lock. An erasure of its
    values either ended before, or ends after the caller's transaction and then finds
    what that transaction keeps of the answer.
    """
    with transaction.atomic():
        rows = within_limits(Run.objects.select_for_update().filter(id=run.id))
        return rows.first() or run


def advance(run_id: UUID | str) -> Run:
    """Claim the run and work on it here and now, until it is paused, ended, stopped or
    waits; deadlines of its requests that have come are met as well. For commands and
    tests.

    Does nothing while another lease is live; takes over an expired one. Like a worker
    it ignores a run for whose version this process has no code, unless it has the
    graph's newest version and finds that the run's is gone. Raises `UnknownThing`,
    `MissingSecrets` if it would take the run and this process lacks what its version
    needs, and `OpenTransaction` inside a transaction of the caller, before anything is
    claimed.
    """
    refuse_open_transaction("runs.advance")
    run = get(run_id)
    require_own_secrets(run)
    while is_ours(run.graph, run.fingerprint) and _advance_once(run):
        run = get(run.id)
    return run


def _advance_once(run: Run) -> bool:
    """Work one slice on a run, or meet its deadlines that have come, which wakes it.
    Returns whether there was anything to do.
    """
    # Most runs have ended or wait for people after a slice, and are not claimed again.
    if run.status in leases.RUNS.statuses:
        claim = leases.claim_one(run.id)
        if claim is not None:
            loop.run_slice(claim.id, claim.epoch)
            return True
    # Nobody here is asked about a run that was imported.
    if run.imported or run.status in ENDS:
        return False
    return deadlines.meet_due_deadlines(run.id)


def resume(
    run_id: UUID | str,
    *,
    patch: Patch = None,
    allow_effects: Collection[str] = (),
    reason: str = "",
    by: AbstractBaseUser | None = None,
) -> Run:
    """Queue again a run that failed, one that stopped before an effect that needs a yes
    (`allow_effects` gives it), a fork that was made paused, one that is incompatible or
    queued and whose version no live worker has, or a tampered one that verifies. If its
    graph is registered here in another version, even an older one, the run continues
    with that if it can; so does one that waits for people, who then see it in that
    version.

    What its open superstep kept is used; only tasks without a result run. With a
    `patch` it continues from its newest checkpoint on a new line; the patch obeys the
    rules of a fork's. The id of a checkpoint names its run if it is the newest one. A
    fork that a store made gets its row here.

    Raises `WrongStatus` for any other status: a run that waits for people passes its
    gate by their signatures alone. Raises `InvalidValue` (patch, nodes),
    `MissingSecrets`, and `TamperedRow` or `WrongKey`, naming the first fault.
    """
    require_right_of_verb(by, "steer_run")
    allow_effects = travel_plan.checked_names(allow_effects)
    # The right was checked first, because a fork of a store gets its row here.
    fork = fork_adoption.adopt_fork(
        run_id, by=by, allow_effects=allow_effects, reason=reason
    )
    if fork is not None:
        if not patch:
            return fork
        return resume(
            fork.id, patch=patch, allow_effects=allow_effects, reason=reason, by=by
        )
    run = _run_to_resume(run_id, by=by)
    if patch:
        request = travel.TravelRequest(
            Travel.RESUME, patch, None, allow_effects, reason, by
        )
        return travel.resume_patched(run, request)
    if run.status == Status.TAMPERED:
        _require_whole(run, by=by)
    # Before the lock, because it runs code of the graph's author.
    adopts = run.status == Status.PAUSED and version_choice.can_adopt(run)
    with locked(run.id, by=by) as run:
        # No worker drives it, so it must never be queued.
        if threads.is_thread(run):
            seq = threads.wait_again(run, by=by)
            audit_log.record_act("resumed", run, actor=by, seq=seq, allowed=[])
            return run
        stranded = _queue_again(run, allow_effects, adopts=adopts, by=by)
    # After the lock, because an adoption works under a lease, as a worker does.
    if stranded:
        version_choice.adopt_current(run)
    return run


_RESUMABLE = frozenset(
    {Status.PAUSED, Status.FAILED, Status.INCOMPATIBLE, Status.TAMPERED}
)


def _queue_again(
    run: Run, allow_effects: Collection[str], *, adopts: bool, by: Any
) -> bool:
    """Queue a locked run again, with its events. Returns whether it is stranded: no
    other process can take it.
    """
    events = [*_allow_start(run, by=by), *_allow_nodes(run, allow_effects, by=by)]
    if run.status == Status.PAUSED and not events:
        _require_waits_for_nobody(run, adopts=adopts)
    events.append(NewEvent("run_resumed", {"was": run.status}, actor=name_of(by)))
    stranded = version_choice.is_stranded(run)
    # A queued run that is stranded would wait forever.
    resumable = _RESUMABLE | {Status.QUEUED} if stranded else _RESUMABLE
    was_restored = run.error_code == RESTORED
    was_closed = run.status in CLOSED_TO_DECISIONS
    locked_run.requeue_run(run, events=events, only=resumable)
    deadlines.go_on(run, was_restored=was_restored, was_closed=was_closed)
    audit_log.record_act(
        "resumed", run, actor=by, seq=run.event_seq, allowed=sorted(allow_effects)
    )
    graph = graph_of(run)
    if graph is not None:
        require_secrets(graph)
    return stranded


def _run_to_resume(run_id: UUID | str, *, by: Any) -> Run:
    """Return the run of that id or key, or whose newest checkpoint this is. Raises
    `UnknownThing`, including for what this person may not see, and `WrongStatus` for an
    older checkpoint.
    """
    row = timeline.find_checkpoint(run_id)
    run = get(run_id) if row is None else row.run
    if not sees(by, run):
        raise unknown_thing("run", run_id)
    if row is not None and row.id != run.head:
        raise WrongStatus(
            f"checkpoint {row} is not the newest of run {run.key}: "
            "rewind the run to it, or fork it",
            status=run.status,
            run=str(row.run_id),
        )
    return run


def _allow_start(run: Run, *, by: Any) -> list[NewEvent]:
    """Allow the nodes of a fork that was made paused to start."""
    row = lines.line_row(run, run.line)
    if row is None or lines.NOT_STARTED not in row.stops:
        return []
    return [departure.allow_effects(run, row, [lines.NOT_STARTED], by=by)]


def _allow_nodes(run: Run, nodes: Collection[str], *, by: Any) -> list[NewEvent]:
    """Give the nodes of a locked run their yes. Raises `InvalidValue` for one that
    needs none.
    """
    if not nodes:
        return []
    row = lines.line_row(run, run.line)
    stops = row.stops if row else []
    wrong = [nodes] if isinstance(nodes, str) else sorted({*nodes} - {*stops})
    if wrong or row is None:
        raise InvalidValue(
            f"run {run.key} needs no yes for {', '.join(map(str, wrong))}; "
            f"it stops before {', '.join(stops) or 'nothing'}",
            path="allow_effects",
        )
    return [departure.allow_effects(run, row, list(nodes), by=by)]


def _require_waits_for_nobody(run: Run, *, adopts: bool) -> None:
    """Raise `WrongStatus` if a paused run waits for people and is not brought onto
    another version (`adopts`), or if it waits for a yes.
    """
    open_requests = ApprovalRequest.objects.filter(
        run=run.id, line=run.line, status=RequestStatus.OPEN
    )
    if open_requests.exists():
        if adopts:
            return
        cure = version_choice.cure_of_stranded(run)
        raise WrongStatus(
            f"run {run.key} waits for people: {run.at_node}; "
            f"it goes on when they have signed{cure}",
            status=run.status,
        )
    row = lines.line_row(run, run.line) if run.at_node else None
    if row and row.stops:
        raise WrongStatus(
            f"run {run.key} stopped before {run.at_node}, "
            "for what it does has happened, or may have; name it in allow_effects",
            status=run.status,
            needs_yes=list(row.stops),
        )


_REFUSALS: dict[str, Callable[..., CountersignError]] = {
    kind.code_of_class: kind
    for kind in (
        PayloadLost,
        PayloadsUnavailable,
        TamperedUpload,
        UnknownBackend,
        WrongKey,
    )
}
"""The errors with which faults are refused, by code; any other is a tampered row."""


def _require_whole(run: Run, *, by: Any) -> None:
    """Raise the first fault of a run, if it has one, and leave an audit line."""
    for fault in verify_run(run.id, most=1):
        audit_log.record("refused_tampered", actor=by, run=run.id, row=fault.what)
        refusal = _REFUSALS.get(fault.code, TamperedRow)
        message = f"run {run.key} does not verify: {fault.reason}"
        raise refusal(message, run=fault.run, row=fault.what)


def cancel(
    run_id: UUID | str, *, by: AbstractBaseUser | None = None, reason: str = ""
) -> Run:
    """Cancel a run: at once if no worker has it, else after the current superstep. Its
    open requests are withdrawn now.

    An effect that may have happened makes it unknown first; it is cancelled when that
    is settled. Cancelling twice changes nothing. Raises `UnknownThing`, and
    `WrongStatus` for a run that ended in another way.
    """
    checked_text(reason, "reason", most=LONGEST_REASON)
    run = run_to_act_on(by, "steer_run", run_id)
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
    """Settle one task with an unknown outcome: it happened, with this output; or it did
    not, and runs again.

    `output` is checked like a node's return. Raises `UnknownThing` (no such unknown
    task), `InvalidValue` (output, or no reason), `WrongStatus` ("it did not" while the
    attempt may still be at work; `accept_risk` is the extra yes if only the time that
    has passed suggests that it ended). The last settling queues the run.
    """
    checked_text(reason, "reason", most=LONGEST_REASON)
    checked_text(task, "task", most=1000)
    run = run_to_act_on(by, "settle_task", run_id)
    with locked(run.id, by=by) as run:
        unknown_outcomes.settle_task(
            run,
            task,
            by=by,
            happened=happened,
            output=output,
            accept_risk=accept_risk,
            reason=reason,
        )
    return run


def input_of(run: Run) -> Any:
    """Return the run's input, as it was staged."""
    return read_value(run, "input")
