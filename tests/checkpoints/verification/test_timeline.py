"""What a run and its checkpoints say of themselves beside their seals: whether it is
durable, how much is stored.
"""

from pathlib import Path

import pytest

from checkpoints.models import Checkpoint, Run
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import payload_runs
from tests.support.forging import tamper
from tests.support.large_states import large
from tests.support.small_graphs import started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def whole(cellar: Path) -> Run:
    return runs.advance(started(payload_runs.chain("whole", "a", "b")).id)


def test_a_run_that_is_said_to_be_not_durable_is_named(whole: Run) -> None:
    assert verify_run(whole.id) == []
    tamper(whole, durable=False)
    (fault,) = verify_run(whole.id)
    assert fault.reason.endswith(
        "is called not durable, but its log says of each superstep that it was saved"
    )


def test_a_run_that_is_made_to_look_durable_is_named(cellar: Path) -> None:
    run = runs.advance(
        started(
            large(
                "missing", "abcd", full="b", payloads="cellar", on_save_error="continue"
            )
        ).id
    )
    assert run.durable is False
    assert verify_run(run.id) == []
    tamper(run, durable=True)
    (fault,) = verify_run(run.id)
    assert fault.reason.endswith(
        "is called durable, but its log says that a superstep was not saved"
    )


@pytest.mark.parametrize("backend", ["database", "cellar"])
@pytest.mark.parametrize("off_by", [-1, 1])
def test_another_stored_size_of_a_checkpoint_is_named(
    cellar: Path, backend: str, off_by: int
) -> None:
    run = runs.advance(
        started(payload_runs.chain("sized", "a", "b", payloads=backend, snapshot=1)).id
    )
    assert verify_run(run.id) == []
    row = Checkpoint.objects.get(run=run, seq=1)
    tamper(row, stored_size=row.stored_size + off_by)
    (fault,) = verify_run(run.id)
    assert fault.checkpoint == str(row.id)
    assert (
        f"says that {row.stored_size + off_by} bytes are stored, not {row.stored_size}"
        in fault.reason
    )
