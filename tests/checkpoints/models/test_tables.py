"""What the tables that a superstep writes to must not cost."""

import pytest
from django.db import connection
from django.db.models import JSONField, Model

from checkpoints.models import Checkpoint, Job, Run, RunEvent, TaskResult
from orchestrator.engine import END, START
from tests.support.small_graphs import advanced, graph

CHANGING: dict[type[Model], set[str]] = {
    Run: {
        *("status", "line", "superstep", "head", "head_seq", "head_hash"),
        *("event_seq", "event_hash", "decisions", "durable", "epoch"),
        *("lease_until", "leased_by", "wakes", "due_at", "claims_since_progress"),
        *("cancel_at", "at_node", "pending", "tape", "error", "error_code"),
        *("progress", "started_at", "ended_at", "seal", "seal_key"),
    },
    TaskResult: {
        *("outcome", "output", "error", "result_at", "took_ms", "thread_ended_at"),
        *("seq", "settled_by", "settled_reason", "seal", "seal_key"),
    },
    Job: {
        *("status", "due_at", "epoch", "lease_until", "leased_by", "attempts"),
        *("progress", "place_seal", "error_code", "error", "ended_at"),
    },
}
"""The columns that updates write while a run or a job is worked on."""


@pytest.mark.parametrize("model", [Run, Checkpoint, RunEvent, TaskResult])
def test_no_number_of_a_superstep_is_checked_by_the_database(
    model: type[Model],
) -> None:
    fields = [
        field
        for field in model._meta.concrete_fields
        if not isinstance(field, JSONField)
    ]
    assert [field.name for field in fields if field.db_check(connection)] == []


@pytest.mark.django_db
def test_sqlite_keeps_no_count_of_the_lines_that_were_written() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("AUTOINCREMENT is a word of SQLite")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sql FROM sqlite_master WHERE name = %s", [RunEvent._meta.db_table]
        )
        assert "AUTOINCREMENT" not in cursor.fetchone()[0]


def whole_indices(model: type[Model]) -> dict[str, set[str]]:
    """The fields of each index of a table that holds all of its rows, by its name."""
    indices: dict[str, set[str]] = {}
    for index in (*model._meta.indexes, *model._meta.constraints):
        if getattr(index, "condition", None) is None:
            fields = getattr(index, "fields", ())
            indices[index.name] = {name.lstrip("-") for name in fields}
    for field in model._meta.concrete_fields:
        if field.db_index or field.unique:
            indices[field.name] = {field.name}
    return indices


def test_of_columns_that_change_all_rows_are_indexed_only_for_three_lists() -> None:
    # An update writes to each index that its row is in. Runs are listed by their status,
    # of all graphs and of one, and jobs by their end, those that have not ended first.
    whole = [
        name
        for model, changing in CHANGING.items()
        for name, fields in whole_indices(model).items()
        if fields & changing
    ]
    assert whole == ["run_by_status", "run_by_graph_and_status", "job_ended"]


@pytest.mark.django_db(transaction=True)
def test_supersteps_write_to_no_index_of_the_runs() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite writes only to indices over what an update names")
    flow = graph("many-supersteps")
    flow.node("tick")(lambda state, ctx: {"total": state.total + 1})
    flow.edge(START, "tick")
    flow.branch("tick", lambda state: state.total < 40, {True: "tick", False: END})
    before = updates_of(Run)
    advanced(flow)
    after = updates_of(Run)
    assert after[0] - before[0] >= 40
    # But for claims and the end, where the status changes, and now and then a full page.
    assert after[1] - before[1] <= 10


def updates_of(model: type[Model]) -> tuple[int, int]:
    """Return how many rows of a table were updated so far, and how many of those
    updates wrote to its indices.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT n_tup_upd, n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables "
            "WHERE relname = %s",
            [model._meta.db_table],
        )
        updated, written = cursor.fetchone()
    return updated, written
