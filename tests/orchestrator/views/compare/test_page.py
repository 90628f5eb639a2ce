"""Two runs on one page: where they split, what differs and why; to whom, and in how
many queries.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.display.drawn_change import ONE_LINE
from approvals.display.leaf import json_leaf
from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from orchestrator import runs
from orchestrator.views.compare import tabs
from tests.support import claims, forks
from tests.support.cast import People
from tests.support.rows import a_checkpoint, missing

Browse = Callable[[User], Client]


@pytest.fixture
def fork(run: Run, people: People) -> Run:
    """A fork of the run, with another note; it waits for the reviewer too."""
    return runs.advance(
        forks.forked(run, 1, {"scratch": {"notes": ["patched"]}}, by=people.starter).id
    )


def page_of(client: Client, **query: Any) -> Any:
    return client.get(reverse("compare"), query)


def test_a_run_and_its_fork_say_where_they_split_and_why_they_differ(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    answer = page_of(browse(people.starter), a=run.id, b=fork.key)
    page = answer.context["page"]
    html = answer.content.decode()
    assert page["pairs"][0]["said"] == "They split after checkpoint 1"
    assert "patched in B" in html
    assert [
        row["leaf"] for group in page["pairs"][0]["groups"] for row in group["rows"]
    ] == ["notes[0]"]
    lanes = page["pairs"][0]["lanes"]
    assert [
        [column.get("name", column.get("missing")) for column in lane["columns"]]
        for lane in lanes
    ] == [
        ["not on this path", "propose"],
        ["Fork", "propose"],
    ]
    assert html.count('class="ab a"') >= 2
    assert html.count('class="ab b"') >= 2


def test_two_runs_that_are_the_same_say_up_to_where(
    claim_graph: None, people: People, browse: Browse
) -> None:
    a = claims.paused("CLM-1", people.starter)
    b = claims.paused("CLM-2", people.starter)
    client = browse(people.starter)
    page = page_of(client, a=a.id, b=b.id).context["page"]
    assert page["pairs"][0]["said"] == "They split after checkpoint 0", (
        "their inputs differ, and so what they read"
    )
    same = runs.advance(forks.forked(a, 1, by=people.starter).id)
    page = page_of(client, a=a.id, b=same.id).context["page"]
    assert (
        page["pairs"][0]["said"]
        == "These runs are the same to their ends, checkpoint 2 of A, 1 of B"
    )
    claims.decide_all(same, by=people.reviewer)
    runs.advance(same.id)
    page = page_of(client, a=a.id, b=same.id).context["page"]
    assert (
        page["pairs"][0]["said"]
        == "These runs are the same up to 2 of A, 1 of B, where A stands"
    )
    assert [
        column.get("missing") for column in page["pairs"][0]["lanes"][0]["columns"]
    ] == ["not yet", "not yet"]


def test_a_comparison_of_long_runs_says_that_it_is_incomplete(
    run: Run, people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = runs.advance(forks.forked(run, 1, by=people.starter).id)
    monkeypatch.setattr("checkpoints.timeline.alignment.MOST_ROWS", 2)
    page = page_of(browse(people.starter), a=run.id, b=same.id).context["page"]
    assert page["pairs"][0]["cut_rows"]
    assert (
        page["pairs"][0]["said"]
        == "These runs are the same at least up to checkpoint 1"
    )


def test_states_at_two_checkpoints_are_compared_by_the_address(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    page = page_of(client, a=run.id, b=fork.id, at=2, with_at=1).context["page"]
    assert page["pairs"][0]["at"] == (2, 1)
    assert page["now"]
    assert [
        column.get("here") for column in page["pairs"][0]["lanes"][0]["columns"]
    ] == [None, True]
    for query in (
        {"at": 2},
        {"at": "x", "with_at": 1},
        {"at": 99, "with_at": 1},
        {"at": "9" * 5000, "with_at": 1},
    ):
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
    for a, b in (
        (mine.id, run.id),
        (run.id, mine.id),
        (run.id, fork.id),
        (mine.id, missing()),
        (run.id, ""),
    ):
        assert page_of(client, a=a, b=b).status_code == 404
    assert run.key not in page_of(client, a=mine.id).content.decode()
    assert Client().get(reverse("compare")).status_code == 302


def test_the_page_costs_the_same_with_more_checkpoints_and_more_runs(
    run: Run,
    fork: Run,
    people: People,
    browse: Browse,
    django_assert_max_num_queries: Any,
) -> None:
    client = browse(people.starter)
    counts = []
    for first, last in ((2, 5), (5, 50)):
        for seq in range(first + 1, last + 1):
            a_checkpoint(run, seq, scratch={"notes": ["x"]})
        forks.forked(run, 1, by=people.starter)
        # Four for the session, the person and his rights, four for the bar of the page.
        # The comparison itself reads the runs, their lines, their checkpoints, the
        # states that are compared, the calls and the decisions that were made; of a
        # fork that is paused, whether it was started and whom it asks.
        with django_assert_max_num_queries(4 + 4 + 6 + 2) as seen:
            assert page_of(client, a=run.id, b=fork.id).status_code == 200
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]


def test_values_on_the_page_are_shown_so_that_nothing_in_them_acts(
    claim_graph: None, people: People, browse: Browse
) -> None:
    a = claims.paused("CLM-1", people.starter)
    b = forks.forked(
        a,
        1,
        {"scratch": {"notes": ["<script>alert(1)</script>\u202e"]}},
        by=people.starter,
    )
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
    assert (
        'data-test="lineage"'
        not in client.get(reverse("run", args=[alone.id])).content.decode()
    )


def test_the_run_page_leads_from_one_checkpoint_that_set_a_path_to_the_next(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    page = client.get(url, {"at": 1})
    assert "path=scratch.notes" in page.content.decode(), (
        "a path of what changed leads to its history"
    )
    watched = client.get(url, {"at": 1, "path": "scratch.notes"}).context["page"][
        "watched"
    ]
    assert [(stop["seq"], stop["here"]) for stop in watched["stops"]] == [
        (0, False),
        (1, True),
    ]
    assert watched["prev"].endswith("?at=0&path=scratch.notes")
    assert watched["next"] == ""
    for path in ("a..b", "x" * 5000, "nothing.there"):
        assert client.get(url, {"path": path}).status_code == 200


def test_a_third_run_stands_beside_the_first_too(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    third = forks.forked(run, 1, {"scratch": {"count": 7}}, by=people.starter)
    answer = page_of(client, a=run.id, b=fork.id, c=third.key)
    page = answer.context["page"]
    html = answer.content.decode()
    assert [side["letter"] for side in page["sides"]] == ["A", "B", "C"]
    assert [pair["letter"] for pair in page["pairs"]] == ["B", "C"]
    paths = [
        [row["leaf"] for group in pair["groups"] for row in group["rows"]]
        for pair in page["pairs"]
    ]
    assert paths == [["notes[0]"], ["count"]]
    assert "patched in C" in html
    assert "Add a third" not in html
    assert "Add a third" in page_of(client, a=run.id, b=fork.id).content.decode()
    for c in (run.id, fork.key):
        assert (
            len(page_of(client, a=run.id, b=fork.id, c=c).context["page"]["pairs"]) == 1
        )
    assert page_of(client, a=run.id, b=fork.id, c=missing()).status_code == 404


def test_path_writes_and_node_results_are_compared_behind_the_split(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    claims.decide_all(fork, by=people.reviewer)
    runs.advance(fork.id)

    def rows(tab: str, **query: Any) -> list[tuple[Any, ...]]:
        page = page_of(client, a=run.id, b=fork.id, tab=tab, **query).context["page"]
        return [
            (row["name"], row["a"].text, row["b"].text)
            for row in page["pairs"][0]["rows"]
        ]

    assert rows("path") == [
        ("Fork", "none", "0 Fork"),
        ("settlement", "none", "2 settlement"),
        ("pay", "none", "3 pay"),
    ]
    assert ("propose", "2 propose", "1 propose") in rows("path", all=1)
    assert rows("writes") == []
    assert [name for name, a, b in rows("writes", all=1) if a == b] == [
        "propose: payout",
        "propose: letter",
        "propose: count",
    ]
    assert [(name, a) for name, a, _ in rows("results")] == [("pay:1:0", "none")]
    assert (
        page_of(client, a=run.id, b=fork.id, tab="nonsense").context["page"]["tab"]
        == "state"
    )


def test_long_writes_and_results_are_shown_where_they_differ(
    run: Run, fork: Run, people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = browse(people.starter)
    long = "word " * 200
    monkeypatch.setattr(
        tabs, "read_or_reason", lambda row, column: f"{long}{row.run_id}"
    )
    page = page_of(client, a=run.id, b=fork.id, tab="writes").context["page"]
    rows = page["pairs"][0]["rows"]
    assert len(rows) == 3
    for row in rows:
        assert row["a"].text.endswith(f'{run.id}"')
        assert row["b"].text.endswith(f'{fork.id}"')
        assert "fingerprint" in row["a"].rest
        assert not row["same"]


def test_what_is_the_same_is_shown_where_it_is_asked_for(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    html = page_of(client, a=run.id, b=fork.id).content.decode()
    assert 'aria-checked="true"' in html
    assert "the same</td>" not in html
    page = page_of(client, a=run.id, b=fork.id, all=1, at=2, with_at=1)
    scratch = page.context["page"]["pairs"][0]["groups"][1]
    assert ("count", "0") in [(row["leaf"], row["a"].text) for row in scratch["same"]]
    assert "notes" not in [row["leaf"] for row in scratch["same"]]


def test_what_is_the_same_is_that_of_the_checkpoints_in_the_address(
    claim_graph: None, people: People, browse: Browse
) -> None:
    a = claims.paused("CLM-1", people.starter)
    b = claims.paused("CLM-2", people.starter)
    client = browse(people.starter)
    page = page_of(client, a=a.id, b=b.id, all=1, at=0, with_at=0).context["page"]
    scratch = page["pairs"][0]["groups"][1]
    shown = {row["leaf"]: row["a"] for row in scratch["same"]}
    state = timeline.state_at(Checkpoint.objects.get(run=a, seq=0).id)["scratch"]
    assert state != timeline.head_state(a.id)["scratch"]
    assert shown == {
        name: json_leaf(value, longest=ONE_LINE) for name, value in state.items()
    }


def test_the_comparison_can_be_taken_along_as_json(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    for query in ({}, {"at": 2, "with_at": 1}):
        page = page_of(client, a=run.id, b=fork.id, **query).context["page"]["pairs"][0]
        download = client.get(page["export"])
        assert download.status_code == 200
        assert [
            difference["path"] for difference in download.json()["differences"]
        ] == ["notes[0]"]


def test_decisions_are_those_that_people_made_in_each_run(
    run: Run, fork: Run, people: People, browse: Browse
) -> None:
    claims.decide_all(run, by=people.reviewer)
    sides = page_of(browse(people.starter), a=run.id, b=fork.id).context["page"][
        "sides"
    ]
    assert [side["decisions"] for side in sides] == [3, 0]
