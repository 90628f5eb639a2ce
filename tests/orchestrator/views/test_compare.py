"""Two runs on one page: where they split, what differs and why; to whom, and in how many queries."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from checkpoints.models import Run
from orchestrator import runs
from tests.support import claims, forks
from tests.support.cast import People
from tests.support.rows import a_checkpoint, missing

Browse = Callable[[User], Client]


@pytest.fixture
def fork(run: Run, people: People) -> Run:
    """A fork of the run, with another note; it waits for the reviewer too."""
    return runs.advance(forks.forked(run, 1, {"scratch": {"notes": ["patched"]}}, by=people.starter).id)


def page_of(client: Client, **query: Any) -> Any:
    return client.get(reverse("compare"), query)


def test_a_run_and_its_fork_say_where_they_split_and_why_they_differ(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    answer = page_of(browse(people.starter), a=run.id, b=fork.key)
    page, html = answer.context["page"], answer.content.decode()
    assert page["said"] == "They split after checkpoint 1"
    assert "patched in B" in html
    assert [row["leaf"] for group in page["groups"] for row in group["rows"]] == ["notes[0]"]
    assert [[column.get("name", column.get("missing")) for column in lane["columns"]] for lane in page["lanes"]] == [
        ["not on this path", "propose"],
        ["Fork", "propose"],
    ]
    assert html.count('class="ab a"') >= 2
    assert html.count('class="ab b"') >= 2


def test_two_runs_that_are_the_same_say_up_to_where(claim_graph: None, people: People, browse: Browse) -> None:
    a, b = claims.paused("CLM-1", people.starter), claims.paused("CLM-2", people.starter)
    client = browse(people.starter)
    page = page_of(client, a=a.id, b=b.id).context["page"]
    assert page["said"] == "They split after checkpoint 0", "their inputs differ, and so what they read"
    same = runs.advance(forks.forked(a, 1, by=people.starter).id)
    page = page_of(client, a=a.id, b=same.id).context["page"]
    assert page["said"] == "These runs are the same to their ends, checkpoint 2 of A, 1 of B"
    claims.decide_all(same, by=people.reviewer)
    runs.advance(same.id)
    page = page_of(client, a=a.id, b=same.id).context["page"]
    assert page["said"] == "These runs are the same up to 2 of A, 1 of B, where A stands"
    assert [column.get("missing") for column in page["lanes"][0]["columns"]] == ["not yet", "not yet"]


def test_of_long_runs_it_is_said_that_not_all_was_laid_side_by_side(
    run: Run, people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = runs.advance(forks.forked(run, 1, by=people.starter).id)
    monkeypatch.setattr("checkpoints.timeline.alignment.MOST_ROWS", 2)
    page = page_of(browse(people.starter), a=run.id, b=same.id).context["page"]
    assert page["cut_rows"]
    assert page["said"] == "These runs are the same at least up to checkpoint 1"


def test_states_at_two_checkpoints_are_compared_by_the_address(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    page = page_of(client, a=run.id, b=fork.id, at=2, with_at=1).context["page"]
    assert page["at"] == (2, 1)
    assert page["now"]
    assert [column.get("here") for column in page["lanes"][0]["columns"]] == [None, True]
    for query in ({"at": 2}, {"at": "x", "with_at": 1}, {"at": 99, "with_at": 1}, {"at": "9" * 5000, "with_at": 1}):
        assert page_of(client, a=run.id, b=fork.id, **query).status_code == 404


def test_without_two_runs_the_page_offers_relatives_and_runs_of_the_graph(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    assert page_of(client).status_code == 200
    page = page_of(client, a=run.id)
    assert fork.key in page.content.decode()
    assert page.context["page"]["tree"] is not None
    twice = page_of(client, a=run.id, b=run.key).content.decode()
    assert "Both are the same run." in twice


def test_a_run_that_one_may_not_see_is_404_on_either_side_and_is_not_offered(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    client = browse(people.nobody)
    mine = claims.paused("CLM-9", people.nobody)
    for a, b in ((mine.id, run.id), (run.id, mine.id), (run.id, fork.id), (mine.id, missing()), (run.id, "")):
        assert page_of(client, a=a, b=b).status_code == 404
    assert run.key not in page_of(client, a=mine.id).content.decode()
    assert Client().get(reverse("compare")).status_code == 302


def test_the_page_costs_the_same_with_more_checkpoints_and_more_runs(
    run: Run, fork: Run, people: People, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    client = browse(people.starter)
    counts = []
    for first, last in ((2, 4), (4, 40)):
        for seq in range(first + 1, last + 1):
            a_checkpoint(run, seq, scratch={"notes": ["x"]})
        forks.forked(run, 1, by=people.starter)
        with django_assert_max_num_queries(18) as seen:
            assert page_of(client, a=run.id, b=fork.id).status_code == 200
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]


def test_values_on_the_page_are_shown_so_that_nothing_in_them_acts(
    claim_graph: None, people: People, browse: Browse
) -> None:
    a = claims.paused("CLM-1", people.starter)
    b = forks.forked(a, 1, {"scratch": {"notes": ["<script>alert(1)</script>\u202e"]}}, by=people.starter)
    html = page_of(browse(people.starter), a=a.id, b=b.id).content.decode()
    assert "<script>alert" not in html
    assert "\u202e" not in html


def test_the_run_page_leads_to_the_comparison_and_shows_the_lineage(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    html = client.get(reverse("run", args=[fork.id])).content.decode()
    assert f'href="/compare/?a={fork.id}"' in html
    assert 'data-test="lineage"' in html
    assert f"fork from 1, {'Needs review'}" in html
    assert f"/compare/?a={fork.id}&amp;b={run.id}" in html
    alone = claims.paused("CLM-7", people.starter)
    assert 'data-test="lineage"' not in client.get(reverse("run", args=[alone.id])).content.decode()


def test_the_run_page_leads_from_one_checkpoint_that_set_a_path_to_the_next(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    page = client.get(url, {"at": 1})
    assert "path=scratch.notes" in page.content.decode(), "a path of what changed leads to its history"
    watched = client.get(url, {"at": 1, "path": "scratch.notes"}).context["page"]["watched"]
    assert [(stop["seq"], stop["here"]) for stop in watched["stops"]] == [(0, False), (1, True)]
    assert watched["prev"].endswith("?at=0&path=scratch.notes")
    assert watched["next"] == ""
    for path in ("a..b", "x" * 5000, "nothing.there"):
        assert client.get(url, {"path": path}).status_code == 200
