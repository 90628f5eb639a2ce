"""The requests that a person sees are the same whether a list reads all or only a
page.
"""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User

from approvals.models import ApprovalRequest, RequestReviewer, RequestViewer
from approvals.permissions import visible_runs
from approvals.visible_requests import VisibleRequests, of_visible_runs
from checkpoints.models import Run
from tests.support.cast import People
from tests.support.rows import START, a_request, a_run

pytestmark = pytest.mark.django_db
RUNS = 25
GRAPHS = ["pays", "asks"]
NAMES = (
    "group:a",
    "group:b",
    "group:c",
    "user:ann",
    "user:bob",
    "perm:approvals.decide",
)


@pytest.fixture(params=range(4))
def random(request: Any) -> Random:
    return Random(request.param)


@pytest.fixture
def persons(random: Random) -> list[Any]:
    """People in some groups, one of whom has left, and nobody."""
    groups = [Group.objects.create(name=name) for name in ("a", "b", "c")]
    persons: list[Any] = [AnonymousUser()]
    for name in ("ann", "bob", "cyd", "dee"):
        person = User.objects.create_user(name)
        person.groups.set(random.sample(groups, random.randint(0, 2)))
        persons.append(person)
    User.objects.filter(username="dee").update(is_active=False)
    persons[-1].refresh_from_db()
    return persons


def _make_requests(random: Random, persons: Sequence[Any]) -> None:
    """Start runs and open requests in them, in any order."""
    runs = []
    for _ in range(RUNS):
        starter = random.choice([None, None, *persons[1:]])
        runs.append(a_run(started_by=starter, graph=random.choice(GRAPHS)))
    for _ in range(2 * RUNS):
        # Several requests of one moment, in which the id decides.
        moment = START + timedelta(minutes=random.randint(0, 9))
        names = random.sample(NAMES, random.randint(0, 2))
        a_request(
            random.choice(runs),
            *names,
            status=random.choice(["open", "applied", "withdrawn"]),
            opened_at=moment,
        )


def _visible(person: Any) -> list[ApprovalRequest]:
    """Return the requests of all runs that a person may see, newest first."""
    runs = visible_runs(person).values("id")
    requests = ApprovalRequest.objects.filter(run__in=runs)
    return list(requests.order_by("-opened_at", "-id"))


def test_each_page_has_the_requests_of_the_runs_that_the_person_may_see(
    random: Random, persons: list[Any], people: People
) -> None:
    _make_requests(random, persons)
    everything = ApprovalRequest.objects.order_by("-opened_at", "-id")
    moment = START + timedelta(minutes=5)
    for person in (*persons, people.auditor, people.reviewer):
        seen = _visible(person)
        of_graph = [request for request in seen if request.graph == "asks"]
        older = [request for request in seen if request.opened_at < moment]
        listed = VisibleRequests(person)
        assert list(of_visible_runs(person, everything)) == seen
        for start in range(0, len(seen) + 1, 7):
            page = slice(start, start + 8)
            assert list(listed[page]) == seen[page]
            assert list(listed.filter(graph="asks")[page]) == of_graph[page]
            assert list(listed.filter(opened_at__lt=moment)[page]) == older[page]
            backwards = listed.order_by("opened_at", "id")
            assert list(backwards[page]) == seen[::-1][page]


def test_a_row_of_the_list_gives_no_right(people: People) -> None:
    request = a_request(a_run(), "user:rita")
    assert list(VisibleRequests(people.reviewer)[:9]) == [request]
    RequestReviewer.objects.all().delete()
    assert RequestViewer.objects.exists()
    assert list(VisibleRequests(people.reviewer)[:9]) == []


def test_a_person_who_started_a_run_sees_what_it_asked_others(people: People) -> None:
    other = User.objects.create_user("other")
    request = a_request(a_run(started_by=people.nobody), "user:rita")
    assert list(VisibleRequests(people.nobody)[:9]) == [request]
    assert list(VisibleRequests(other)[:9]) == []
    Run.objects.update(started_by=other)
    assert list(VisibleRequests(people.nobody)[:9]) == []
