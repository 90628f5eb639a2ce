"""Supersteps on the database: what a commit leaves behind, under each policy."""

from pathlib import Path

import pytest

from checkpoints import event_log
from checkpoints.core import codec
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.sealing.sealed_rows import Protection
from orchestrator import runs
from tests.support import cast
from tests.support.run_actions import log, sources, start, state

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_run_goes_through_its_graph_and_completes(
    tmp_path: Path, people: cast.People
) -> None:
    run = start("effects", tmp_path, by=people.starter)
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == ["order A-1", "paid", "sent", "closed"]
    assert run.superstep == 4
    assert run.ended_at is not None
    assert run.lease_until is None


def test_every_superstep_leaves_a_row_whose_seq_counts_from_zero_without_gaps(
    tmp_path: Path,
) -> None:
    run = start("effects", tmp_path)
    rows = list(Checkpoint.objects.filter(run=run).order_by("seq"))
    assert [row.seq for row in rows] == [0, 1, 2, 3, 4]
    assert [row.superstep for row in rows] == [0, 1, 2, 3, 4]
    assert [row.parent for row in rows] == [None, *(row.id for row in rows[:-1])]
    assert sources(run) == ["input"] + ["superstep"] * 4


def test_the_log_is_numbered_without_gaps_and_each_line_is_chained_to_the_one_before(
    tmp_path: Path,
) -> None:
    run = start("effects", tmp_path)
    events = list(RunEvent.objects.filter(run=run).order_by("seq"))
    assert [line.seq for line in events] == list(range(1, len(events) + 1))
    previous = ""
    for line in events:
        assert line.hash == event_log.line_hash(
            previous, line, codec.unpack(bytes(line.payload)), Protection()
        )
        previous = line.hash
    assert run.event_seq == events[-1].seq
    assert run.event_hash == previous


def test_an_intent_is_written_before_an_effect_and_its_line_comes_before_the_checkpoint(
    tmp_path: Path,
) -> None:
    run = start("effects", tmp_path)
    assert log(run) == [
        "run_started",
        "checkpoint_saved",
        "effects_started",
        "checkpoint_saved",
        "effects_started",
        "checkpoint_saved",
        "checkpoint_saved",
        "run_completed",
    ]


@pytest.mark.parametrize(
    ("graph", "supersteps"),
    [
        ("loop_every", [0, 1, 2, 3, 4, 5, 6]),
        ("loop_none", [0, 6]),
        ("loop_third", [0, 3, 6]),
    ],
)
def test_a_policy_decides_which_rows_stay_and_the_last_always_does(
    graph: str, supersteps: list[int], tmp_path: Path
) -> None:
    run = start(graph, tmp_path)
    rows = list(Checkpoint.objects.filter(run=run).order_by("seq"))
    assert [row.superstep for row in rows] == supersteps
    assert [row.seq for row in rows] == list(range(len(supersteps)))
    assert [row.parent for row in rows[1:]] == [row.id for row in rows[:-1]]
    assert state(run)["total"] == 6


def test_the_recovery_point_is_the_one_row_that_is_not_kept_and_the_run_goes_on_from_it(
    tmp_path: Path,
) -> None:
    run = runs.start("loop_none", {"folder": str(tmp_path)})
    _superstep_by_superstep(run, 3)
    rows = list(Checkpoint.objects.filter(run=run).order_by("seq"))
    assert [(row.superstep, row.kept) for row in rows] == [(0, True), (3, False)]
    assert runs.advance(run.id).status == Status.COMPLETED
    assert state(run)["total"] == 6


def _superstep_by_superstep(run: Run, number: int) -> None:
    """Slices of one superstep each: a worker that is asked to drain leaves after the
    superstep in hand.
    """
    from checkpoints.queue import leases
    from orchestrator.execution import loop

    for _ in range(number):
        claim = leases.claim_one(run.id)
        assert claim is not None
        loop.run_slice(claim.id, claim.epoch, draining=_after_the_first_look())


def _after_the_first_look() -> "Looked":
    return Looked()


class Looked:
    """Says no until the executor has begun, then yes."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> bool:
        self.times += 1
        return self.times > 1


def test_starting_twice_with_one_key_gives_the_same_run(tmp_path: Path) -> None:
    first = runs.start("effects", {"folder": str(tmp_path)}, key="order 1")
    again = runs.start("effects", {"folder": str(tmp_path)}, key="order 1")
    assert again.id == first.id
    assert Run.objects.count() == 1
