"""What the lines of a log speak of is there, or was removed on purpose: each other row
that is gone is named by its id, as long as somebody can count.
"""

import pytest

from checkpoints.models import Checkpoint, Run
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import cast
from tests.support.large_states import large
from tests.support.paid_claims import paid
from tests.support.removed_history import checkpoint_at, delete_rows, remove_history
from tests.support.small_graphs import started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    """A run of checkpoints 0 to 8, in lines 1 to 9 of its log."""
    return runs.advance(started(large("logged", "abcdefgh", snapshot=1000)).id)


@pytest.mark.parametrize("seq", [1, 5, 7])
def test_a_checkpoint_beside_a_removed_stretch_is_named_by_its_id(
    seq: int, run: Run
) -> None:
    remove_history(run, checkpoints=(2, 4))
    row = checkpoint_at(run, seq)
    delete_rows(run, checkpoints=(seq, seq))
    assert (
        verify_run(run.id)[0].reason
        == f"checkpoints_checkpoint {run.id} {row.id} of superstep {seq} is gone"
    )


def test_a_checkpoint_that_is_named_behind_removed_lines_is_counted_from_the_next_one_that_is_there(
    run: Run,
) -> None:
    remove_history(run, checkpoints=(2, 4), events=(2, 5))
    row = checkpoint_at(run, 7)
    delete_rows(run, checkpoints=(7, 7))
    assert (
        verify_run(run.id)[0].reason
        == f"checkpoints_checkpoint {run.id} {row.id} of superstep 7 is gone"
    )


def test_a_checkpoint_that_nobody_can_count_is_named_by_its_number(run: Run) -> None:
    remove_history(run, checkpoints=(4, 4), events=(2, 5))
    delete_rows(run, checkpoints=(5, 5))
    assert f"checkpoints_checkpoint {run.id} at 5 is gone" in {
        fault.reason for fault in verify_run(run.id)
    }


def test_the_checkpoint_with_which_a_line_begins_is_named_by_its_id(
    people: cast.People,
) -> None:
    other_run = paid("begun_twice", people)
    runs.rewind(other_run.id, f"{other_run.key}:at-1", by=people.starter)
    runs.advance(other_run.id)
    row = Checkpoint.objects.filter(run=other_run, line=2).order_by("seq")[0]
    delete_rows(other_run, checkpoints=(row.seq, row.seq))
    reason = f"checkpoints_checkpoint {other_run.id} {row.id} of superstep {row.superstep} is gone"
    assert verify_run(other_run.id)[0].reason == reason


def test_a_log_without_removed_checkpoints_names_each_that_is_gone(run: Run) -> None:
    remove_history(run, events=(2, 5))
    row = checkpoint_at(run, 6)
    delete_rows(run, checkpoints=(6, 6))
    assert (
        verify_run(run.id)[0].reason
        == f"checkpoints_checkpoint {run.id} {row.id} of superstep 6 is gone"
    )
