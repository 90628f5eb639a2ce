"""What the lines of a log speak of is there, or was removed on purpose: each other row that is gone is named by its id,
as long as somebody can count.
"""

import pytest

from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support.large_states import large
from tests.support.removed_history import checkpoint_at, delete_rows, remove_history
from tests.support.small_graphs import started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    """A run of checkpoints 0 to 8, in lines 1 to 9 of its log."""
    return runs.advance(started(large("logged", "abcdefgh", snapshot=1000)).id)


@pytest.mark.parametrize("seq", [1, 5, 7])
def test_a_checkpoint_beside_a_removed_stretch_is_named_by_its_id(seq: int, run: Run) -> None:
    remove_history(run, checkpoints=(2, 4))
    row = checkpoint_at(run, seq)
    delete_rows(run, checkpoints=(seq, seq))
    assert verify_run(run.id)[0].reason == f"checkpoints_checkpoint {run.id} {row.id} of superstep {seq} is gone"


def test_a_checkpoint_that_is_named_behind_removed_lines_is_counted_from_the_next_one_that_is_there(run: Run) -> None:
    remove_history(run, checkpoints=(2, 4), events=(2, 5))
    row = checkpoint_at(run, 7)
    delete_rows(run, checkpoints=(7, 7))
    assert verify_run(run.id)[0].reason == f"checkpoints_checkpoint {run.id} {row.id} of superstep 7 is gone"


def test_a_checkpoint_that_nobody_can_count_is_named_by_its_number(run: Run) -> None:
    remove_history(run, checkpoints=(4, 4), events=(2, 5))
    delete_rows(run, checkpoints=(5, 5))
    assert f"checkpoints_checkpoint {run.id} at 5 is gone" in {fault.reason for fault in verify_run(run.id)}


def test_a_log_without_removed_checkpoints_names_each_that_is_gone(run: Run) -> None:
    remove_history(run, events=(2, 5))
    row = checkpoint_at(run, 6)
    delete_rows(run, checkpoints=(6, 6))
    assert verify_run(run.id)[0].reason == f"checkpoints_checkpoint {run.id} {row.id} of superstep 6 is gone"
