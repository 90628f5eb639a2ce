"""Rows of a state that is far larger than its changes: what stands in them when points
before them were not kept, or could not be saved.
"""

import errno
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from checkpoints import timeline
from checkpoints.event_log import LogEnd
from checkpoints.ledger import checkpoint_rows, reader
from checkpoints.ledger.checkpoint_rows import NewCheckpoint, Payload, RunHeader
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import Source
from checkpoints.payloads import FilePayloads
from checkpoints.queue import leases
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import Interval
from orchestrator.engine.values import canonical
from orchestrator.execution import loop
from tests.support import run_actions
from tests.support.chain import join_in_a_row
from tests.support.large_states import LARGE, large, last
from tests.support.small_graphs import graph, slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)


def document(row: Checkpoint) -> dict[str, Any]:
    stored = reader.document_at(row.id)
    assert stored is not None
    return stored


def test_what_two_missing_points_in_a_row_changed_is_in_the_next_row_of_a_large_state(
    cellar: Any,
) -> None:
    flow = large(
        "missing", "abcde", full="bc", payloads="cellar", on_save_error="continue"
    )
    run = runs.advance(started(flow).id)
    assert run.status == "completed"
    assert run.durable is False
    rows = list(Checkpoint.objects.filter(run=run).order_by("seq"))
    assert [row.superstep for row in rows] == [0, 1, 4, 5]
    assert [len(document(row)["scratch"]["notes"]) for row in rows] == [0, 0, 3, 4]
    assert run_actions.state(run)["notes"] == ["b", "c", "d", "e"]
    paths = [
        change.after
        for change in timeline.changes(rows[2])
        if change.partition == "scratch"
    ]
    assert paths == ["b", "c", "d"]


def test_the_tape_of_a_run_names_supersteps_that_were_not_saved_too(
    cellar: Any,
) -> None:
    runs_of = [
        large("tape", "abcde", full=full, payloads="cellar", on_save_error="continue")
        for full in ("", "bc")
    ]
    whole, missing = (runs.advance(started(made).id) for made in runs_of)
    assert whole.durable is True
    assert missing.durable is False
    assert whole.tape
    assert missing.tape == whole.tape


def test_a_row_behind_missing_points_tells_the_true_size_of_its_state(
    cellar: Any,
) -> None:
    flow = large(
        "sizes", "abcde", full="bc", payloads="cellar", on_save_error="continue"
    )
    run = runs.advance(started(flow).id)
    for row in Checkpoint.objects.filter(run=run):
        assert row.state_size == len(canonical.encode(document(row)))


def test_a_recovery_point_of_a_large_state_keeps_what_changed_and_not_the_state(
    configure: Any,
) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = started(large("recovers", "abcdefg", checkpoints=Interval(3)))
    lengths = {}
    while claim := leases.claim_one(run.id):
        loop.run_slice(claim.id, claim.epoch)
        head = last(run)
        assert document(head)["scratch"]["letter"] == LARGE
        if not head.kept:
            lengths[head.superstep] = len(reader.bytes_of(head, "change"))
    # The letter came with the first superstep; the third has a row that stays.
    assert sorted(lengths) == [1, 2, 4, 5]
    assert lengths[2] > len(LARGE)
    assert lengths[4] < lengths[5] < 2_000


def test_a_worker_that_takes_over_a_recovery_point_keeps_what_it_had_not_kept(
    configure: Any,
) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = started(large("taken", "abcd", checkpoints="none"))
    while run.status != "completed":
        run = slice_of(run)
    assert run_actions.state(run)["notes"] == ["b", "c", "d"]
    assert [
        row.superstep for row in Checkpoint.objects.filter(run=run).order_by("seq")
    ] == [0, 4]
    assert verify_run(run.id) == []


def test_a_run_that_is_taken_over_at_each_point_has_its_snapshots_where_it_has_them_in_one_go(
    configure: Any,
) -> None:
    flow = graph("anchors", checkpoints=Interval(2))
    nodes = "abcdefghijkl"
    for node in nodes:
        content = {"notes": ["n" * 4_900]} if node == "a" else {"letter": node * 1_000}
        flow.node(node)(lambda state, ctx, content=content: content)
    join_in_a_row(flow, *nodes)
    whole = runs.advance(started(flow).id)
    configure(SLICE_SECONDS=1e-9)
    pieces = started(flow)
    while pieces.status != "completed":
        pieces = slice_of(pieces)
    # Of a row's change some bytes are the time it took; these sizes are far from where
    # that would make a difference.
    assert [anchors(run) for run in (whole, pieces)] == [[0, 1, 1, 1, 4, 4, 4]] * 2
    assert verify_run(pieces.id) == []


def anchors(run: Run) -> list[int]:
    return list(
        Checkpoint.objects.filter(run=run)
        .order_by("seq")
        .values_list("anchor", flat=True)
    )


def test_a_step_that_appends_nothing_tells_the_true_size_of_its_state() -> None:
    flow = graph("appends_nothing")
    for node, notes in (("a", ["one"]), ("b", []), ("c", ["two"])):
        flow.node(node)(lambda state, ctx, notes=notes: {"notes": notes})
    join_in_a_row(flow, *"abc")
    run = runs.advance(started(flow).id)
    assert run_actions.state(run)["notes"] == ["one", "two"]
    for row in Checkpoint.objects.filter(run=run):
        assert row.state_size == len(canonical.encode(document(row)))


class Clings(FilePayloads):
    """Files that cannot be deleted."""

    def delete(self, name: str, kept: bytes) -> None:
        raise OSError(errno.EROFS, "Read-only file system")


def test_a_run_goes_on_where_the_bytes_of_a_replaced_recovery_point_cannot_be_deleted(
    configure: Any, tmp_path: Path
) -> None:
    entry = {"backend": f"{__name__}.Clings", "options": {"location": str(tmp_path)}}
    configure(PAYLOADS={"clings": entry}, SLICE_SECONDS=1e-9)
    run = started(large("clings", "abcd", checkpoints="none", payloads="clings"))
    while run.status != "completed":
        run = slice_of(run)
    assert run.durable
    assert run_actions.state(run)["notes"] == ["b", "c", "d"]


def test_a_row_of_a_failed_superstep_says_what_is_open_and_the_row_after_it_says_nothing_more() -> (
    None
):
    flow = graph("opens")
    mended = []

    @flow.node()
    def a(state: Any, ctx: Any) -> None:
        pass

    @flow.node()
    def b(state: Any, ctx: Any) -> None:
        if not mended:
            raise ValueError("broken")

    join_in_a_row(flow, "a", "b")
    run = runs.advance(started(flow).id)
    assert run.status == "failed"
    assert document(last(run))["open"]["superstep"] == 2
    mended.append(True)
    runs.resume(run.id)
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert document(last(run))["open"] == {}


def test_a_row_tells_how_many_bytes_are_kept_of_its_change_and_its_snapshot() -> None:
    run = runs.advance(started(large("stored", "abc", snapshot=2)).id)
    rows = list(Checkpoint.objects.filter(run=run))
    assert {bool(row.snapshot) for row in rows} == {True, False}
    for row in rows:
        assert row.stored_size == len(bytes(row.change)) + len(bytes(row.snapshot))


def test_an_unsaved_step_stores_no_row() -> None:
    first = NewCheckpoint(
        Source.INPUT, Payload({"scratch": {}, "artifacts": {}}, {}, {}), 0
    )
    change = checkpoint_rows.full_delta(first, PLAIN)
    at = timezone.now()
    header = RunHeader(uuid4(), "g", "1", "f", 1, PLAIN)
    _, head = checkpoint_rows.first_row(
        header, uuid4(), first, change, end=LogEnd(1, "a"), at=at
    )
    assert head.is_stored
    assert not checkpoint_rows.head_without_row(head, first).is_stored
