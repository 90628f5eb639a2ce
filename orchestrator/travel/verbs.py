"""Time travel: fork, replay, rewind, and a resume with a patch. Each carries out the
plan of a checkpoint in one transaction under the lock of the checkpoint's run.

Rights are checked as `orchestrator.runs.verbs` describes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError
from django.db.models import QuerySet

from approvals.gates.recorded_ways import require_ways
from approvals.gates.withdrawal import leave_requests
from checkpoints import lines, payloads
from checkpoints.audit import lines as audit_log
from checkpoints.core.arguments import checked_text
from checkpoints.core.ids import unknown_thing, uuid7
from checkpoints.core.run_key import LONGEST_KEY
from checkpoints.core.status import ENDS, Status
from checkpoints.db import query_cache
from checkpoints.db.rows import new_row
from checkpoints.event_log import NewEvent
from checkpoints.ledger import departure, locked_run, notes
from checkpoints.ledger.departure import NewLine
from checkpoints.ledger.removed_keys import require_never_removed
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.models.checkpoint import Source
from checkpoints.models.run_line import Travel
from checkpoints.queue import jobs, leases
from checkpoints.sealing import data_keys, sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from checkpoints.timeline.past_effects import Effect
from orchestrator.discovery import note_version
from orchestrator.engine.errors import (
    IncompatibleGraph,
    InvalidValue,
    KeyConflict,
    WrongStatus,
)
from orchestrator.engine.frozen import frozen
from orchestrator.execution import cancellation
from orchestrator.run_access import labels
from orchestrator.run_access.act import (
    check_person,
    checkpoint_to_act_on,
    locked,
    name_of,
    run_to_act_on,
)
from orchestrator.run_access.keys import checked_key, get
from orchestrator.run_access.needed_secrets import require_secrets
from orchestrator.travel.answers import Answers, check_answers, sign_answers
from orchestrator.travel.departure import (
    Departure,
    HeldTask,
    departure_at,
    effects_elsewhere,
    effects_unknown_here,
    held_tasks_at,
    load_departure,
    refuse_erased,
)
from orchestrator.travel.overlay import (
    Overlay,
    Patch,
    first_checkpoint,
    lay_over,
    stage_requests,
)
from orchestrator.travel.plan import Plan, checked_nodes, make_plan

LONGEST_REASON = 10_000
NOT_STARTED = lines.NOT_STARTED
_SOURCES = {Travel.FORK: Source.FORK, Travel.REPLAY: Source.REPLAY}


@dataclass(frozen=True, slots=True)
class TravelRequest:
    """The arguments of a verb of time travel. Raises `InvalidValue` for values of
    another kind.
    """

    travel: str
    patch: Patch = None
    answers: Answers = None
    allow_effects: Collection[str] = ()
    reason: str = ""
    by: Any = None

    def __post_init__(self) -> None:
        check_person(self.by, "by")
        checked_text(self.reason, "reason", most=LONGEST_REASON)
        if self.answers and self.by is None:
            raise InvalidValue(
                "answers are decisions of a person, so somebody must give them",
                path="answers",
            )


@frozen
class NextLine:
    """The line on which requests are opened, in the form that `approvals` needs."""

    id: UUID
    line: int
    graph: str
    protection: Protection


def plan(
    checkpoint: UUID | str,
    how: str = Travel.FORK,
    *,
    patch: Patch = None,
    answers: Answers = None,
    allow_effects: Collection[str] = (),
) -> Plan:
    """Return what a fork, replay or rewind from this checkpoint would do; nothing is
    written.

    Raises as the verb does: `UnknownThing`, `InvalidValue`, `PayloadTooLarge`,
    `TamperedRow`, `WrongKey`, `IncompatibleGraph`, `MissingSecrets`.
    """
    if how not in Travel.values:
        raise InvalidValue(f"how is one of {', '.join(Travel.values)}", path="how")
    point = load_departure(checkpoint)
    has_outside = how != Travel.REPLAY
    overlay = lay_over(point, patch, asks=has_outside)
    waiting = held_tasks_at(point) if has_outside else []
    check_answers(answers, waiting)
    require_secrets(point.graph)
    if not has_outside:
        require_ways(point.graph, point.run, point.checkpoint)
    allowed = checked_nodes(point.graph, allow_effects)
    return plan_departure(point, overlay, waiting, how, allowed)


def plan_departure(
    point: Departure,
    overlay: Overlay,
    waiting: Sequence[HeldTask],
    travel: str,
    allowed: Collection[str],
) -> Plan:
    """Return the plan as `plan` does, for a departure that is loaded, with its overlay
    and with what waits for people there.
    """
    line = lines.line_row(point.run, point.checkpoint.line)
    stops: list[str] = []
    effects: list[Effect] = []
    # A replay has no outside: it repeats no effects and asks nobody.
    if travel == Travel.REPLAY:
        waiting = ()
    else:
        # A line that departs from another keeps its stops.
        if line:
            # A paused fork stops at every node; what departs from it does not.
            stops = [node for node in line.stops if node != NOT_STARTED]
        on_same_run = travel in (Travel.REWIND, Travel.RESUME)
        # A new line raises the run's epoch, so an atomic write under way fails.
        effects = effects_elsewhere(point, fenced=on_same_run)
        if point.leads_to_import:
            effects += effects_unknown_here(point)
    return make_plan(
        point.graph,
        point.frontier,
        point.open,
        travel=travel,
        checkpoint=point.checkpoint.id,
        effects=effects,
        waiting=waiting,
        change=overlay.change,
        stops=stops,
        allowed=allowed,
    )


def fork(
    checkpoint: UUID | str,
    *,
    patch: Patch = None,
    answers: Answers = None,
    allow_effects: Collection[str] = (),
    start: bool = True,
    key: str | None = None,
    reason: str = "",
    id: UUID | None = None,
    by: AbstractBaseUser | None = None,
) -> Run:
    """Return a new run from a checkpoint, with its state patched; the origin stays as
    it is. Without `start` it is paused until it is resumed. A caller that may call
    twice passes the `id` of the new run: if that run exists, `IntegrityError` is
    raised.

    Effects that happened already stop the run before their nodes, unless
    `allow_effects` names them. `answers` decide at once what people were asked at that
    point: each counts as a signature of `by`. Raises, having changed nothing,
    `UnknownThing`, `InvalidValue` (patch, answer or key, naming the place),
    `PayloadTooLarge`, `NotAReviewer` (with an audit line), `KeyConflict`,
    `IncompatibleGraph`, `MissingSecrets`, `TamperedRow`, `WrongKey`, `SaveFailed`.
    """
    request = TravelRequest(Travel.FORK, patch, answers, allow_effects, reason, by)
    checked_key(key)
    # Loading refuses some checkpoints by name, so it comes after the check of rights.
    point = departure_at(checkpoint_to_act_on(by, "steer_run", checkpoint))
    overlay = lay_over(point, patch, by=name_of(by))
    status = Status.QUEUED if start else Status.PAUSED
    run = open_fork(point, overlay, request, ForkStart(_new_id(id), key, status))
    # Only signatures have changed the row since it was inserted.
    if answers:
        query_cache.refresh(run)
    return run


def _new_id(id: Any) -> UUID:
    """Return the id of a new run. Raises `InvalidValue` for what is none."""
    if id is not None and not isinstance(id, UUID):
        raise InvalidValue("id is a UUID", path="id")
    return id or uuid7()


@frozen
class ForkStart:
    """The beginning of a fork: the id and the key of its run (None: one like the
    origin's), its status, and a row that the run has already, which its first
    checkpoint follows.
    """

    id: UUID
    key: str | None
    status: str
    follows: Checkpoint | None = None


def open_fork(
    point: Departure, overlay: Overlay, request: TravelRequest, place: ForkStart
) -> Run:
    """Carry out a fork under the lock of the origin's run. Raises as `fork` does."""
    with locked(
        point.run.id, by=request.by, also_imported=True, returned=False
    ) as origin:
        inherited = _inherited(point, origin, place)
        waiting = held_tasks_at(point)
        check_answers(request.answers, waiting)
        extra_stops: list[str] = []
        # The status alone would not hold its nodes back: a signature queues a paused
        # run.
        if place.status != Status.QUEUED:
            extra_stops = [NOT_STARTED]
        new = _new_line(point, overlay, waiting, request, extra_stops)
        new = replace(new, follows=place.follows)
        run = _create_fork(point, overlay, waiting, new, place, inherited)
        audit_log.record_act("forked", run, actor=request.by, seq=1, **_origin(point))
        sign_answers(run, request.answers, by=request.by)
    return run


def replay(
    checkpoint: UUID | str,
    *,
    reason: str = "",
    id: UUID | None = None,
    by: AbstractBaseUser | None = None,
) -> Run:
    """Return a new run from a checkpoint that has no outside: pure and read nodes run
    again; for all others, the recorded outcome is taken if the input is the same.
    `replay_report` shows where it took another way.

    `id` is that of `fork`. Raises as `fork` does, and `WrongStatus` if rows that it
    would read were removed.
    """
    request = TravelRequest(Travel.REPLAY, reason=reason, by=by)
    # Loading refuses some checkpoints by name, so it comes after the check of rights.
    point = departure_at(checkpoint_to_act_on(by, "steer_run", checkpoint))
    place = ForkStart(_new_id(id), None, Status.QUEUED)
    with locked(point.run.id, by=by, returned=False) as origin:
        inherited = _inherited(point, origin, place)
        require_ways(point.graph, point.run, point.checkpoint)
        overlay = lay_over(point, None, asks=False)
        # It repeats no effects, so nothing needs a yes.
        new = replace(_new_line(point, overlay, [], request), stops=())
        run = _create_fork(point, overlay, [], new, place, inherited)
        audit_log.record_act("replayed", run, actor=by, seq=1, **_origin(point))
    return run


def replay_report(run_id: UUID | str) -> dict[str, Any]:
    """Return the result of a replay: {run, origin, status, reused: [task], diverged:
    [{task, why, path}]}, in order.

    `why` is other_input or other_memory, with the first path at which the task saw
    something else, or no_record. A task that ran on other memory continued; the branch
    of any other ended. Raises `UnknownThing`, and `InvalidValue` for a run that is no
    replay.
    """
    run = get(run_id)
    row = lines.line_row(run, 1)
    if row is None or row.travel != Travel.REPLAY:
        raise InvalidValue(f"run {run.key} is no replay", path="run")
    reporting = RunEvent.objects.filter(
        run=run.id, type__in=["results_reused", "task_diverged"]
    )
    events = list(reporting.order_by("seq"))
    # The report is read from the log, so that must match its seal.
    sealed_rows.verify_rows(events, protection_of(run))
    reused: list[str] = []
    diverged: list[dict[str, Any]] = []
    for event in events:
        facts = read_value(event, "payload")
        if event.type == "results_reused":
            reused += facts["tasks"]
        else:
            diverged.append({"task": event.task, **facts})
    origin = {"run": str(row.departure_run), "checkpoint": str(row.departure)}
    return {
        "run": str(run.id),
        "origin": origin,
        "status": run.status,
        "reused": reused,
        "diverged": diverged,
    }


def rewind(
    run_id: UUID | str,
    checkpoint: UUID | str,
    *,
    patch: Patch = None,
    answers: Answers = None,
    allow_effects: Collection[str] = (),
    reason: str = "",
    seen_line: int | None = None,
    by: AbstractBaseUser | None = None,
) -> Run:
    """Return the same run on a new line from an older checkpoint, queued. What came
    after that checkpoint stays readable; open requests are withdrawn, and opened again
    if they waited at that point. `seen_line` is the line on which the caller saw the
    run: if it is on another one by now, it is not rewound once more.

    Raises as `fork` does, and `WrongStatus` for a run that a worker has in hand, that
    is tampered, or that has an effect to be settled first.
    """
    request = TravelRequest(Travel.REWIND, patch, answers, allow_effects, reason, by)
    run = run_to_act_on(by, "steer_run", run_id)
    row = checkpoint_to_act_on(by, "steer_run", checkpoint)
    if row.run_id != run.id:
        raise unknown_thing("checkpoint of this run", row.id)
    point = departure_at(row)
    with locked(run.id, by=by) as run:
        if seen_line not in (None, run.line):
            raise WrongStatus(
                f"run {run.key} has gone back since you saw it, "
                f"and is on line {run.line} now",
                status=run.status,
                line=run.line,
            )
        _require_kept(point, run)
        return _begin_next_line(run, point, request)


def resume_patched(run: Run, request: TravelRequest) -> Run:
    """Resume a run from its newest checkpoint, patched, on a new line from there.
    Raises as `rewind` does, and `WrongStatus` for a run that has ended.
    """
    with locked(run.id, by=request.by) as run:
        if run.status in ENDS:
            raise WrongStatus(
                f"run {run.key} is {run.status}; "
                "rewind it to an older checkpoint, or fork one",
                status=run.status,
            )
        # The head becomes a kept checkpoint, from which a line can depart.
        events = locked_run.keep_head(run)
        point = load_departure(run.head or "")
        return _begin_next_line(run, point, request, before=events)


def _begin_next_line(
    run: Run,
    point: Departure,
    request: TravelRequest,
    *,
    before: Sequence[NewEvent] = (),
) -> Run:
    """Put a locked run on its next line. The events `before` are written first."""
    _require_can_leave_line(run, point)
    overlay = lay_over(point, request.patch, by=name_of(request.by))
    waiting = held_tasks_at(point)
    check_answers(request.answers, waiting)
    new = _new_line(point, overlay, waiting, request, seq=run.head_seq + 1)

    # Open requests on the line that is left are withdrawn before they are asked again.
    withdrawn = leave_requests(run.id)
    jobs.cancel_jobs_of(run.id)
    next_line = NextLine(run.id, run.line + 1, run.graph, protection_of(run))
    opening = stage_requests(point, overlay, waiting, next_line)
    begun = departure.begin_line(
        run,
        new,
        status=Status.QUEUED,
        before=before,
        events=[*withdrawn, *opening.events],
        inside=opening.insert,
    )
    kind = "rewound" if request.travel == Travel.REWIND else "resumed"
    audit_log.record_act(kind, run, actor=request.by, seq=begun, **_origin(point))
    sign_answers(run, request.answers, by=request.by)
    return run


def _require_can_leave_line(run: Run, point: Departure) -> None:
    """Raise `WrongStatus` or `IncompatibleGraph` if a run cannot depart from its line
    at this point.
    """
    _require_at_rest(run)
    first_line = lines.line_row(run, 1)
    if first_line is not None and first_line.travel == Travel.REPLAY:
        raise WrongStatus(
            f"run {run.key} is a replay, which has no outside; fork it instead",
            status=run.status,
        )
    # Only an adoption brings a run onto another version: it judges and migrates.
    if point.graph.fingerprint != run.fingerprint:
        raise IncompatibleGraph(
            f"run {run.key} is pinned to version {run.version} of {run.graph}, and the "
            f"checkpoint would go on with version {point.graph.version}; "
            "fork it instead",
            graph=run.graph,
        )


def _origin(point: Departure) -> dict[str, Any]:
    """Return the facts by which the audit log identifies the checkpoint that a line
    departed from.
    """
    return {"origin": str(point.run.id), "checkpoint": point.checkpoint.seq}


def _require_at_rest(run: Run) -> None:
    """Raise `WrongStatus` if a worker has the run in hand, or if it must be settled or
    repaired first.
    """
    if leases.is_held(run.id):
        raise WrongStatus(
            f"a worker has run {run.key} in hand; "
            "cancel it, or wait until it rests, and rewind it then",
            status=run.status,
        )
    if run.status == Status.TAMPERED:
        raise WrongStatus(
            f"run {run.key} is tampered: repair it and resume it first",
            status=run.status,
        )
    # On another line nobody could settle them.
    tasks = [row.task for row in cancellation.unsettled_attempts(run)]
    if tasks:
        raise WrongStatus(
            f"nobody wrote down whether {', '.join(tasks)} of run {run.key} happened; "
            "let it be settled first",
            status=run.status,
            tasks=tasks,
        )


@frozen
class _Inherited:
    """The part of a fork that comes from its origin: the metadata, and the keys to be
    tried for it, in this order.
    """

    metadata: Mapping[str, Any]
    keys: Sequence[str]


def _inherited(point: Departure, run: Run, place: ForkStart) -> _Inherited:
    """Return what a fork takes from the locked run of a point. Raises as
    `_require_kept` does. One query.
    """
    keys = [place.key] if place.key else _keys_like(run, place.id)
    # The checkpoint was read before the lock, and may have been removed since.
    of_run = notes.metadata_at_kept(run, point.checkpoint.id, key=keys[0])
    if of_run is None:
        raise unknown_thing("checkpoint", point.checkpoint.id)
    refuse_erased(run)
    metadata, is_taken = of_run
    # Another run may still take a key before the insert, which decides.
    if is_taken and len(keys) > 1:
        keys = keys[1:]
    return _Inherited(metadata, keys)


def _require_kept(point: Departure, run: Run) -> None:
    """Raise `UnknownThing` if the checkpoint was removed before its run was locked, and
    `Erased` if its values were. `run` is the locked row. One query.
    """
    if not query_cache.exists(_query_kept, point.checkpoint.id):
        raise unknown_thing("checkpoint", point.checkpoint.id)
    refuse_erased(run)


def _query_kept(checkpoint: UUID) -> "QuerySet[Any, Any]":
    rows = Checkpoint.objects.filter(id=checkpoint, kept=True, run__isnull=False)
    return rows.order_by().values_list("id")[:1]


def _new_line(
    point: Departure,
    overlay: Overlay,
    waiting: Sequence[HeldTask],
    request: TravelRequest,
    extra_stops: Sequence[str] = (),
    *,
    seq: int | None = None,
) -> NewLine:
    require_secrets(point.graph)
    allowed = checked_nodes(point.graph, request.allow_effects)
    plan = plan_departure(point, overlay, waiting, request.travel, allowed)
    source = _SOURCES.get(Travel(request.travel), Source.REWIND)
    return NewLine(
        request.travel,
        point.checkpoint,
        first_checkpoint(point, overlay, source, seq=seq),
        stops=sorted([*plan.stops, *extra_stops]),
        patched=overlay.change.patched,
        patch=overlay.patch,
        reason=request.reason,
        by=request.by,
    )


def _create_fork(
    point: Departure,
    overlay: Overlay,
    waiting: Sequence[HeldTask],
    new: NewLine,
    place: ForkStart,
    inherited: _Inherited,
) -> Run:
    """Create the fork's run, with its first checkpoint, its requests and the metadata
    of its origin.
    """
    note_version(point.graph)
    origin = point.run
    # A fork is protected like its origin, whose values it inherits.
    next_line = NextLine(place.id, 1, point.graph.name, protection_of(origin))
    opening = stage_requests(point, overlay, waiting, next_line)
    run = _run_of(point, place.id, by=new.by)
    # What is sealed below carries the run's protection, so its data key must exist.
    data_keys.make_data_key(run)
    for key in inherited.keys:
        run.key = key
        run.label = labels.run_label(point.graph, point.input, key=key)
        is_created = departure.create_departed_run(
            run,
            new,
            status=place.status,
            input_json=point.input,
            events=opening.events,
            inside=opening.insert,
            metadata=inherited.metadata,
            indexed=point.graph.graph.indexed_metadata,
        )
        if is_created:
            # After the insert, which waits for a removal of that key that is under way.
            require_never_removed(place.key)
            return run
    # The run itself may have the key, if it was forked before under this id.
    if not Run.objects.filter(key=inherited.keys[-1]).exclude(id=place.id).exists():
        raise IntegrityError(f"run {place.id} exists already")
    raise KeyConflict(f"key {place.key} belongs to another run", key=place.key)


def _keys_like(origin: Run, id: UUID) -> list[str]:
    """Return keys for a fork, to be tried in this order. Ids that are made within a
    minute begin with the same digits; the whole id is always free.
    """
    keys: list[str] = []
    for tail in (str(id)[:8], str(id)):
        keys.append(f"{origin.key[: LONGEST_KEY - 1 - len(tail)]}~{tail}")
    return keys


def _run_of(point: Departure, id: UUID, *, by: Any) -> Run:
    origin = point.run
    graph = point.graph
    return new_row(
        Run,
        id=id,
        graph=graph.name,
        version=graph.version,
        fingerprint=graph.fingerprint,
        facts=origin.facts,
        encrypted=origin.encrypted,
        hash_key=origin.hash_key,
        payloads=payloads.chosen(graph.graph.payloads),
        input_hash=origin.input_hash,
        started_by_id=by.pk if by else origin.started_by_id,
        on_behalf_of_id=origin.on_behalf_of_id,
        origin_checkpoint=point.checkpoint.id,
        priority=origin.priority,
    )
