"""One graph and one decider twice: played in memory, and run on the database with
people who sign. Both are told in the same words, so that a test compares them whole.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User

from approvals import reviews
from approvals.api.request_detail import Slip, slips_of
from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Checkpoint, MemoryLanding, MemoryTrace, Run
from checkpoints.sealing.sealed_columns import read_value
from orchestrator import runs
from orchestrator.engine import Frontier, Graph, Played, play, registry
from orchestrator.engine.errors import AlreadyDecided
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.play_people import Request, RequestWrite, waiting_tasks
from orchestrator.engine.step.plan import pending_edges, skipped
from orchestrator.engine.values import canonical

Decide = Callable[[Request], Mapping[int, Any] | None]
NAMESPACE = "played"
"""What the graphs of these tests remember in."""
MOST_PAUSES = 30


@dataclass
class Told:
    """What a journey was. `rounds`: of each superstep and settlement (source, number,
    tasks, state, edges, skipped, waiting). `asked`: what the decider was shown, in
    order. `gates`: what still waits.
    """

    status: str
    state: Any
    gates: list[Request]
    rounds: list[Any]
    memory: Any
    error: Any = None
    asked: list[Request] = field(default_factory=list)


def as_played(graph: Graph, decide: Decide) -> Told:
    """Return how the graph goes when `play` plays it."""
    requests: list[Request] = []
    played = play(graph, {}, decisions=_noting(decide, requests))
    rounds = [
        (
            superstep.source,
            superstep.number,
            _partitions(superstep.state),
            superstep.pending_edges,
            superstep.skipped,
            superstep.waiting,
        )
        for superstep in played.supersteps
    ]
    error = played.error and (played.error.type, played.error.message)
    return Told(
        played.status,
        _partitions(played.state),
        played.gates,
        rounds,
        _remembered(played),
        error,
        requests,
    )


def as_run(graph: Graph, decide: Decide, by: User) -> Told:
    """Return how the graph goes with a worker and the pages: `by` signs all that the
    decider answers at one pause as one act.
    """
    MemoryTrace.objects.filter(namespace=NAMESPACE).delete()
    compiled = registry.replace(graph)
    requests: list[Request] = []
    run = runs.advance(runs.start(graph.name, {}).id)
    for _ in range(MOST_PAUSES):
        if run.status != Status.PAUSED or not _sign(run, _noting(decide, requests), by):
            break
        run = runs.advance(run.id)
    error = stored_error(run)
    return Told(
        str(run.status),
        _partitions(timeline.head_state(run.id)),
        [_request(one) for one in _open(run, compiled)],
        list(_rounds(run, compiled)),
        _landed(run),
        error and (error.get("type"), error["message"]),
        requests,
    )


def _noting(decide: Decide, asked: list[Request]) -> Decide:
    def noted(request: Request) -> Mapping[int, Any] | None:
        asked.append(request)
        return decide(request)

    return noted


def _sign(run: Run, decide: Decide, by: User) -> bool:
    """Return whether a request was settled by what the decider answers."""
    compiled = registry.by_fingerprint(run.fingerprint)
    items = [item for one in _open(run, compiled) for item in _items(one, decide)]
    try:
        if items:
            reviews.sign(run.id, items, by=by)
    except AlreadyDecided:
        return False
    run.refresh_from_db()
    return run.status == Status.QUEUED


def _items(request: ApprovalRequest, decide: Decide) -> Iterator[dict[str, Any]]:
    slips = slips_of(request)
    for position, answer in (decide(_request(request)) or {}).items():
        row = slips[position].row
        verdict, value = (answer, None) if isinstance(answer, str) else answer
        edit = {"value": value} if verdict == "edit" else {}
        yield {"write": str(row.write), "hash": row.hash, "verdict": verdict, **edit}


def _open(run: Run, compiled: Compiled) -> list[ApprovalRequest]:
    """The requests that wait, in declared order."""
    rows = ApprovalRequest.objects.filter(run=run, status="open").select_related("run")
    return sorted(
        rows, key=lambda row: (compiled.order[row.node], row.visit, row.index)
    )


def _request(request: ApprovalRequest) -> Request:
    writes = tuple(
        _write(position, slip) for position, slip in enumerate(slips_of(request))
    )
    title = read_value(request, "title")
    facts = read_value(request, "facts")
    return Request(request.node, request.visit, request.index, title, facts, writes)


def _write(position: int, slip: Slip) -> RequestWrite:
    row = slip.row
    verdict = slip.standing.verdict or None
    return RequestWrite(
        position, row.channel, row.label, slip.value, slip.current, verdict
    )


def _rounds(run: Run, compiled: Compiled) -> Iterator[Any]:
    for row in Checkpoint.objects.filter(
        run=run, kept=True, source__in=["superstep", "settlement"]
    ).order_by("seq"):
        frontier = Frontier.from_json(timeline.snapshot_of(row)["frontier"])
        state = _partitions(timeline.state_at(row.id))
        yield (
            str(row.source),
            row.superstep,
            state,
            pending_edges(frontier),
            skipped(compiled, frontier),
            waiting_tasks(compiled, frontier),
        )


def _partitions(state: Any) -> bytes:
    return canonical.encode({name: state[name] for name in ("scratch", "artifacts")})


def _remembered(played: Played) -> list[Any]:
    return sorted(
        [trace.namespace, trace.key, trace.version, trace.content]
        for trace in played.memory.values()
    )


def _landed(run: Run) -> list[Any]:
    keys = set(MemoryLanding.objects.filter(run=run).values_list("key", flat=True))
    rows = MemoryTrace.objects.filter(namespace=NAMESPACE, key__in=keys, deleted=False)
    return sorted(
        [row.namespace, row.key, row.version, read_value(row, "content")]
        for row in rows
    )
