"""The review of a run that went back: of a patch, and of what is asked anew."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import strip_tags

from approvals import reviews
from checkpoints import timeline
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import Fact
from tests.support import cast, run_actions
from tests.support.paid_claims import paid

Browse = Callable[[User], Client]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def patched(people: cast.People) -> Run:
    """A fork whose patch sets 9999 where people had signed 10, waiting for their
    signatures.
    """
    settled = timeline.list_checkpoints(paid("patched", people).id)[1]
    fork = runs.fork(
        settled.id,
        patch={"scratch": {"total": 9999}},
        by=people.starter,
        reason="a plumber's invoice",
    )
    return runs.advance(fork.id)


def text_of(client: Client, path: str) -> str:
    """The words of a page, with a bar between any two pieces."""
    answer = client.get(path)
    assert answer.status_code == 200
    html = answer.content.decode().split("<main")[1]
    return " ".join(
        strip_tags(html.replace("<", "|<").replace("&#x27;", "'"))
        .replace("|", " ")
        .split()
    )


def test_the_review_of_a_patch_says_that_it_is_one_who_made_it_and_why(
    patched: Run, people: cast.People, browse: Browse
) -> None:
    text = text_of(
        browse(run_actions.reviewer(people.reviewer)), f"/reviews/{patched.id}/"
    )
    assert "The run asks changed by hand" in text
    assert (
        f"{people.starter.username} changed this by hand. It needs the same signatures as at"
        in text
    )
    assert "Reason given for the patch a plumber's invoice" in text
    assert "Set by a patch into total" in text
    assert "$patch" not in text.split("What happens when you sign")[1]


def test_the_review_of_a_patch_shows_what_it_sets_over_what(
    patched: Run, people: cast.People, browse: Browse
) -> None:
    text = text_of(
        browse(run_actions.reviewer(people.reviewer)), f"/reviews/{patched.id}/"
    )
    assert "Now Proposed Value 10 9999" in text
    assert "Shown for context" not in text, (
        "what it replaces is what it is shown against"
    )


def test_the_review_of_a_patch_lists_what_then_runs_and_what_does_not(
    patched: Run, people: cast.People, browse: Browse
) -> None:
    text = text_of(
        browse(run_actions.reviewer(people.reviewer)), f"/reviews/{patched.id}/"
    )
    assert (
        "It is written into the run External: pay is not started: the run stops before it"
        in text
    )
    assert "This write does not happen The run ends as rejected" in text
    runs.cancel(patched.id, by=people.starter, reason="again")
    origin = Run.objects.get(key="key of patched")
    settled = timeline.list_checkpoints(origin.id)[1]
    patch = {"scratch": {"total": 9999}}
    allowed = runs.advance(
        runs.fork(settled.id, patch=patch, allow_effects=["pay"], by=people.starter).id
    )
    text = text_of(browse(people.reviewer), f"/reviews/{allowed.id}/")
    assert "It is written into the run External: pay acts outside" in text
    assert "External, when pay runs" in text
    assert (
        "It happened already, before this run departed from there: it would happen again."
        in text
    )


def test_no_fact_beside_a_patch_tells_what_an_edit_of_it_would_change(
    people: cast.People, browse: Browse
) -> None:
    facts = [Fact("Amount", "total"), Fact("So far", "state.notes")]
    settled = timeline.list_checkpoints(paid("facts", people, facts=facts).id)[1]
    fork = runs.advance(
        runs.fork(settled.id, patch={"scratch": {"total": 9999}}, by=people.starter).id
    )
    text = text_of(browse(people.reviewer), f"/reviews/{fork.id}/")
    assert "So far" in text
    assert "Amount" not in text


def test_what_is_chosen_for_a_patch_is_told_with_what_follows(
    patched: Run, people: cast.People, browse: Browse
) -> None:
    reviewer = run_actions.reviewer(people.reviewer)
    write = run_actions.pending(patched)[0]
    posted = {"by": reviewer.pk, "number": 1, "write": write.write}
    posted |= {
        f"h-{write.write}": write.hash,
        f"v-{write.write}": "approve",
        f"r-{write.write}": "",
    }
    client = browse(reviewer)
    client.post(f"/reviews/{patched.id}/draft/", posted)
    text = text_of(client, f"/reviews/{patched.id}/")
    assert "Then, as all is approved External: pay is not started" in text


def test_what_people_decided_before_is_shown_and_does_not_count(
    people: cast.People, browse: Browse
) -> None:
    run = paid("asked_anew", people)
    fork = runs.advance(runs.fork(f"{run.key}:at-2", by=people.starter).id)
    text = text_of(browse(people.reviewer), f"/reviews/{fork.id}/")
    assert (
        f"Decided before this run went back: {people.reviewer.username} approved it"
        in text
    )
    assert "It does not count here." in text
    assert "0 of 1" in text
    run = runs.rewind(run.id, f"{run.key}:at-2", by=people.starter)
    assert "It does not count here." in text_of(
        browse(people.reviewer), f"/reviews/{run.id}/"
    )


def test_a_patch_that_was_edited_is_told_as_what_a_person_set(
    patched: Run, people: cast.People
) -> None:
    write = run_actions.pending(patched)[0]
    decision = {
        "write": str(write.write),
        "hash": write.hash,
        "verdict": "edit",
        "value": 12,
    }
    reviews.sign(patched.id, [decision], by=run_actions.reviewer(people.reviewer))
    assert run_actions.state(runs.advance(patched.id))["total"] == 12


def test_the_page_of_a_run_whose_patch_waits_can_be_read_at_every_checkpoint(
    patched: Run, people: cast.People, browse: Browse
) -> None:
    for tab in ("changed", "state", "writes", "results", "events"):
        text = text_of(browse(people.starter), f"/runs/{patched.id}/?tab={tab}")
        assert "Graph at checkpoint 0" in text
