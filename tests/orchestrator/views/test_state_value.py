"""A value of the state that the page has no room for: shown when it is opened, and
downloaded as it is stored.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.views import run_details
from tests.support.cast import People
from tests.support.small_graphs import graph, registered

Browse = Callable[[User], Client]
LONG = "w" * (run_details.ROOM + 1)
ODD = "before\u202eafter\u200b"


@pytest.fixture
def large(people: People) -> Run:
    """A run that ended with a letter for which no page has room."""
    flow = graph("large_letter")

    @flow.node()
    def write(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": LONG + ODD, "notes": ["short"]}

    flow.edge(START, "write")
    flow.edge("write", END)
    registered(flow)
    return runs.advance(runs.start(flow.name, {}, by=people.starter).id)


def _address(run: Run) -> str:
    return reverse("state_value", args=[run.head])


def test_a_value_without_room_is_a_link_and_leads_to_all_of_it(
    large: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    page = client.get(reverse("run", args=[large.id]), {"tab": "state"})
    assert LONG not in page.content.decode()
    rows = page.context["page"]["detail"]["parts"][0]["rows"]
    (letter,) = [row for row in rows if row["key"] == "letter"]
    assert f'href="{letter["load"]}"' in page.content.decode()
    shown = client.get(letter["load"])
    assert shown.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert json.loads(shown.content) == LONG + ODD


def test_characters_that_nobody_would_see_are_written_by_number(
    large: Run, people: People, browse: Browse
) -> None:
    shown = browse(people.starter).get(_address(large), {"path": "scratch.letter"})
    assert "\\u202e" in shown.content.decode()
    assert "\u202e" not in shown.content.decode()


def test_a_download_is_the_value_as_it_is_stored(
    large: Run, people: People, browse: Browse
) -> None:
    query = {"path": "scratch.letter", "as": "file"}
    answer = browse(people.starter).get(_address(large), query)
    assert answer.content.decode() == json.dumps(LONG + ODD, ensure_ascii=False)
    assert answer.headers["Content-Disposition"].startswith("attachment")


def test_who_may_not_see_the_run_gets_no_value(
    large: Run, people: People, browse: Browse
) -> None:
    stranger = browse(User.objects.create_user("stranger"))
    assert stranger.get(_address(large), {"path": "letter"}).status_code == 404
    signed_out = Client().get(_address(large), {"path": "letter"})
    assert signed_out.url.startswith("/login/")


@pytest.mark.parametrize("path", ["", "nowhere", "letter[0]", "a b", "scratch"])
def test_a_path_that_leads_to_no_value_is_not_there(
    path: str, large: Run, people: People, browse: Browse
) -> None:
    answer = browse(people.starter).get(_address(large), {"path": path})
    assert answer.status_code == 404


def test_values_are_part_of_the_page_as_long_as_there_is_room(
    large: Run, people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_details, "ROOM", 2 * len(LONG))
    page = browse(people.starter).get(reverse("run", args=[large.id]), {"tab": "state"})
    assert LONG in page.content.decode()
    assert "data-load" not in page.content.decode()
