"""Checkpoints that were cleaned up: the run's page shows the gap and leads to the
nearest one that was kept.
"""

import pytest
from django.test import Client
from django.urls import reverse

from checkpoints import retention
from checkpoints.models import Checkpoint, Run
from orchestrator import runs
from orchestrator.views import run
from tests.support import cast
from tests.support.histories import policy, pruned
from tests.support.large_states import large
from tests.support.small_graphs import started

pytestmark = pytest.mark.django_db(transaction=True)


def shown(some_run: Run, user: object, at: str = "") -> tuple[int, str]:
    browser = Client()
    browser.force_login(user)  # type: ignore[arg-type]
    answer = browser.get(reverse("run", args=[some_run.id]), {"at": at} if at else {})
    return answer.status_code, " ".join(answer.content.decode().split())


@pytest.mark.parametrize("window", [60, 3])
def test_the_gap_and_the_nearest_kept_checkpoint_are_shown(
    window: int, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "WINDOW", window)
    advanced_run = runs.advance(started(large("long", "abcdefgh", snapshot=1000)).id)
    retention.pin(Checkpoint.objects.get(run=advanced_run, seq=2).id, by=None)
    pruned(policy("long", keep_last=2))
    for at in ("0", "1"):
        status, page = shown(advanced_run, people.auditor, at)
        assert status == 200
        assert "Checkpoints 0 to 1 were cleaned up. 2 is a full snapshot." in page
        assert "Graph at checkpoint 2" in page
        assert (
            "The checkpoint before 2 was cleaned up, so there is nothing to compare with"
            in page
        )
        assert "not set" not in page
    status, page = shown(advanced_run, people.auditor, "5")
    assert status == 200
    assert "Checkpoints 3 to 6 were cleaned up. 7 is a full snapshot." in page
    assert "Graph at checkpoint 7" in page
    assert f'href="{reverse("run", args=[advanced_run.id])}?at=7"' in page
    assert (
        'href="' + reverse("run", args=[advanced_run.id]) + '?at=2" data-step="prev"'
        in page
    )
    assert 'data-step="prev"' not in shown(advanced_run, people.auditor, "2")[1], (
        "there is none before the first that was kept"
    )
    assert shown(advanced_run, people.auditor, "99")[0] == 404
    assert shown(advanced_run, people.auditor)[0] == 200


def test_a_whole_timeline_speaks_of_no_gap(people: cast.People) -> None:
    advanced_run = runs.advance(started(large("short", "ab")).id)
    assert "cleaned up" not in shown(advanced_run, people.auditor)[1]
    assert "cleaned up" not in shown(advanced_run, people.auditor, "1")[1]
