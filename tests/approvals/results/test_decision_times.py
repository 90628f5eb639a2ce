"""How long people took is counted once a request is settled for good, and only where
somebody scrapes.
"""

from pathlib import Path

import pytest
from django.db import transaction

from approvals.results import decision_times
from tests.support import run_actions
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_times, "histogram", None)


def sign_a_run(folder: Path, people: People) -> None:
    run = run_actions.start("gated", folder)
    run_actions.sign_open(run, run_actions.reviewer(people.reviewer), "approve")


def test_nothing_is_counted_before_the_first_scrape(
    tmp_path: Path, people: People
) -> None:
    sign_a_run(tmp_path, people)
    numbers, _ = decision_times.keep().read()
    assert sum(numbers) == 0


def test_a_settled_request_is_counted_once(tmp_path: Path, people: People) -> None:
    times = decision_times.keep()
    assert decision_times.keep() is times
    sign_a_run(tmp_path, people)
    numbers, seconds = times.read()
    assert numbers == [1, *[0] * len(decision_times.BOUNDS)]
    assert 0 <= seconds < 60


def test_a_signature_that_is_rolled_back_is_not_counted(
    tmp_path: Path, people: People
) -> None:
    times = decision_times.keep()
    run = run_actions.start("gated", tmp_path)
    by = run_actions.reviewer(people.reviewer)
    with transaction.atomic():
        run_actions.sign_open(run, by, "approve")
        transaction.set_rollback(True)
    numbers, _ = times.read()
    assert sum(numbers) == 0
