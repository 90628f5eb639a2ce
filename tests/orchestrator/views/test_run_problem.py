"""The panel that says why a run stands still, and what helps."""

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from checkpoints.models import Run
from orchestrator import runs
from orchestrator.views.run_problem import problem_of
from tests.support.cast import People
from tests.support.small_graphs import advanced
from tests.support.versioned_graphs import Copied, Texts, deployed, in_euros, paying

pytestmark = pytest.mark.django_db(transaction=True)
Browse = Callable[..., Client]


def panel(client: Client, run: Run) -> str:
    html = client.get(reverse("run", args=[run.id])).content.decode()
    match = re.search(r'<section class="panel problem".*?</section>', html, re.DOTALL)
    return match[0] if match else ""


def test_a_run_that_waits_for_people_while_its_version_is_gone_offers_the_one_that_is_here(
    people: People, browse: Browse
) -> None:
    run = advanced(paying("1"))
    address = reverse("run", args=[run.id])
    assert "panel problem" not in browse(people.steward).get(address).content.decode()
    deployed(paying("2", Copied))
    html = browse(people.steward).get(address).content.decode()
    assert "panel problem" not in html, "that version takes it, and edits"
    new = paying("2", Texts)
    deployed(new)
    html = panel(browse(people.steward), run)
    assert "Version 1 is not here any more" in html
    assert "Resume this run" not in html, "that version does not take it"
    new = paying("2", Texts)
    new.migration(from_version="1")(in_euros)
    deployed(new)
    assert "Resume this run" not in panel(browse(people.auditor), run)
    client = browse(people.steward)
    assert "Run the migration 1 to 2" in panel(client, run)
    client.post(reverse("resume", args=[run.id]))
    assert runs.advance(run.id).status == "paused"
    assert runs.get(run.id).version == "2"
    assert "panel problem" not in client.get(address).content.decode()


@pytest.mark.parametrize(
    ("status", "title"),
    [
        ("failed", "It failed where it comes from"),
        ("unknown", "Its outcome is unknown where it comes from"),
        ("incompatible", "It is incompatible where it comes from"),
        ("tampered", "A record does not match what was written"),
    ],
)
def test_the_title_for_a_stopped_imported_run_is_a_sentence(
    status: str, title: str
) -> None:
    run = Run(status=status, imported=True)
    panel = problem_of(run, asks=False, may_steer=True, may_settle=True)
    assert panel is not None
    assert panel.title == title
