"""The runner's commits: advance, settle, rest, fail, leave open. Each builds everything first and then moves the head
once.

Where somebody else wrote to the log meanwhile (a decision, an edit), the commit is built anew from what is there now
and tried again; the nodes do not run again, for the state's change stands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.db import Error

from approvals.gates import settlement as settlements
from approvals.gates.new_requests import Moment, Opening, Reached, prepare
from approvals.gates.settlement import Rebasing
from approvals.models import RequestStatus
from checkpoints.core import keep_policy as policy
from checkpoints.core import tape
from checkpoints.core.status import Status
from checkpoints.db.statements import Update
from checkpoints.event_log import Draft
from checkpoints.journal import results as journal
from checkpoints.ledger import commit as ledger
from checkpoints.ledger.commit import Head, Moved, Payload, Point, Turn
from checkpoints.memory.landings import Commit
from checkpoints.models.checkpoint import Source
from orchestrator.engine import Task
from orchestrator.engine.effect import PURE
from orchestrator.engine.errors import MemoryConflict, SaveFailed
from orchestrator.engine.frozen import frozen
from orchestrator.engine.plan import Frontier, Planned, ending, plan
from orchestrator.engine.reduce import HeldWrite, Step, settle_step
from orchestrator.execution import diagnostics
from orchestrator.execution import failed_save as saving
from orchestrator.execution import memory as remembering
from orchestrator.execution import summary as shown
from orchestrator.execution.executor import Finish
from orchestrator.execution.memory import Remembered, State
from orchestrator.execution.open_superstep import Kept, Open, unsettled
from orchestrator.execution.session import Desk, Flight, Worked, repeated


@frozen
class _Built:
    """A commit, ready to be made; `after` is what the run would do next, `listing` and `inside` ride in it."""

    point: Point
    turn: Turn
    lines: list[Draft]
    listing: Update | None
    inside: Callable[[], None] | None
    after: Planned


def advance(desk: Desk, worked: Worked, *, wait: bool = False) -> bool:
    """Commit a superstep: its state, the requests it opens, and what becomes of the run. Gives whether we still have
    it. Where nothing but pure tasks comes next, the commit may be on its way then: `land` it.
    """

    def act() -> tuple[Head, str]:
        it = _built(desk, worked)
        try:
            made = ledger.made(
                desk.hold, desk.head, it.point, it.turn, lines=it.lines, also=it.listing, inside=it.inside
            )
            if not land(desk):
                return desk.head, Status.RUNNING
            desk.ahead = it.after
            landing = made.send()
            if wait or not _may_fly(desk, it):
                landing()
            else:
                desk.flight = Flight(landing, desk.head, worked)
        except (SaveFailed, Error) as error:
            alone = it.inside is None and saving.may_go_on(desk.graph, worked.kept, it.turn, it.after)
            if not (alone and saving.is_refusal(error)):
                raise
            desk.ahead = it.after
            head = saving.go_on(desk.hold, desk.head, it.point, it.turn, lines=it.lines, error=error)
            return head, it.turn.status
        return made.head, it.turn.status

    return _moved(desk, repeated(desk.hold, act))


def land(desk: Desk) -> bool:
    """Wait for the commit that is on its way, if one is. False: somebody else wrote to the run before it, so it was
    made anew; whatever was worked since began before that, and must begin again.
    """
    flight, desk.flight = desk.flight, None
    if flight is None:
        return True
    try:
        flight.land()
        return True
    except Moved:
        desk.head, desk.retried, desk.hold.moved = flight.before, [], True
        ledger.look_again(desk.hold)
        advance(desk, flight.worked, wait=True)
        return False


def _may_fly(desk: Desk, it: _Built) -> bool:
    """Whether what comes next may begin before the commit is certain: pure tasks, which may run at any time and again,
    while nobody is asked and nothing rides in it.
    """
    waits = it.inside or desk.retried or it.point.payload.frontier["waiting"]
    if waits or not it.after.starts or desk.graph.graph.on_save_error == "continue":
        return False
    nodes = desk.graph.nodes
    return all(nodes[start.task.node].effect == PURE and not nodes[start.task.node].gated for start in it.after.starts)


def _built(desk: Desk, worked: Worked) -> _Built:
    number, step, kept, at = desk.hold.superstep + 1, worked.step, worked.kept, datetime.now(UTC)
    reached = _reached(desk, kept, worked.before)
    outputs = {task: one.output for task, one in kept.items() if one.output}
    after = plan(desk.graph, step.frontier)
    status = _status(desk, step.frontier, after)
    held = [write for write in step.held if write.task in reached]
    memory = remembering.weigh(desk.hold, desk.graph, step.memory, held=held, outputs=outputs, at=at)
    state = _seen(desk, step, memory, held)
    opening = prepare(desk.hold, desk.graph, reached, step.held, Moment(state, number, desk.input, at))
    moved = settlements.rebase(desk.look(), desk.graph, state, at=at, cover=desk.hold.cover)
    entries = shown.nodes(desk.graph, kept)
    point = Point(
        Source.SUPERSTEP,
        _payload(desk, step, [(t.node, k.ms) for t, k in kept.items()], number),
        number,
        step.changes,
        nodes=entries,
        kept=_stays(desk, worked, after, opens_gate=bool(reached), ends=status != Status.RUNNING),
        took_ms=worked.took_ms,
        snapshot=desk.graph.snapshot,
    )
    turn = Turn(status, shown.at_node(step.frontier, after), tape.extend(desk.hold.tape, shown.word(entries)))
    lines = [*shown.unfinished(desk.retried), *shown.finished(kept), *memory.lines, *opening.lines, *moved.lines]
    lines += shown.turned(status, step.frontier)
    journaled = any(desk.graph.nodes[task.node].journaled for task in kept)
    listing = journal.listing(desk.hold, desk.head.next_seq) if journaled else None
    return _Built(point, turn, lines, listing, _inside(desk, opening, moved, memory), after)


def _stays(desk: Desk, worked: Worked, after: Planned, *, opens_gate: bool, ends: bool) -> bool:
    """Whether the row of this superstep stays in the timeline."""
    superstep = policy.Superstep(
        desk.hold.superstep + 1,
        ran=[desk.graph.nodes[start.task.node].checkpoint for start in worked.planned.starts],
        next=[desk.graph.nodes[start.task.node].checkpoint for start in after.starts],
        asked=worked.asks_checkpoint,
        opens_gate=opens_gate,
        ends=ends,
    )
    return policy.stays(desk.graph.checkpoints, superstep)


def settle(desk: Desk) -> bool:
    """Commit a settlement: no node runs, the settled writes are reduced, the gates' edges get their tokens."""

    def act() -> tuple[Head, str]:
        at = datetime.now(UTC)
        before = desk.head.payload.state
        state = remembering.seen(desk.hold, before, remembering.held_channels(desk.look()))
        settlement = settlements.settle(desk.asked, desk.graph, desk.frontier, state, desk.hold.cover)
        others = [one for one in desk.asked if one.request not in settlement.requests]
        if not settlement.settled:
            moved = settlements.rebase(others, desk.graph, state, at=at, cover=desk.hold.cover)
            ledger.append(desk.hold, moved.lines, inside=moved.insert)
            desk.hold.moved = True
            return desk.head, Status.RUNNING
        step = settle_step(desk.graph, desk.frontier, before, settlement.settled)
        memory = _decided(desk, step, at)
        after = desk.ahead = plan(desk.graph, step.frontier)
        status = _status(desk, step.frontier, after, apart_from=settlement.requests)
        after_it = _seen(desk, step, memory)
        moved = settlements.rebase(others, desk.graph, after_it, at=at, cover=desk.hold.cover)
        point = Point(
            Source.SETTLEMENT,
            _payload(desk, step, [], desk.hold.superstep),
            desk.hold.superstep,
            step.changes,
            nodes=shown.settled(settlement.settled),
            snapshot=desk.graph.snapshot,
        )
        turn = Turn(status, shown.at_node(step.frontier, after), tape.extend(desk.hold.tape, "s"))
        applied = shown.applied(settlement.settled)
        lines = [*applied, *memory.lines, *moved.lines, *shown.turned(status, step.frontier)]

        def inside() -> None:
            settlement.insert()
            moved.insert()
            memory.insert(desk.hold, Commit(desk.head.next_seq, desk.hold.superstep, at))

        return ledger.commit(desk.hold, desk.head, point, turn, lines=lines, inside=inside), status

    return _moved(desk, repeated(desk.hold, act))


def rest(desk: Desk) -> bool:
    """Nothing can start and nothing is settled: give the run back as it is. No checkpoint, for nothing happened.

    True, and nothing done, where a gate was settled since the last look.
    """
    status = Status(ending(desk.graph, desk.frontier))
    turn = Turn(status, shown.at_node(desk.frontier, None), desk.hold.tape)

    def act() -> bool:
        if desk.settled():
            return True
        ledger.stop(desk.hold, turn, lines=shown.turned(status, desk.frontier))
        return False

    return repeated(desk.hold, act)


def fail(desk: Desk, error: dict[str, Any]) -> bool:
    """Stop a run that failed outside its tasks (a limit, a router behind a gate): a failure checkpoint with nothing
    new. Unknown comes before failed: where an effect may have happened, that is to be settled first.
    """
    lost = unsettled(desk.graph, journal.entries(desk.hold))
    status = Status.UNKNOWN if lost else Status.FAILED
    turn = Turn(status, str(error.get("node", "")), tape.extend(desk.hold.tape, "!"), error=error)
    lines = [Draft(f"run_{status}", {"code": error["code"], "message": error["message"]})]
    point = _failure(desk, desk.head.payload, [])

    def mark() -> None:
        journal.mark_unknown(desk.hold, lost)

    repeated(desk.hold, lambda: ledger.commit(desk.hold, desk.head, point, turn, lines=lines, inside=mark))
    return False


def _failure(desk: Desk, payload: Payload, nodes: list[dict[str, Any]]) -> Point:
    number, snapshot = desk.hold.superstep, desk.graph.snapshot
    return Point(Source.FAILURE, payload, number, nodes=nodes, committed=False, snapshot=snapshot)


def leave_open(
    desk: Desk,
    planned: Planned,
    before: Open,
    kept: Mapping[Task, Kept],
    left: Mapping[Task, Finish],
    *,
    error: dict[str, Any] | None = None,
    ask: bool = True,
) -> bool:
    """Commit a superstep that stays open: what finished is kept, human siblings are asked unless a gate cannot open."""
    turn = _stopped(desk, left, error)
    reached = _reached(desk, kept, before) if ask else {}
    held = [write for task in reached for write in kept[task].held(task)]
    later = left if turn.status == Status.WAITING else {}
    open_ = _still_open(desk, kept, later, asked=before.asked | set(reached))
    # Without an error nothing was tried: an attempt that was planned before is still to come.
    ended = [(task, one) for task, one in left.items() if one.error]
    unknown = [task for task, one in left.items() if one.outcome == "unknown"]

    def act() -> Head:
        payload, at = desk.head.payload, datetime.now(UTC)
        seen = remembering.about_to_hold(desk.hold, desk.graph, payload.state, held, at)
        moment = Moment(seen, desk.hold.superstep, desk.input, at)
        opening = prepare(desk.hold, desk.graph, reached, held, moment)
        point = _failure(desk, replace(payload, open=open_.to_json()), shown.left(desk.graph, kept, left))
        lines = [*shown.unfinished([*desk.retried, *ended]), *opening.lines, *shown.stopped(turn)]

        def inside() -> None:
            opening.insert()
            journal.mark_unknown(desk.hold, unknown)
            journal.list_done(desk.hold, desk.head.next_seq)

        return ledger.commit(desk.hold, desk.head, point, turn, lines=lines, inside=inside)

    repeated(desk.hold, act)
    return False


def _still_open(desk: Desk, kept: Mapping[Task, Kept], later: Mapping[Task, Finish], *, asked: frozenset[Task]) -> Open:
    """What is kept of the superstep, with when and after how many tries those go on that wait for a next attempt."""
    now = desk.hold.now().timestamp()
    tries = {task: one.tries for task, one in later.items()}
    due = {task: now + one.due_in for task, one in later.items()}
    return Open(dict(kept), asked, tries, desk.hold.superstep + 1, due)


def _stopped(desk: Desk, left: Mapping[Task, Finish], error: dict[str, Any] | None) -> Turn:
    """What an open superstep makes of the run: unknown before failed before waiting."""
    tape_ = tape.extend(desk.hold.tape, "!")
    at_node = ", ".join(sorted({task.node for task in left}))
    for outcome, status in (("unknown", Status.UNKNOWN), ("failed", Status.FAILED)):
        tasks = [task for task, one in left.items() if one.outcome == outcome]
        if tasks and not error:
            return Turn(status, at_node, tape_, error=shown.error(outcome, tasks[0], left[tasks[0]]))
    if error:
        return Turn(Status.FAILED, at_node, tape_, error=error)
    return Turn(Status.WAITING, at_node, desk.hold.tape, due_in=min(one.due_in for one in left.values()))


def _reached(desk: Desk, kept: Mapping[Task, Kept], before: Open) -> dict[Task, Reached]:
    """The gates that are asked now: those of kept tasks whose requests are not open yet."""
    asked = {task: one for task, one in kept.items() if one.gated and task not in before.asked}
    if not asked:
        return {}
    gates = {task: desk.graph.nodes[one.guard or task.node].gate for task, one in asked.items()}
    return {
        task: Reached(gate, asked[task].why, all_or_nothing=_as_a_whole(desk, task, asked[task]))
        for task, gate in gates.items()
        if gate
    }


def _as_a_whole(desk: Desk, task: Task, one: Kept) -> bool:
    return one.guard is not None or remembering.all_or_nothing(desk.graph, task, one.output)


def _decided(desk: Desk, step: Step, at: datetime) -> Remembered:
    """What a settlement lands. Raises `Moved` where memory changed since the look: the next one re-bases the write."""
    try:
        return remembering.weigh(desk.hold, desk.graph, step.memory, at=at)
    except MemoryConflict as conflict:
        raise Moved from conflict


def _seen(desk: Desk, step: Step, memory: Remembered, held: Sequence[HeldWrite] = ()) -> State:
    """The state after the step, with what memory then holds for writes that gates hold."""
    asked = desk.look()
    if not (asked or held):
        return step.state
    channels = remembering.held_channels(asked, held)
    return remembering.seen(desk.hold, step.state, channels, memory.landings)


def _status(desk: Desk, frontier: Frontier, after: Planned, *, apart_from: Any = ()) -> str:
    if after.starts:
        return Status.RUNNING
    status = Status(ending(desk.graph, frontier))
    waits = [a for a in desk.look() if a.request.status == RequestStatus.SETTLED and a.request not in apart_from]
    return Status.RUNNING if status == Status.PAUSED and waits else status


def _payload(desk: Desk, step: Step, ran: list[tuple[str, int]], supersteps: int) -> Payload:
    before, seq = desk.head.payload, desk.head.next_seq
    return Payload(
        step.state,
        diagnostics.after(before.diagnostics, ran, supersteps=supersteps),
        step.frontier.to_json(),
        {**before.versions, **dict.fromkeys(step.changes, seq)},
    )


def _inside(desk: Desk, opening: Opening, moved: Rebasing, memory: Remembered) -> Callable[[], None] | None:
    if not (opening.requests or moved.rows or moved.reopened or memory):
        return None
    commit = Commit(desk.head.next_seq, desk.hold.superstep + 1, datetime.now(UTC))

    def inside() -> None:
        opening.insert()
        moved.insert()
        memory.insert(desk.hold, commit)

    return inside


def _moved(desk: Desk, outcome: tuple[Head, str]) -> bool:
    head, status = outcome
    if head is not desk.head:
        desk.moved_to(head)
    return status == Status.RUNNING
