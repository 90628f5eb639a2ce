"""After a deployment took a version away, its runs can still be seen and decided; only
editing needs the version.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from checkpoints.models import Run
from orchestrator.engine import registry
from tests.support import cast, run_actions

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(tmp_path: Path, people: cast.People) -> Iterator[Run]:
    """A run that waits for the claims group, whose graph this process no longer has."""
    run_actions.reviewer(people.reviewer)
    paused = run_actions.start("gated", tmp_path, by=people.starter)
    taken = {
        key: registry._registered.pop(key)
        for key in list(registry._registered)
        if key[0] == "gated"
    }
    yield paused
    registry._registered.update(taken)


def test_every_page_of_such_a_run_opens(
    run: Run, people: cast.People, client: Client
) -> None:
    tabs = [
        f"/runs/{run.id}/?tab={tab}"
        for tab in ("changed", "state", "writes", "results", "events")
    ]
    for user, pages in (
        (people.reviewer, ["/reviews/", f"/reviews/{run.id}/"]),
        (people.starter, ["/runs/", *tabs]),
    ):
        client.force_login(user)
        for page in pages:
            assert client.get(page).status_code == 200, page


def test_its_writes_can_be_approved_and_rejected_and_editing_is_a_sentence(
    run: Run, people: cast.People, client: Client
) -> None:
    client.force_login(people.reviewer)
    page = client.get(f"/reviews/{run.id}/").content.decode()
    assert "not edited" in page
    assert 'value="edit"' not in page
    run_actions.sign(run, people.reviewer, ["approve", "reject", "approve", "approve"])
    assert run_actions.request(run).outcome == "partial"


def test_an_edit_that_is_posted_all_the_same_is_a_conflict_that_says_why(
    run: Run, people: cast.People, client: Client
) -> None:
    client.force_login(people.reviewer)
    letter = run_actions.pending(run)[1]
    edit = {
        "write": str(letter.write),
        "hash": letter.hash,
        "verdict": "edit",
        "value": "Dear Marta",
    }
    answer = client.post(
        f"/api/v1/runs/{run.id}/signatures/",
        {"decisions": [edit]},
        content_type="application/json",
    )
    assert answer.status_code == 409
    assert answer.json()["code"] == "incompatible_graph"
    assert run_actions.pending(run)[1].revision == 1


def test_going_on_from_its_checkpoints_is_refused_in_words(
    run: Run, people: cast.People, client: Client
) -> None:
    client.force_login(people.starter)
    for answer in (
        client.get(f"/checkpoints/{run.head}/go-on/", follow=True),
        client.post(f"/checkpoints/{run.head}/go-on/"),
    ):
        assert answer.status_code == 409
        assert "cannot go on from this checkpoint here" in answer.content.decode()
