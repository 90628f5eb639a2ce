"""Going back in time: fork, rewind, and a resume with a patch. Each is the plan of a point, carried out in one
transaction under the lock of the point's run.

Rights are asked as `orchestrator.runs.verbs` says.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError

from approvals.gates.recorded_ways import require_ways
from approvals.gates.withdrawal import leave_requests
from checkpoints import audit_log, lines, payloads
from checkpoints.core.arguments import checked_text
from checkpoints.core.ids import unknown_thing, uuid7
from checkpoints.core.run_key import LONGEST_KEY
from checkpoints.core.status import ENDS, Status
from checkpoints.event_log import NewEvent
from checkpoints.ledger import departure, locked_run, notes
from checkpoints.ledger.departure import NewLine
from checkpoints.ledger.removed_keys import require_never_removed
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.models.checkpoint import Source
from checkpoints.models.run_line import Travel
from checkpoints.queue import jobs, leases
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.discovery import note_version
from orchestrator.engine.errors import IncompatibleGraph, InvalidValue, KeyConflict, WrongStatus
from orchestrator.engine.frozen import frozen
from orchestrator.execution import cancellation
from orchestrator.runs import labels
from orchestrator.runs.act import check_person, locked, name_of, require_rights
from orchestrator.runs.answers import Answers, check_answers, sign_answers
from orchestrator.runs.departure import (
    Departure,
    HeldTask,
    effects_elsewhere,
    effects_unknown_here,
    held_tasks_at,
    load_departure,
    refuse_erased,
)
from orchestrator.runs.keys import checked_key, get
from orchestrator.runs.needed_secrets import require_secrets
from orchestrator.runs.overlay import Overlay, Patch, first_checkpoint, lay_over, stage_requests
from orchestrator.runs.travel_plan import Plan, checked_nodes, make_plan

LONGEST_REASON = 10_000
NOT_STARTED = lines.NOT_STARTED
_SOURCES = {Travel.FORK: Source.FORK, Travel.REPLAY: Source.REPLAY}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks of a point. Raises `InvalidValue` for what is of another kind."""

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
            raise InvalidValue("answers are decisions of a person, so somebody must give them", path="answers")


@frozen
class NextLine:
    """The line for which requests are opened."""

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
    """What a fork, replay or rewind from this checkpoint would do; nothing is written.

    Raises as the verb does: `UnknownThing`, `InvalidValue`, `PayloadTooLarge`, `TamperedRow`, `WrongKey`,
    `IncompatibleGraph`, `MissingSecrets`.
    """
    if how not in Travel.values:
        raise InvalidValue(f"how is one of {', '.join(Travel.values)}", path="how")
    point = load_departure(checkpoint)
    outside = how != Travel.REPLAY
    overlay, asked = lay_over(point, patch, asks=outside), held_tasks_at(point) if outside else []
    check_answers(answers, asked)
    require_secrets(point.graph)
    if not outside:
        require_ways(point.graph, point.run, point.checkpoint)
    return plan_departure(point, overlay, asked, how, checked_nodes(point.graph, allow_effects))


def plan_departure(
    point: Departure, overlay: Overlay, asked: Sequence[HeldTask], travel: str, allowed: Collection[str]
) -> Plan:
    """As `plan`, of a point that is loaded, with what is laid over it and what people are asked there."""
    own = lines.line_row(point.run, point.checkpoint.line)
    outside = travel != Travel.REPLAY
    stops = [node for node in own.stops if node != NOT_STARTED] if own and outside else []
    effects = effects_elsewhere(point, fenced=travel in (Travel.REWIND, Travel.RESUME)) if outside else []
    if outside and point.leads_to_import:
        effects += effects_unknown_here(point)
    return make_plan(
        point.graph,
        point.frontier,
        point.open,
        travel=travel,
        checkpoint=point.checkpoint.id,
        effects=effects,
        asked=asked if outside else (),
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
    """A new run from a checkpoint, its state patched; the origin is not touched. Without `start` it is paused until it
    is resumed. Who may ask twice gives the `id` of the new run: where it is there already, `IntegrityError` is raised.

    Effects that happened already stop it before their nodes, unless `allow_effects` names them. `answers` decide at
    once what people were asked at that point: each counts as a signature of `by`. Raises, having changed nothing,
    `UnknownThing`, `InvalidValue` (patch, answer or key, naming the place), `PayloadTooLarge`, `NotAReviewer` (with an
    audit line), `KeyConflict`, `IncompatibleGraph`, `MissingSecrets`, `TamperedRow`, `WrongKey`, `SaveFailed`.
    """
    wanted = Wanted(Travel.FORK, patch, answers, allow_effects, reason, by)
    checked_key(key)
    point = load_departure(checkpoint)
    require_rights(by, "steer_run", point.run)
    overlay = lay_over(point, patch, by=name_of(by))
    status = Status.QUEUED if start else Status.PAUSED
    run = open_fork(point, overlay, wanted, Place(_new_id(id), key, status))
    run.refresh_from_db()
    return run


def _new_id(id: Any) -> UUID:
    """The id of a run that is made. Raises `InvalidValue` for what is none."""
    if id is not None and not isinstance(id, UUID):
        raise InvalidValue("id is a UUID", path="id")
    return id or uuid7()


@frozen
class Place:
    """Where a fork begins: the id and the key of its run (None: made from the origin's), the status, and a row that the
    run has already, which its first checkpoint follows.
    """

    id: UUID
    key: str | None
    status: str
    behind: Checkpoint | None = None


def open_fork(point: Departure, overlay: Overlay, wanted: Wanted, place: Place) -> Run:
    """Carry a fork out, under the lock of the origin's run. Raises as `fork` does."""
    with locked(point.run.id, by=wanted.by, also_imported=True):
        _require_there(point)
        asked = held_tasks_at(point)
        check_answers(wanted.answers, asked)
        more = [] if place.status == Status.QUEUED else [NOT_STARTED]
        new = replace(_new_line(point, overlay, asked, wanted, more), behind=place.behind)
        run = _forked(point, overlay, asked, new, place)
        audit_log.record_act("forked", run, actor=wanted.by, seq=1, **_origin(point))
        sign_answers(run, wanted.answers, by=wanted.by)
    return run


def replay(
    checkpoint: UUID | str, *, reason: str = "", id: UUID | None = None, by: AbstractBaseUser | None = None
) -> Run:
    """A new run from a checkpoint that has no outside: pure and read nodes run again, of all others the recorded
    outcome is taken where the input is the same. `replay_report` tells where it went another way.

    `id` is as for `fork`. Raises as `fork` does, and `WrongStatus` where rows that it would read were removed.
    """
    wanted = Wanted(Travel.REPLAY, reason=reason, by=by)
    point = load_departure(checkpoint)
    require_rights(by, "steer_run", point.run)
    with locked(point.run.id, by=by):
        _require_there(point)
        require_ways(point.graph, point.run, point.checkpoint)
        overlay = lay_over(point, None, asks=False)
        new = replace(_new_line(point, overlay, [], wanted), stops=())
        run = _forked(point, overlay, [], new, Place(_new_id(id), None, Status.QUEUED))
        audit_log.record_act("replayed", run, actor=by, seq=1, **_origin(point))
    run.refresh_from_db()
    return run


def replay_report(run_id: UUID | str) -> dict[str, Any]:
    """What a replay came to: {run, origin, status, reused: [task], diverged: [{task, why, path}]}, in order.

    `why` is other_input or other_memory, with the first path that the task saw otherwise, or no_record. A task that ran
    on other memory went on; of all others the branch ended. Raises `UnknownThing`, and
    `InvalidValue` for a run that is no replay.
    """
    run = get(run_id)
    row = lines.line_row(run, 1)
    if row is None or row.travel != Travel.REPLAY:
        raise InvalidValue(f"run {run.key} is no replay", path="run")
    events = list(RunEvent.objects.filter(run=run.id, type__in=["results_reused", "task_diverged"]).order_by("seq"))
    sealed_rows.verify_rows(events, protection_of(run))
    told = [(event, read_value(event, "payload")) for event in events]
    reused = [task for event, facts in told if event.type == "results_reused" for task in facts["tasks"]]
    diverged = [{"task": event.task, **facts} for event, facts in told if event.type == "task_diverged"]
    origin = {"run": str(row.departure_run), "checkpoint": str(row.departure)}
    return {"run": str(run.id), "origin": origin, "status": run.status, "reused": reused, "diverged": diverged}


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
    """The same run on a new line from an older checkpoint, queued. What came after it stays readable; what people are
    asked is withdrawn, and asked anew where it waited at that point. `seen_line` is the line on which the caller saw
    the run: on another one it is not rewound once more.

    Raises as `fork` does; and `WrongStatus` for a run that a worker has in hand, that is tampered, or of which an
    effect must be settled first.
    """
    wanted = Wanted(Travel.REWIND, patch, answers, allow_effects, reason, by)
    run, point = get(run_id), load_departure(checkpoint)
    require_rights(by, "steer_run", run)
    with locked(run.id, by=by) as run:
        if seen_line not in (None, run.line):
            message = f"run {run.key} has gone back since you saw it, and is on line {run.line} now"
            raise WrongStatus(message, status=run.status, line=run.line)
        _require_there(point)
        return _rewound(run, point, wanted)


def resume_patched(run: Run, patch: Patch, wanted: Wanted) -> Run:
    """A run goes on from its newest checkpoint, patched: a new line from there. Raises as `rewind` does, and
    `WrongStatus` for a run that has ended.
    """
    with locked(run.id, by=wanted.by) as run:
        if run.status in ENDS:
            message = f"run {run.key} is {run.status}; rewind it to an older checkpoint, or fork one"
            raise WrongStatus(message, status=run.status)
        kept = locked_run.keep_head(run)
        return _rewound(run, load_departure(run.head or ""), wanted, before=kept)


def _rewound(run: Run, point: Departure, wanted: Wanted, *, before: Sequence[NewEvent] = ()) -> Run:
    """A locked run on its next line."""
    if point.run.id != run.id:
        raise unknown_thing("checkpoint of this run", point.checkpoint.id)
    _require_at_rest(run)
    if (first := lines.line_row(run, 1)) is not None and first.travel == Travel.REPLAY:
        raise WrongStatus(f"run {run.key} is a replay, which has no outside; fork it instead", status=run.status)
    if point.graph.fingerprint != run.fingerprint:
        there = f"and the checkpoint would go on with version {point.graph.version}"
        message = f"run {run.key} is pinned to version {run.version} of {run.graph}, {there}; fork it instead"
        raise IncompatibleGraph(message, graph=run.graph)
    overlay, asked = lay_over(point, wanted.patch, by=name_of(wanted.by)), held_tasks_at(point)
    check_answers(wanted.answers, asked)
    new = _new_line(point, overlay, asked, wanted, seq=run.head_seq + 1)
    withdrawn = leave_requests(run.id)
    jobs.cancel_jobs_of(run.id)
    opening = stage_requests(point, overlay, asked, NextLine(run.id, run.line + 1, run.graph, protection_of(run)))
    events = [*withdrawn, *opening.events]
    begun = departure.begin_line(run, new, status=Status.QUEUED, before=before, events=events, inside=opening.insert)
    kind = "rewound" if wanted.travel == Travel.REWIND else "resumed"
    audit_log.record_act(kind, run, actor=wanted.by, seq=begun, **_origin(point))
    sign_answers(run, wanted.answers, by=wanted.by)
    return run


def _origin(point: Departure) -> dict[str, Any]:
    """What the audit log says of where a line departed."""
    return {"origin": str(point.run.id), "checkpoint": point.checkpoint.seq}


def _require_at_rest(run: Run) -> None:
    """Raise `WrongStatus` where a worker has the run in hand, or it must be settled or repaired first."""
    if leases.is_held(run.id):
        message = f"a worker has run {run.key} in hand; cancel it, or wait until it rests, and rewind it then"
        raise WrongStatus(message, status=run.status)
    if run.status == Status.TAMPERED:
        raise WrongStatus(f"run {run.key} is tampered: repair it and resume it first", status=run.status)
    if unsettled := cancellation.unsettled_attempts(run):
        named = ", ".join(row.task for row in unsettled)
        message = f"nobody wrote down whether {named} of run {run.key} happened; let it be settled first"
        raise WrongStatus(message, status=run.status, tasks=[row.task for row in unsettled])


def _require_there(point: Departure) -> None:
    """Raise `UnknownThing` where the checkpoint was removed before its run was locked, `Erased` where its values
    were. One query.
    """
    rows = Checkpoint.objects.filter(id=point.checkpoint.id, kept=True)
    found = rows.select_related("run").only("run__erasure", "run__key").first()
    if found is None:
        raise unknown_thing("checkpoint", point.checkpoint.id)
    refuse_erased(found.run)


def _new_line(
    point: Departure,
    overlay: Overlay,
    asked: Sequence[HeldTask],
    wanted: Wanted,
    more: Sequence[str] = (),
    *,
    seq: int | None = None,
) -> NewLine:
    require_secrets(point.graph)
    allowed = checked_nodes(point.graph, wanted.allow_effects)
    stops = [*plan_departure(point, overlay, asked, wanted.travel, allowed).stops, *more]
    source = _SOURCES.get(Travel(wanted.travel), Source.REWIND)
    return NewLine(
        wanted.travel,
        point.checkpoint,
        first_checkpoint(point, overlay, source, seq=seq),
        stops=sorted(stops),
        patched=overlay.change.patched,
        patch=overlay.given,
        reason=wanted.reason,
        by=wanted.by,
    )


def _forked(point: Departure, overlay: Overlay, asked: Sequence[HeldTask], new: NewLine, place: Place) -> Run:
    """The fork's run, with its first checkpoint and what it asks."""
    note_version(point.graph)
    id, origin = place.id, point.run
    metadata = notes.metadata_of(origin)
    opening = stage_requests(point, overlay, asked, NextLine(id, 1, point.graph.name, protection_of(origin)))
    # Forks that are made within a minute begin with the same digits; the whole id is always free.
    made = [f"{origin.key[: LONGEST_KEY - 1 - len(tail)]}~{tail}" for tail in (str(id)[:8], str(id))]
    for key in [place.key] if place.key else made:
        run = _run_of(point, id, key, by=new.by)
        try:
            departed = departure.create_departed_run(
                run,
                new,
                status=place.status,
                input_json=point.input,
                events=opening.events,
                inside=opening.insert,
                metadata=metadata,
                indexed=point.graph.graph.indexed_metadata,
            )
            require_never_removed(place.key)
            return departed
        except IntegrityError:
            if not Run.objects.filter(key=key).exclude(id=id).exists():
                raise
    raise KeyConflict(f"key {place.key} belongs to another run", key=place.key)


def _run_of(point: Departure, id: UUID, key: str, *, by: Any) -> Run:
    origin, graph = point.run, point.graph
    return Run(
        id=id,
        key=key,
        graph=graph.name,
        version=graph.version,
        fingerprint=graph.fingerprint,
        label=labels.run_label(graph, point.input, key=key),
        facts=origin.facts,
        encrypted=origin.encrypted,
        hash_key=origin.hash_key,
        payloads=payloads.chosen(graph.graph.payloads),
        input_hash=origin.input_hash,
        started_by=by or origin.started_by,
        on_behalf_of=origin.on_behalf_of,
        origin_checkpoint=point.checkpoint.id,
        priority=origin.priority,
    )
