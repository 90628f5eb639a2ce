"""The supervisor of clusters: each start is refused where the database may not be worked
on, also where it answered late.
"""

import pytest
from django.core.management.base import CommandError
from django.db import OperationalError

from orchestrator.worker import supervisor
from orchestrator.worker.alive_file import AliveFile
from orchestrator.worker.signals import StopRequest


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clusters that were started; each is drained at once."""
    started: list[int] = []

    class Cluster:
        def __init__(self, *arguments: object) -> None:
            started.append(len(started))

        def run(self) -> int:
            return 0

    monkeypatch.setattr(supervisor, "RunCluster", Cluster)
    monkeypatch.setattr(StopRequest, "pause", lambda *arguments, **options: False)
    return started


def test_a_database_that_answers_late_is_refused_all_the_same(
    starts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([OperationalError("starting"), None])

    def require_answer(seconds: float) -> None:
        error = next(answers)
        if error is not None:
            raise error

    def refuse() -> None:
        raise CommandError("The database lacks migrations")

    monkeypatch.setattr(supervisor, "require_answer", require_answer)
    with pytest.raises(CommandError, match="lacks migrations"):
        supervisor._run_until_stopped(
            StopRequest(), AliveFile.from_environment(), refuse
        )
    assert starts == []


def test_a_database_that_goes_while_it_is_looked_at_is_waited_for(
    starts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def refuse() -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise OperationalError("gone")

    monkeypatch.setattr(supervisor, "require_answer", lambda seconds: None)
    code = supervisor._run_until_stopped(
        StopRequest(), AliveFile.from_environment(), refuse
    )
    assert (code, starts, len(looks)) == (0, [0], 2)
