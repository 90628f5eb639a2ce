"""Many runs without running them: clones of one run, sealed as if each had been run; or
bare rows, for counting.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db import connection

from checkpoints import event_log
from checkpoints.core.ids import uuid7
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.ledger.checkpoint_rows import content_hash
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from tests.support.rows import sealed

BATCH = 200


def cloned(template: Run, count: int) -> None:
    """Make this many copies of an ended run, each with its own ids, keys, log and
    seals.
    """
    rows = list(Checkpoint.objects.filter(run=template.id).order_by("seq"))
    lines = [
        (line, read_value(line, "payload"))
        for line in RunEvent.objects.filter(run=template.id).order_by("seq")
    ]
    for first in range(0, count, BATCH):
        runs: list[Run] = []
        points: list[Checkpoint] = []
        events: list[RunEvent] = []
        for _ in range(first, min(count, first + BATCH)):
            run, own, log = _clone(template, rows, lines)
            runs.append(run)
            points += own
            events += log
        Run.objects.bulk_create(runs)
        Checkpoint.objects.bulk_create(points)
        RunEvent.objects.bulk_create(events)


def _clone(
    template: Run, rows: list[Checkpoint], lines: list[tuple[RunEvent, Any]]
) -> tuple[Run, list[Checkpoint], list[RunEvent]]:
    protection = protection_of(template)
    run = Run.objects.model(**_columns(template))
    run.id = uuid7()
    run.key = str(run.id)
    ids = {str(row.id): uuid7() for row in rows}
    events = list(_events(run.id, lines, ids))
    end = LogEnd(0, "")
    points = []
    before = ""
    for row in rows:
        point = Checkpoint(**_columns(row))
        point.id = ids[str(row.id)]
        point.run_id = run.id
        point.parent = ids[str(row.parent)] if row.parent else None
        line = events[row.event_seq - 1]
        point.event_hash = line.hash
        point.content_hash = before = content_hash(point, before, protection)
        sealed_rows.seal(point, protection)
        points.append(point)
    end = LogEnd(events[-1].seq, events[-1].hash)
    run.head = points[-1].id
    run.head_hash = before
    run.event_seq = end.seq
    run.event_hash = end.hash
    sealed(run)
    return run, points, events


def _columns(row: Any) -> dict[str, Any]:
    return {
        field.attname: getattr(row, field.attname)
        for field in row._meta.concrete_fields
    }


def _events(
    run: UUID, lines: list[tuple[RunEvent, Any]], ids: dict[str, UUID]
) -> Iterator[RunEvent]:
    end = LogEnd(0, "")
    for line, facts in lines:
        payload = (
            {**facts, "checkpoint": str(ids[facts["checkpoint"]])}
            if "checkpoint" in facts
            else facts
        )
        new = NewEvent(
            line.type, payload, node=line.node, task=line.task, actor=line.actor
        )
        [row], end = event_log.chain(
            run, end, [new], at=line.at, protection=sealed_rows.PLAIN
        )
        yield row


def bare(template: Run, count: int, *, graph: str) -> None:
    """Make this many rows of runs with their checkpoints, copied inside PostgreSQL: for
    counting only.
    """
    run = Run._meta.db_table
    point = Checkpoint._meta.db_table
    new = {
        "id": "gen_random_uuid()",
        "key": "'bare-' || n",
        "graph": f"'{graph}'",
        "head": "gen_random_uuid()",
    }
    _copy(
        run,
        new,
        f"{run} r, generate_series(1, {count}) n WHERE r.id = %s",
        [template.id],
    )
    new = {
        "id": f"CASE WHEN c.seq = {template.head_seq} THEN r.head ELSE gen_random_uuid() END",
        "run_id": "r.id",
        "parent": "NULL",
        "graph": f"'{graph}'",
    }
    _copy(
        point,
        new,
        f"{point} c, {run} r WHERE c.run_id = %s AND r.graph = '{graph}' AND r.id <> c.run_id",
        [template.id],
        alias="c",
    )


def _copy(
    table: str,
    new: dict[str, str],
    rest: str,
    parameters: list[Any],
    *,
    alias: str = "r",
) -> None:
    model = next(one for one in (Run, Checkpoint) if one._meta.db_table == table)
    names = [field.column for field in model._meta.concrete_fields]
    columns = ", ".join(f'"{name}"' for name in names)
    values = ", ".join(new.get(name, f'{alias}."{name}"') for name in names)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({columns}) SELECT {values} FROM {rest}", parameters
        )
        cursor.execute(f"ANALYZE {table}")
