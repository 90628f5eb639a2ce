"""A replay whose departure was taken away by SQL does not act, and a fork does not lose
its stops.
"""

import pytest

from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, Run, RunEvent, RunLine
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow
from tests.support import cast, forging
from tests.support.paid_claims import PAID, paid

pytestmark = pytest.mark.django_db(transaction=True)


def _without_departure(run: Run) -> None:
    """The run's row, and the rows of its lines, as those of a run that was started."""
    for line in RunLine.objects.filter(run=run.id):
        forging.remove(line)
    forging.tamper(run, origin_checkpoint=None)


@pytest.fixture
def replay(people: cast.People) -> Run:
    """A replay that nobody has worked on yet, of a run that paid once."""
    run = paid("origin", people)
    return runs.replay(f"{run.key}:initial", by=people.starter)


@pytest.fixture
def fork(people: cast.People) -> Run:
    """A fork that stops before it would pay a second time."""
    run = paid("origin", people)
    return runs.fork(f"{run.key}:at-2", by=people.starter)


def test_a_replay_without_its_line_does_nothing_outside_and_stops_as_tampered(
    replay: Run,
) -> None:
    _without_departure(replay)
    replayed = runs.advance(replay.id)
    assert replayed.status == Status.TAMPERED
    assert len(PAID) == 1


def test_a_fork_without_its_line_keeps_its_stops_and_stops_as_tampered(
    fork: Run,
) -> None:
    assert RunLine.objects.get(run=fork.id).stops == ["pay"]
    _without_departure(fork)
    forked = runs.advance(fork.id)
    assert forked.status == Status.TAMPERED
    assert len(PAID) == 1


@pytest.mark.parametrize("parts", [(Checkpoint,), (RunEvent,), (Checkpoint, RunEvent)])
def test_nor_does_it_act_where_its_first_rows_are_gone_too(
    replay: Run, parts: tuple[type, ...]
) -> None:
    _without_departure(replay)
    rows = {
        Checkpoint: Checkpoint.objects.filter(run=replay.id, seq=0),
        RunEvent: RunEvent.objects.filter(run=replay.id, seq=1),
    }
    for part in parts:
        for row in rows[part]:  # type: ignore[index]
            forging.remove(row)
    replayed = runs.advance(replay.id)
    assert replayed.status == Status.TAMPERED
    assert len(PAID) == 1


def test_a_line_that_was_only_deleted_stops_it_too(replay: Run) -> None:
    forging.remove(RunLine.objects.get(run=replay.id))
    assert runs.advance(replay.id).status == Status.TAMPERED


def test_what_a_fork_of_such_a_run_would_repeat_is_not_guessed(fork: Run) -> None:
    _without_departure(fork)
    with pytest.raises(TamperedRow, match="began as a fork or a replay"):
        runs.plan(Checkpoint.objects.get(run=fork.id, seq=0).id)
