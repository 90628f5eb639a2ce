"""Effects that happened already and would happen once more: what the line that a run departed from did behind the
point of departure, and the run's own line has not done yet.

For lists: two queries for any number of runs, none where no run departed, and no payload is read. The plan of a fork
or a rewind looks at the whole family of a run (`checkpoints.timeline.past_effects`); this looks at the nearest line.
"""

from collections.abc import Iterable
from uuid import UUID

from django.db.models import Max, Q, QuerySet

from checkpoints.models import Run, RunLine, TaskResult
from checkpoints.models.task_result import Outcome
from orchestrator.engine.frozen import frozen

OUTSIDE = ("write", "external")


@frozen
class Repeats:
    """Nodes whose effect happened already: those that happen `again` once people have signed, and those before which
    the run is `stopped`, until somebody says yes to them.
    """

    again: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()


NO_REPEATS = Repeats()


def repeated_effects(runs: Iterable[Run]) -> dict[UUID, Repeats]:
    """Return what would happen again in these runs, by run; runs without such an effect are left out."""
    departed = {run.id: run.line for run in runs if run.line > 1 or run.origin_checkpoint}
    if not departed:
        return {}
    columns = ("run_id", "number", "departure_run", "parent_line", "departure_seq", "stops")
    newest = RunLine.objects.filter(_either(Q(run=run, number=line) for run, line in departed.items()))
    return repeats_of(newest.only(*columns))


def repeats_of(lines: "Iterable[RunLine] | QuerySet[RunLine]") -> dict[UUID, Repeats]:
    """As `repeated_effects`, of lines that are read already. One query, none without lines."""
    rows = list(lines)
    if not rows:
        return {}
    acts = _acts_on(rows)
    repeats: dict[UUID, Repeats] = {}
    for row in rows:
        elsewhere = _last_visits(acts.get((row.departure_run, row.parent_line), ()), behind=row.departure_seq)
        here = _last_visits(acts.get((row.run_id, row.number), ()))
        nodes = sorted(node for node, visit in elsewhere.items() if visit > here.get(node, 0))
        if nodes:
            again = tuple(node for node in nodes if node not in row.stops)
            repeats[row.run_id] = Repeats(again, tuple(node for node in nodes if node in row.stops))
    return repeats


Act = tuple[str, int | None, int]
"""A node that acted, the checkpoint that lists it (None: none does yet), and the last of its visits that did."""


def _last_visits(acts: Iterable[Act], *, behind: int = -1) -> dict[str, int]:
    """Return the last visit of each node that acted behind this checkpoint."""
    visits: dict[str, int] = {}
    for node, seq, visit in acts:
        if seq is None or seq > behind:
            visits[node] = max(visit, visits.get(node, 0))
    return visits


def _acts_on(rows: Iterable[RunLine]) -> dict[tuple[UUID, int], list[Act]]:
    """Return who acted on these lines, and on those that they departed from, there behind the point of departure."""
    places: list[Q] = []
    for row in rows:
        behind = Q(seq__gt=row.departure_seq) | Q(seq__isnull=True)
        places.append(Q(run=row.departure_run, line=row.parent_line) & behind)
        places.append(Q(run=row.run_id, line=row.number))
    done = TaskResult.objects.filter(_either(places), outcome=Outcome.DONE, effect__in=OUTSIDE).order_by()
    acts: dict[tuple[UUID, int], list[Act]] = {}
    for run, line, *act in done.values_list("run", "line", "node", "seq").annotate(last=Max("visit")):
        acts.setdefault((run, line), []).append((act[0], act[1], act[2]))
    return acts


def _either(conditions: Iterable[Q]) -> Q:
    either = Q()
    for condition in conditions:
        either |= condition
    return either
