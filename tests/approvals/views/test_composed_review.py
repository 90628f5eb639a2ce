"""Which requests a review has, and what reading it costs."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from checkpoints.models import Run
from orchestrator import runs
from tests.support import claims, deadlines, run_actions
from tests.support.cast import People

Browse = Callable[[User], Client]


def open_review(browse: Browse, user: User, run: Run) -> Any:
    page = browse(user).get(reverse("review", args=[run.id]))
    assert page.status_code == 200
    return page


def test_a_request_that_stands_on_an_open_page_stays_on_it_when_the_run_asks_something_else(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    claims.decide_all(run, by=people.second_reviewer)
    runs.advance(run.id)
    again = browse(people.reviewer).get(page.context["page"].live_url)
    assert [slip.verdict for slip in again.context["page"].slips] == ["approved"] * 3
    assert browse(people.nobody).get(page.context["page"].live_url).status_code == 404


def test_queries_do_not_grow_with_writes(
    claim_graph: None,
    people: People,
    browse: Browse,
    django_assert_max_num_queries: Any,
) -> None:
    many = claims.many_writes("many_writes", 30)
    with claims.registered(many, claims.graph_of()):
        small = claims.paused("CLM-2", people.starter)
        large = claims.paused("CLM-3", people.starter, graph="many_writes")
        client = browse(people.reviewer)
        counts = [
            _count(client, run, django_assert_max_num_queries) for run in (small, large)
        ]
    assert counts[0] == counts[1]


def _count(client: Client, run: Run, at_most: Any) -> int:
    with at_most(20) as seen:
        assert client.get(reverse("review", args=[run.id])).status_code == 200
    return len(seen.captured_queries)


@pytest.mark.django_db(transaction=True)
def test_a_deadline_that_decides_does_not_hide_what_a_policy_signed(
    people: People, browse: Browse
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run = deadlines.paused_run(quorum=2, auto=lambda state, proposal: True)
    deadlines.let_come(run)
    assert deadlines.meet_deadline(run)
    slots = open_review(browse, rita, run).context["page"].slots
    assert [slot.name for slot in slots] == ["The policy of propose", "The deadline"]
