"""Effects that happened already and would happen once more: related runs, or lines that
were left, had them, and the path that leads to the run's own line did not.

Made for lists: two queries for any number of runs, none if no run departed, and no
payload is read. The family is that of the plan of a fork or a rewind
(`checkpoints.timeline.past_effects`): the runs that a run comes from, and all forks.
"""

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from django.db import connection
from django.db.models import Case, IntegerField, Max, Value, When

from checkpoints.models import Run, RunLine, TaskResult
from checkpoints.models.task_result import Outcome
from orchestrator.engine.frozen import frozen

OUTSIDE = ("write", "external")


@frozen
class Repeats:
    """Nodes whose effect happened already: those that run `again` once people have
    signed, and those before which the run is `stopped` until a person allows them.
    """

    again: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()


NO_REPEATS = Repeats()


def repeated_effects(runs: Iterable[Run]) -> dict[UUID, Repeats]:
    """Return what would happen again in these runs, by run; runs without such an effect
    are left out.
    """
    line_of_run = {
        run.id: run.line for run in runs if run.line > 1 or run.origin_checkpoint
    }
    if not line_of_run:
        return {}
    family = _family(line_of_run)
    current = [row for row in family if line_of_run.get(row.run_id) == row.number]
    return _repeats(current, family)


def repeats_of(line: RunLine | None) -> Repeats:
    """Return what `repeated_effects` would return for a line that was read already. Two
    queries, none without a line.
    """
    if line is None:
        return NO_REPEATS
    return _repeats([line], _family([line.run_id])).get(line.run_id, NO_REPEATS)


def _family(runs: Collection[UUID]) -> list[RunLine]:
    """Return the lines of these runs and of all that are related to them by forks. One
    query.
    """
    table = connection.ops.quote_name(RunLine._meta.db_table)
    # A run is related to those that it departed from, and to those that departed from
    # it.
    query = f"""
        WITH RECURSIVE kin(run) AS (
            SELECT run_id FROM {table} WHERE run_id IN ({", ".join(["%s"] * len(runs))})
            UNION
            SELECT CASE WHEN line.run_id = kin.run THEN line.departure_run
                        ELSE line.run_id END
            FROM kin JOIN {table} line
                ON line.run_id = kin.run OR line.departure_run = kin.run
        )
        SELECT id, run_id, number, departure_run, parent_line, departure_seq, stops
        FROM {table} WHERE run_id IN (SELECT run FROM kin)
    """  # noqa: S608 - a table's name, and placeholders
    # A raw query does not adapt UUIDs to the database.
    field = RunLine._meta.get_field("departure_run")
    params = [field.get_db_prep_value(run, connection) for run in runs]
    return list(RunLine.objects.raw(query, params))


def _repeats(
    rows: Collection[RunLine], family: Collection[RunLine]
) -> dict[UUID, Repeats]:
    """Return what would happen again on these lines, by run."""
    if not rows:
        return {}
    lines = {(line.run_id, line.number): line for line in family}
    paths = {row.run_id: _path_to(row, lines) for row in rows}
    clans = _clans(family)
    runs: set[UUID] = set()
    for row in rows:
        runs |= clans[row.run_id]
    acts_by_run = _acts_of(runs, paths.values())

    repeats: dict[UUID, Repeats] = {}
    for row in rows:
        acts: list[RepeatedEffect] = []
        for run in clans[row.run_id]:
            acts += acts_by_run.get(run, ())
        nodes = _nodes_to_repeat(acts, paths[row.run_id])
        if nodes:
            repeats[row.run_id] = _split_by_stops(nodes, row.stops)
    return repeats


def _split_by_stops(nodes: Iterable[str], stops: Collection[str]) -> Repeats:
    return Repeats(
        again=tuple(node for node in nodes if node not in stops),
        stopped=tuple(node for node in nodes if node in stops),
    )


Place = tuple[UUID, int]
"""A run, and a line of it."""
Path = dict[Place, int | None]
"""The lines that lead to a run's own: the last seq that counts of each, None for all of
it.
"""


@frozen
class RepeatedEffect:
    """A node that acted on a line, and the last of its visits that did, up to the
    checkpoint `upto` at which a path departs; None: after all of these.
    """

    place: Place
    node: str
    visit: int
    upto: int | None


def _path_to(row: RunLine, lines: Mapping[Place, RunLine]) -> Path:
    path: Path = {(row.run_id, row.number): None}
    line: RunLine | None = row
    while line is not None:
        place = (line.departure_run, line.parent_line)
        # Rows that were tampered with may lead in a circle.
        if place in path:
            break
        path[place] = line.departure_seq
        line = lines.get(place)
    return path


def _clans(family: Iterable[RunLine]) -> dict[UUID, set[UUID]]:
    """Return the runs that are related to each other, by run."""
    clans: dict[UUID, set[UUID]] = {}
    for row in family:
        clan = clans.setdefault(row.run_id, {row.run_id})
        other = clans.setdefault(row.departure_run, {row.departure_run})
        if clan is not other:
            clan |= other
            clans.update(dict.fromkeys(other, clan))
    return clans


def _nodes_to_repeat(acts: Iterable[RepeatedEffect], path: Path) -> list[str]:
    """Return the nodes that acted more often away from this path than on it."""
    here: dict[str, int] = {}
    elsewhere: dict[str, int] = {}
    for act in acts:
        last_visits = here if _is_on(path, act) else elsewhere
        last_visits[act.node] = max(act.visit, last_visits.get(act.node, 0))
    return sorted(
        node for node, visit in elsewhere.items() if visit > here.get(node, 0)
    )


def _is_on(path: Path, act: RepeatedEffect) -> bool:
    """Return whether a path leads past an act."""
    if act.place not in path:
        return False
    last = path[act.place]
    if last is None:
        return True
    return act.upto is not None and act.upto <= last


def _acts_of(
    runs: Collection[UUID], paths: Iterable[Path]
) -> dict[UUID, list[RepeatedEffect]]:
    """Return the acts in these runs, by run. One query, with as many rows as there are
    nodes and departures, not acts.
    """
    done = TaskResult.objects.filter(
        run__in=runs, outcome=Outcome.DONE, effect__in=OUTSIDE
    ).order_by()
    # The database assigns an act to the first departure after it.
    first_departure = Case(
        *_departure_cases(paths), default=Value(None), output_field=IntegerField()
    )
    rows = (
        done.annotate(upto=first_departure)
        .values_list("run", "line", "node", "upto")
        .annotate(last=Max("visit"))
    )
    acts: dict[UUID, list[RepeatedEffect]] = {}
    for run, line, node, upto, visit in rows:
        act = RepeatedEffect(place=(run, line), node=node, visit=visit, upto=upto)
        acts.setdefault(run, []).append(act)
    return acts


def _departure_cases(paths: Iterable[Path]) -> list[When]:
    departures: set[tuple[int, UUID, int]] = set()
    for path in paths:
        for (run, line), last in path.items():
            if last is not None:
                departures.add((last, run, line))
    # In ascending order, because the first case that holds wins.
    return [
        When(run=run, line=line, seq__lte=last, then=Value(last))
        for last, run, line in sorted(departures)
    ]
