"""The runs that a person sees are the same whether a list reads all or only a page."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.db import connection
from django.db.models import Q

from approvals.models import RequestReviewer
from approvals.permissions import principals_of, visible_runs
from approvals.visible_runs import VisibleRuns, visible_graphs
from checkpoints.db import statistics
from checkpoints.models import Run
from orchestrator.views.run_standings import not_started
from tests.support.cast import People
from tests.support.read_costs import cost_of
from tests.support.rows import START, a_request, a_run

pytestmark = pytest.mark.django_db
RUNS = 40
GRAPHS = ["pays", "asks"]
STATUSES = ["paused", "failed", "completed"]
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


def _make_runs(random: Random, persons: list[Any]) -> None:
    for _ in range(RUNS):
        starter = random.choice([None, None, *persons[1:]])
        # Several runs of one moment, in which the id decides.
        moment = START + timedelta(minutes=random.randint(0, 9))
        graph = random.choice(GRAPHS)
        status = random.choice(STATUSES)
        run = a_run(started_by=starter, created_at=moment, graph=graph, status="paused")
        for _ in range(random.randint(0, 3)):
            request_status = random.choice(["open", "applied", "withdrawn"])
            names = random.sample(NAMES, random.randint(1, 3))
            a_request(run, *names, status=request_status)
        Run.objects.filter(id=run.id).update(status=status)


def _sees(person: Any, run: Run) -> bool:
    """Return whether a person sees a run, by the words of the rule."""
    if not person.is_active or not person.is_authenticated:
        return False
    if person.has_perm("checkpoints.view_run") or run.started_by == person:
        return True
    rows = RequestReviewer.objects.filter(request__run=run)
    named = set(rows.values_list("principal", flat=True))
    return not named.isdisjoint(principals_of(person))


def test_each_page_has_the_runs_that_the_person_may_see(
    random: Random, persons: list[Any], people: People
) -> None:
    _make_runs(random, persons)
    everything = list(Run.objects.order_by("-created_at", "-id"))
    for person in (*persons, people.auditor, people.reviewer):
        seen = [run for run in everything if _sees(person, run)]
        assert set(visible_runs(person)) == set(seen)
        asks = Run.objects.filter(graph="asks")
        matching = [run for run in seen if run.graph == "asks"]
        for start in range(0, len(seen) + 1, 7):
            page = slice(start, start + 8)
            listed = VisibleRuns.of(person, Run.objects.all())
            assert list(listed[page]) == seen[page]
            assert list(VisibleRuns.of(person, asks)[page]) == matching[page]
            backwards = listed.order_by("created_at", "id")
            assert list(backwards[page]) == seen[::-1][page]


def test_pages_begin_after_a_moment(
    random: Random, persons: list[Any], people: People
) -> None:
    _make_runs(random, persons)
    moment = START + timedelta(minutes=5)
    for person in (*persons, people.auditor):
        seen = visible_runs(person).order_by("-created_at", "-id")
        older = VisibleRuns.of(person, Run.objects.all()).filter(created_at__lt=moment)
        assert list(older[0:9]) == list(seen.filter(created_at__lt=moment)[:9])


def test_a_list_of_a_graph_and_of_statuses_has_the_runs_that_the_person_may_see(
    random: Random, persons: list[Any], people: People
) -> None:
    _make_runs(random, persons)
    for person in (*persons, people.auditor, people.reviewer):
        seen = visible_runs(person).order_by("-created_at", "-id")
        listed = VisibleRuns.of(person, Run.objects.all())
        for graph in GRAPHS:
            of_graph = listed.filter(graph=graph)
            assert list(of_graph[0:9]) == list(seen.filter(graph=graph)[:9])
            for number in (1, 2):
                statuses = random.sample(STATUSES, number)
                expected = seen.filter(graph=graph, status__in=statuses)
                page = of_graph.with_status(statuses)[3:9]
                assert list(page) == list(expected[3:9])
        failed = seen.filter(status="failed")
        assert list(listed.with_status(["failed"])[:9]) == list(failed[:9])


@pytest.mark.skipif(
    connection.vendor == "postgresql", reason="PostgreSQL reads a small table whole"
)
def test_a_part_of_a_list_in_any_order_reads_no_runs_of_others() -> None:
    ann = User.objects.create_user("ann")
    for _ in range(5):
        a_request(a_run(graph="pays"), "user:ann")
    listed = VisibleRuns.of(ann, Run.objects.all()).order_by()
    parts = {
        "graph": listed.filter(graph="pays"),
        "status": listed.with_status(["paused"]),
        "both": listed.filter(graph="pays").with_status(["paused"]),
        "span": listed.filter(graph="pays", created_at__gte=START),
    }

    def steps() -> dict[str, int]:
        costs = {}
        for name, part in parts.items():
            costs[name] = cost_of(lambda part=part: len(part[:3])).steps
        return costs

    steps()
    few = steps()
    for _ in range(300):
        a_run(graph="pays")
    assert steps() == few


@pytest.mark.skipif(
    connection.vendor == "postgresql", reason="PostgreSQL reads a small table whole"
)
def test_runs_of_a_graph_that_were_not_started_are_found_without_its_other_runs() -> (
    None
):
    ann = User.objects.create_user("ann")
    listed = VisibleRuns.of(ann, Run.objects.all()).order_by().filter(graph="pays")

    def steps(count: int) -> int:
        for number in range(count):
            a_run(graph=f"graph-{number % 20}")
            a_run(graph="pays")
        statistics.gather()
        return cost_of(lambda: len(listed.named_by(not_started())[:3])).steps

    few = steps(100)
    assert steps(300) <= few + 20


def test_conditions_without_an_index_and_runs_that_are_named_are_judged_too(
    random: Random, persons: list[Any], people: People
) -> None:
    _make_runs(random, persons)
    ids = Run.objects.filter(status="failed").values_list("id", flat=True)[:5]
    chosen = Q(id__in=list(ids))
    for person in (*persons, people.auditor):
        seen = visible_runs(person).filter(chosen).order_by("-created_at", "-id")
        listed = VisibleRuns.of(person, Run.objects.all())
        assert list(listed.where(chosen)[:9]) == list(seen)
        assert list(listed.named_by(chosen)[:9]) == list(seen)


def test_the_graphs_to_choose_are_those_of_the_runs_that_the_person_may_see(
    random: Random, persons: list[Any]
) -> None:
    a_request(a_run(graph="of nobody else"), "group:a", "user:ann")
    a_request(a_run(graph="hidden"), "group:z")
    _make_runs(random, persons)
    for person in persons:
        # In no group that has a right.
        graphs = visible_runs(person).values_list("graph", flat=True)
        assert visible_graphs(person) == set(graphs)
