"""The requests that a person sees are the same whether a list reads all or only a
page.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.db import connection

from approvals import list_columns
from approvals.models import ApprovalRequest, RequestReviewer, RequestViewer
from approvals.permissions import visible_runs
from approvals.visible_requests import VisibleRequests, of_visible_runs
from checkpoints.db.large_reads import first_rows
from checkpoints.models import Run
from tests.support.cast import People
from tests.support.read_costs import cost_of
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


@pytest.fixture(params=[(16, 100), (1, 100), (2, 2), (1, 1)])
def limits(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set how many principals of a run are listed singly, and how many runs stand for a
    principal's requests.
    """
    singly, runs = request.param
    monkeypatch.setattr(list_columns, "MOST_SINGLY", singly)
    monkeypatch.setattr(list_columns, "MOST_RUNS", runs)
    _renew_triggers()


def _renew_triggers() -> None:
    """Install the triggers with other limits. They go with the test's transaction."""
    list_columns.remove_triggers()
    list_columns.install_triggers()


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
    limits: None, random: Random, persons: list[Any], people: People
) -> None:
    _make_requests(random, persons)
    _require_lists(people, persons)


def _require_lists(people: People, persons: Sequence[Any]) -> None:
    """Require that each page of each person has the requests that they may see."""
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


def test_what_is_lost_or_added_in_these_lists_is_mended(
    limits: None, random: Random, persons: list[Any], people: People
) -> None:
    _make_requests(random, persons)
    rows = sorted(_rows_of_viewers())
    ids = list(RequestViewer.objects.values_list("id", flat=True))
    RequestViewer.objects.filter(id__in=random.sample(ids, 9)).delete()
    ids = list(RequestViewer.objects.values_list("id", flat=True))
    changed = RequestViewer.objects.filter(id__in=random.sample(ids, 9))
    changed.update(graph="other", opened_at=START - timedelta(days=1))
    request = random.choice(ApprovalRequest.objects.all())
    for principal in ("user:eve", "run:x", "starter:0"):
        RequestViewer.objects.create(
            request=request,
            principal=principal,
            graph=request.graph,
            opened_at=request.opened_at,
        )
    list_columns.install_triggers()
    assert sorted(_rows_of_viewers()) == rows
    _require_lists(people, persons)


def _rows_of_viewers() -> list[Any]:
    columns = ("request", "principal", "graph", "opened_at")
    return list(RequestViewer.objects.values_list(*columns))


def test_a_run_that_asks_another_person_each_time_grows_with_its_requests() -> None:
    run = a_run()
    number = 4 * list_columns.MOST_SINGLY
    rows = []
    for person in range(number):
        before = RequestViewer.objects.count()
        a_request(run, f"user:u{person}")
        rows.append(RequestViewer.objects.count() - before)
    # The next request is opened, and the next person named, with as many rows.
    most_rows = list_columns.MOST_SINGLY + 1
    assert max(rows[2 * list_columns.MOST_SINGLY :]) == most_rows
    assert RequestViewer.objects.count() <= number * most_rows
    last = User.objects.create_user(f"u{number - 1}")
    assert len(VisibleRequests(last)[: number + 1]) == number


def test_who_stands_in_many_such_runs_is_listed_singly_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(list_columns, "MOST_RUNS", 3)
    _renew_triggers()
    for _ in range(5):
        run = a_run()
        others = [f"user:u{n}" for n in range(list_columns.MOST_SINGLY)]
        a_request(run, *others)
        a_request(run, "user:late")
    late = RequestReviewer.objects.filter(principal="user:late").order_by("id")
    assert [row.by_run for row in late] == [True, True, True, False, False]
    assert RequestViewer.objects.filter(principal="user:late").count() == 4
    assert len(VisibleRequests(User.objects.create_user("late"))[:99]) == 10


def test_a_page_costs_no_more_beside_others_who_are_named_in_the_same_run() -> None:
    run = a_run()
    late = User.objects.create_user("late")
    _name_others(run, range(2 * list_columns.MOST_SINGLY))
    a_request(run, "user:late")
    few = _cost_of_page(late)
    _name_others(run, range(100, 100 + 10 * list_columns.MOST_SINGLY))
    for name, reads in _cost_of_page(late).items():
        assert reads <= 1.3 * few[name], name


def _name_others(run: Run, numbers: Iterable[int]) -> None:
    """Open a request for each of these people."""
    for number in numbers:
        a_request(run, f"user:other{number}")


def _cost_of_page(user: User) -> dict[str, int]:
    """Return what a page of three requests reads."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    with first_rows():
        cost = cost_of(lambda: list(VisibleRequests(user)[:3]))
    return cost.reads
