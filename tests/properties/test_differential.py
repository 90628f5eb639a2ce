"""Checkpoints keep what changed, and each loads exactly."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from checkpoints import timeline
from checkpoints.ledger import checkpoint_rows, reader
from checkpoints.models import Checkpoint, Run
from checkpoints.queue import leases
from checkpoints.sealing.sealed_rows import Protection
from orchestrator import runs
from orchestrator.engine import (
    END,
    START,
    Append,
    Artifact,
    First,
    Graph,
    Interval,
    Last,
    Longest,
    Max,
    Merge,
    Min,
    Sum,
    Union,
    play,
    registry,
)
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.values import canonical, ops
from orchestrator.execution import loop

pytestmark = pytest.mark.django_db


class Nothing(BaseModel):
    pass


def kept_twice(old: list[int], new: list[int]) -> list[int]:
    """A reducer of one's own, on a container: what it changes is found by comparing."""
    return [*old, *new] if len(old) < 6 else new


class State(BaseModel):
    n: int = 0
    body: str = ""
    notes: Annotated[list[str], Append] = []
    table: Annotated[dict[str, Any], Merge] = {}
    total: Annotated[float, Sum] = 0.0
    most: Annotated[int | None, Max] = None
    least: Annotated[int | None, Min] = None
    begun: Annotated[str, First] = ""
    newest: Annotated[str, Last] = ""
    seen: Annotated[set[str], Union] = set()
    longest: Annotated[str, Longest] = ""
    own: Annotated[list[int], kept_twice] = []
    letter: Annotated[str, Artifact] = ""


def writes(n: int, *, grow: int) -> dict[str, Any]:
    """Return what the loop's step writes in its n-th visit: something of every kind,
    and nothing to some channels at times.
    """
    every = {
        "n": n,
        "notes": [f"{n}-" + "ö" * grow],
        "total": n / 4,
        "most": -n,
        "least": n,
        "begun": f"b{n}",
    }
    other = {
        "table": {f"k{n % 5}": {"v": [n, None, True]}, 'a "key"': n},
        "newest": f"x{n}",
        "seen": {f"s{n % 7}"},
    }
    more = {
        "longest": "z" * (n % 9),
        "own": [n],
        "letter": f"Dear {n}",
        "body": "b" * (n * 13 % 50),
    }
    return every | (other if n % 2 else more)


def looping(steps: int, *, grow: int = 20, **settings: Any) -> Graph:
    graph = Graph(
        "differential", input=Nothing, state=State, max_supersteps=steps + 1, **settings
    )

    @graph.node("step")
    def step(state: State, ctx: Any) -> dict[str, Any]:
        return writes(state.n + 1, grow=grow)

    graph.edge(START, "step")
    graph.branch(
        "step",
        lambda state: "on" if state.n < steps else "off",
        {"on": "step", "off": END},
    )
    registry.replace(graph)
    return graph


def done(graph: Graph) -> Run:
    run = runs.advance(runs.start(graph.name, {}).id)
    assert run.status == "completed"
    return run


def rows_of(run: Run) -> list[Checkpoint]:
    return list(Checkpoint.objects.filter(run=run, kept=True).order_by("seq"))


SNAPSHOTS: list[str | int] = ["bytes", 1, 3, 10, 1000]


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_any_checkpoint_loads_byte_for_byte_as_the_history_recorded_without_a_store(
    snapshot: str | int,
) -> None:
    graph = looping(40, snapshot=snapshot)
    history = [step.state for step in play(graph, {}).supersteps]
    run = done(graph)
    for row, state in zip(rows_of(run)[1:], history, strict=True):
        loaded_state = timeline.state_at(row.id)
        for partition in ("scratch", "artifacts"):
            assert canonical.encode(loaded_state[partition]) == canonical.encode(
                state[partition]
            ), row.seq


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_a_change_stands_beside_every_snapshot_and_folding_all_changes_gives_the_same_bytes(
    snapshot: str | int,
) -> None:
    rows = rows_of(done(looping(30, snapshot=snapshot)))
    document: dict[str, Any] = {}
    for row in rows:
        change = reader.bytes_of(row, "change")
        assert Protection().digest(change) == row.change_hash
        document = reader.changed_channels(document, canonical.loads(change))
        if row.snapshot:
            assert reader.bytes_of(row, "snapshot") == canonical.encode(document), (
                row.seq
            )
        assert row.state_size == len(canonical.encode(document)), row.seq


def test_a_fixed_count_writes_a_snapshot_every_so_many_rows_and_a_load_reads_no_more() -> (
    None
):
    rows = rows_of(done(looping(35, snapshot=10)))
    assert [row.seq for row in rows if row.snapshot] == [0, 10, 20, 30]
    assert [len(reader.range_of(row.id)) for row in rows] == [
        row.seq % 10 + 1 for row in rows
    ]


def test_by_bytes_a_load_reads_at_most_about_twice_the_state() -> None:
    rows = rows_of(done(looping(200)))
    assert 2 < sum(1 for row in rows if row.snapshot) < len(rows) / 3
    for row in rows[20::15]:
        read = sum(map(len, reader.parts_of(list(reader.range_of(row.id)))))
        assert read <= 2.5 * row.state_size, (row.seq, read, row.state_size)


def test_by_bytes_a_snapshot_is_written_at_the_latest_after_so_many_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = looping(20, grow=0)
    monkeypatch.setattr(checkpoint_rows, "MOST_ROWS", 4)
    monkeypatch.setattr(checkpoint_rows, "_size", lambda payload, sizes: 10**9)
    assert [row.seq for row in rows_of(done(graph)) if row.snapshot][:4] == [
        0,
        4,
        8,
        12,
    ]


class Blob(BaseModel):
    number: int = 0
    body: str = ""


def test_by_bytes_a_state_that_each_step_replaces_is_stored_once_a_row_and_loads_from_one_row() -> (
    None
):
    graph = Graph("replaced", input=Nothing, state=Blob, max_supersteps=50)
    graph.node("step")(
        lambda state, ctx: {
            "number": state.number + 1,
            "body": f"{state.number}" * 3000,
        }
    )
    graph.edge(START, "step")
    graph.branch(
        "step",
        lambda state: "on" if state.number < 9 else "done",
        {"on": "step", "done": END},
    )
    registry.replace(graph)
    rows = rows_of(done(graph))
    assert [row.seq for row in rows if row.snapshot] == [0]
    assert [len(reader.range_of(row.id)) for row in rows[2:]] == [1] * 8
    for row in rows[2:]:
        assert len(reader.bytes_of(row, "change")) < row.state_size + 30
        assert (
            timeline.state_at(row.id)["scratch"]["body"]
            == f"{row.superstep - 1}" * 3000
        )


def test_a_row_that_is_alone_and_is_not_the_whole_state_is_refused() -> None:
    row = rows_of(done(looping(12, snapshot=5)))[8]
    Checkpoint.objects.filter(id=row.id).update(anchor=row.seq)
    with pytest.raises(TamperedRow, match="not the whole of a state"):
        timeline.state_at(row.id)


def test_by_bytes_storage_grows_with_what_changed_and_not_with_the_state() -> None:
    def stored(steps: int) -> int:
        return sum(row.stored_size for row in rows_of(done(looping(steps, grow=200))))

    short = stored(100)
    long = stored(300)
    assert long < 3.4 * short, "three times the changes"


def test_any_checkpoint_loads_in_one_query_and_its_list_reads_no_payload() -> None:
    rows = rows_of(done(looping(50)))
    with CaptureQueriesContext(connection) as queries:
        timeline.state_at(rows[27].id)
    assert len(queries) == 1
    with CaptureQueriesContext(connection) as queries:
        timeline.list_checkpoints(rows[0].run_id)
    assert len(queries) == 1
    assert '"snapshot"' not in queries[0]["sql"]
    assert '"change"' not in queries[0]["sql"]


def test_rows_are_read_as_the_orm_reads_them() -> None:
    rows = rows_of(done(looping(12, snapshot=5)))
    for row, read in zip(rows[5:9], reader.range_of(rows[8].id), strict=True):
        for field in Checkpoint._meta.concrete_fields:
            value = getattr(row, field.attname)
            read_value = getattr(read, field.attname)
            assert read_value == value, field.attname
            assert type(read_value) is type(value), field.attname
    for row, listed in zip(
        rows[::-1], timeline.list_checkpoints(rows[0].run_id), strict=True
    ):
        names = listed.__dict__.keys() & row.__dict__.keys() - {"_state"}
        assert {name: getattr(listed, name) for name in names} == {
            name: getattr(row, name) for name in names
        }
        assert listed.event_hash == row.event_hash, (
            "what a list does not show is read when it is asked for"
        )


@pytest.mark.parametrize("policy", ["none", Interval(7)], ids=str)
def test_a_recovery_point_keeps_its_change_since_the_last_row_or_all_where_that_is_smaller(
    policy: Any, configure: Any
) -> None:
    configure(SLICE_SECONDS=1e-9)
    graph = looping(60, grow=3, checkpoints=policy)
    history = {n: step.state for n, step in enumerate(play(graph, {}).supersteps, 1)}
    claimed = runs.start(graph.name, {})
    for row, document in _recovery_points(claimed):
        assert canonical.encode(document["scratch"]) == canonical.encode(
            history[row.superstep]["scratch"]
        )
        assert len(reader.bytes_of(row, "change")) <= 1.2 * row.state_size + 2000
        kept = rows_of(claimed)
        assert row.parent == kept[-1].id
        assert row.seq == kept[-1].seq + 1
    for row in rows_of(claimed)[1:]:
        scratch = timeline.state_at(row.id)["scratch"]
        assert canonical.encode(scratch) == canonical.encode(
            history[row.superstep]["scratch"]
        )


def _recovery_points(run: Run) -> Iterator[tuple[Checkpoint, dict[str, Any]]]:
    """The head after each of the slices of one superstep that bring the run to its end,
    where it is no kept row.
    """
    while claim := leases.claim_one(run.id):
        loop.run_slice(claim.id, claim.epoch)
        run.refresh_from_db()
        head = Checkpoint.objects.get(id=run.head)
        if not head.kept:
            document = reader.document_at(head.id)
            assert document is not None
            yield head, document
    assert run.status == "completed"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(-2, 2, width=16)
    | st.text("abö", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc", max_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON, JSON)
def test_the_op_between_two_values_makes_the_one_of_the_other(
    before: Any, after: Any
) -> None:
    before = canonical.normalised(before)
    after = canonical.normalised(after)
    op = ops.between(before, after)
    assert (op is None) == (canonical.encode(before) == canonical.encode(after))
    if op is not None:
        again = json.loads(canonical.encode(op))
        assert canonical.encode(ops.apply(before, again)) == canonical.encode(after)
        assert canonical.encode(
            ops.apply_to_own(canonical.normalised(before), again)
        ) == canonical.encode(after)
