"""Who may see which run, and who may sign what."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from approvals import permissions
from approvals.models import ApprovalRequest, RequestReviewer, RequestViewer
from approvals.people import standing_in
from approvals.visible_requests import VisibleRequests
from checkpoints.core.ids import uuid7
from checkpoints.models import Run, TaskResult
from orchestrator.engine.errors import UnknownThing
from tests.support.cast import People, UserFactory
from tests.support.rows import a_request, a_run, an_event

pytestmark = pytest.mark.django_db


@pytest.fixture
def claims(people: People) -> Group:
    group = Group.objects.create(name="claims")
    people.reviewer.groups.add(group)
    return group


def seen(user: Any) -> set[Run]:
    return set(permissions.visible_runs(user))


def test_operator_steward_and_auditor_see_every_run(people: People) -> None:
    run = a_run()
    for user in (people.starter, people.steward, people.auditor):
        assert seen(user) == {run}


def test_a_reviewer_sees_the_runs_that_name_him_and_no_others(
    people: People, claims: Group
) -> None:
    by_group = a_run()
    by_name = a_run()
    by_permission = a_run()
    other = a_run()
    a_request(by_group, "group:claims")
    a_request(by_name, "user:rita", status="applied")
    a_request(by_permission, "perm:approvals.decide")
    a_request(other, "user:ravi")
    assert seen(people.reviewer) == {by_group, by_name, by_permission}
    assert permissions.may_see_run(people.reviewer, by_group)
    assert not permissions.may_see_run(people.reviewer, other)


def test_who_started_a_run_sees_it_without_any_right(people: People) -> None:
    own = a_run(started_by=people.nobody)
    a_run()
    assert seen(people.nobody) == {own}


def test_a_run_that_names_somebody_twice_is_seen_once(
    people: People, claims: Group
) -> None:
    run = a_run(started_by=people.reviewer)
    a_request(run, "group:claims", "user:rita")
    a_request(run, "user:rita")
    assert permissions.visible_runs(people.reviewer).count() == 1


# So many that PostgreSQL reads none of the tables whole to spare itself look-ups.
OTHERS = 5000
"""Runs of other people, each with a request."""


@pytest.fixture
def crowded(people: People, claims: Group) -> list[Run]:
    """Two runs of the reviewer's among many of others, of whom each is asked by a group
    of his own and by `others`.
    """
    others = User.objects.bulk_create(
        [User(username=f"other-{n}") for n in range(OTHERS // 2)]
    )
    stamp = timezone.now()
    rows = [
        Run(
            id=uuid7(),
            key=f"other-{n}",
            graph="claim_payout",
            version="1",
            created_at=stamp,
            started_by=others[n % len(others)],
        )
        for n in range(OTHERS)
    ]
    Run.objects.bulk_create(rows, batch_size=500)
    task = {
        "line": 1,
        "visit": 1,
        "index": 0,
        "superstep": 1,
        "quorum": 1,
        "writes": 1,
        "opened_at": stamp,
    }
    asked = [
        ApprovalRequest(
            run=run,
            node="ask",
            graph="claim_payout",
            title=b"",
            facts=b"",
            policy={},
            **task,
        )
        for run in rows
    ]
    ApprovalRequest.objects.bulk_create(asked, batch_size=500)
    principals = [
        (thread, name)
        for n, thread in enumerate(asked)
        for name in ("group:others", f"group:{n // 2}")
    ]
    RequestReviewer.objects.bulk_create(
        [RequestReviewer(request=one, principal=name) for one, name in principals]
    )
    own = a_run(started_by=people.reviewer)
    asks = a_run()
    a_request(asks, "group:claims")
    with connection.cursor() as cursor:
        for model in (Run, ApprovalRequest, RequestReviewer, RequestViewer):
            cursor.execute(f"ANALYZE {model._meta.db_table}")
    return [own, asks]


def _scanned(rows: Any) -> list[str]:
    """The steps of the query's plan that go through a whole table or index."""
    plan = str(rows.explain()).splitlines()
    whole = (
        ("Seq Scan",)
        if connection.vendor == "postgresql"
        else ("SCAN checkpoints_", "SCAN approvals_", "SCAN U")
    )
    return [step for step in plan if any(word in step for word in whole)]


def test_what_one_may_see_costs_nothing_because_of_the_runs_of_others(
    people: People, crowded: list[Run]
) -> None:
    rita = people.reviewer
    assert seen(rita) == set(crowded)
    listed = permissions.visible_runs(rita)
    for rows in (
        listed[:25],
        listed.filter(graph="claim_payout")[:25],
        listed.order_by().values("graph").distinct(),
    ):
        assert _scanned(rows) == []
    assert _scanned(VisibleRequests(rita)[:25]) == []
    assert _scanned(VisibleRequests(rita, {"graph": "claim_payout"})[:25]) == []


def test_whether_one_may_see_a_run_costs_nothing_because_of_all_others_that_he_may_see(
    people: People, crowded: list[Run]
) -> None:
    people.reviewer.groups.add(Group.objects.create(name="others"))
    rita = User.objects.get(pk=people.reviewer.pk)
    wanted = Run.objects.filter(id__in=[run.id for run in crowded])
    assert set(permissions.visible_among(rita, wanted)) == set(crowded)
    assert _scanned(permissions.visible_among(rita, wanted)) == []
    assert permissions.visible_run(rita, crowded[0].key) == crowded[0]


def test_a_few_runs_and_all_runs_are_seen_by_the_same_rule(
    people: People, claims: Group
) -> None:
    runs = [a_run(started_by=people.nobody), a_run(), a_run()]
    a_request(runs[1], "group:claims", "user:rita")
    inactive = UserFactory(is_active=False)
    for user in (
        people.nobody,
        people.reviewer,
        people.auditor,
        inactive,
        AnonymousUser(),
    ):
        assert set(permissions.visible_among(user, Run.objects.all())) == seen(user)
        assert set(permissions.visible_relatives(user)) == seen(user)


def test_strangers_and_inactive_people_see_nothing(people: People) -> None:
    a_run(started_by=people.nobody)
    people.nobody.is_active = False
    assert seen(people.nobody) == set()
    assert seen(AnonymousUser()) == set()
    assert permissions.principals_of(people.nobody) == []


def test_a_run_is_found_by_id_and_by_key_and_is_unknown_to_whoever_may_not_see_it(
    people: People,
) -> None:
    run = a_run(key="CLM-3")
    assert permissions.visible_run(people.starter, "CLM-3") == run
    assert permissions.visible_run(people.starter, str(run.id)) == run
    for user, name in (
        (people.nobody, "CLM-3"),
        (people.starter, "CLM-4"),
        (people.nobody, str(run.id)),
    ):
        with pytest.raises(UnknownThing):
            permissions.visible_run(user, name)


def test_principals_are_the_name_the_groups_and_the_permissions(
    people: People, claims: Group
) -> None:
    assert sorted(permissions.principals_of(people.reviewer)) == [
        "group:claims",
        "group:reviewer",
        "perm:approvals.decide",
        "user:rita",
    ]


def test_a_page_reads_once_what_it_shows_and_anew_who_may_see_and_sign(
    people: People, claims: Group
) -> None:
    run = a_run()
    request = a_request(run, "group:claims")
    reviewer = User.objects.get(username="rita")
    with permissions.remembering_principals():
        assert permissions.may_see_run(reviewer, run)
        reviewer.groups.remove(claims)
        # Only what is shown is as it was when the page was begun.
        assert "group:claims" in permissions.principals_shown(reviewer)
        assert not permissions.may_see_run(reviewer, run)
        assert not permissions.may_decide(reviewer, request).yes
    assert "group:claims" not in permissions.principals_shown(reviewer)


class BackendOfItsOwn(ModelBackend):
    """A backend of a project that finds permissions in a way of its own."""

    def _get_user_permissions(self, user_obj: Any) -> Any:
        return Permission.objects.filter(codename="view_run")


def test_groups_and_permissions_of_a_person_are_read_by_one_statement(
    people: People, claims: Group
) -> None:
    root = UserFactory.create(username="root", is_superuser=True)
    expected = {}
    for person in (people.reviewer, people.auditor, root, people.nobody):
        django = User.objects.get(pk=person.pk)
        expected[person.pk] = (
            django.get_user_permissions(),
            django.get_group_permissions(),
            django.get_all_permissions(),
        )
    for pk, permissions_of_django in expected.items():
        person = User.objects.get(pk=pk)
        with CaptureQueriesContext(connection) as sent:
            permissions.principals_of(person)
        assert len(sent) == 1
        assert permissions_of_django == (
            person.get_user_permissions(),
            person.get_group_permissions(),
            person.get_all_permissions(),
        )


def test_permissions_are_left_to_a_backend_that_finds_them_in_its_own_way(
    people: People, settings: Any
) -> None:
    pk = people.reviewer.pk
    assert not permissions.may(User.objects.get(pk=pk), "view_run")
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.BackendOfItsOwn"]
    reviewer = User.objects.get(pk=pk)
    assert "perm:checkpoints.view_run" in permissions.principals_of(reviewer)
    assert permissions.may(reviewer, "view_run")


class BackendThatLeavesOutGroups(ModelBackend):
    """Finds permissions as a whole in its own way: none of a group counts."""

    def _get_permissions(self, user_obj: Any, obj: Any, from_name: str) -> Any:
        return set()


def test_a_backend_that_leaves_out_groups_is_not_passed_by(
    people: People, settings: Any
) -> None:
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.BackendThatLeavesOutGroups"]
    steward = User.objects.get(pk=people.steward.pk)
    permissions.principals_of(steward)
    assert not permissions.may(steward, "view_run")


def test_who_sees_all_pays_nothing_for_those_they_decide_for(people: People) -> None:
    for _ in range(3):
        standing_in.delegate(
            to=people.steward,
            ends=timezone.now() + timedelta(days=1),
            by=UserFactory.create(),
        )
    steward = User.objects.get(pk=people.steward.pk)
    with CaptureQueriesContext(connection) as sent:
        assert permissions.principals_unless_all(steward) is None
    assert len(sent) == 1


def test_what_a_page_remembers_of_one_person_is_nothing_about_another(
    people: People, claims: Group
) -> None:
    with permissions.remembering_principals():
        permissions.principals_of(people.reviewer)
        assert "group:claims" not in permissions.principals_shown(people.nobody)
        assert permissions.principals_shown(AnonymousUser()) == []


def test_a_superuser_sees_all_and_is_a_reviewer_only_where_named(claims: Group) -> None:
    root = UserFactory.create(username="root", is_superuser=True)
    run = a_run()
    request = a_request(run, "group:claims", "perm:approvals.decide")
    assert seen(root) == {run}
    assert permissions.may_decide(root, request) == (
        False,
        "You are not one of its reviewers.",
    )
    root.user_permissions.add(Permission.objects.get(codename="decide"))
    assert permissions.may_decide(root, request).yes


def test_membership_is_judged_anew_at_each_question(
    people: People, claims: Group
) -> None:
    request = a_request(a_run(), "group:claims")
    assert permissions.may_decide(people.reviewer, request).yes
    people.reviewer.groups.remove(claims)
    assert not permissions.may_decide(User.objects.get(username="rita"), request).yes


def test_without_four_eyes_the_starter_may_sign(people: People) -> None:
    run = a_run(started_by=people.starter)
    assert permissions.may_decide(people.starter, a_request(run, "user:olive")).yes


def test_four_eyes_exclude_who_started_who_it_is_for_and_who_settled(
    people: People,
) -> None:
    run = a_run(started_by=people.starter, on_behalf_of=people.steward)
    an_event(run, 1, type="run_started")
    settled(run, people.auditor)
    names = ("user:olive", "user:stella", "user:ada", "user:rita")
    request = a_request(run, *names, policy={"four_eyes": True})
    reasons = {
        u.username: permissions.may_decide(u, request).why_not
        for u in User.objects.all()
    }
    assert "started this run" in reasons["olive"]
    assert "on your behalf" in reasons["stella"]
    assert "settled an outcome" in reasons["ada"]
    assert permissions.may_decide(people.reviewer, request) == (True, "")


def settled(run: Run, by: User) -> None:
    now = timezone.now()
    facts = {
        "node": "pay",
        "visit": 1,
        "attempt": 1,
        "effect": "external",
        "epoch": 1,
        "superstep": 1,
    }
    TaskResult.objects.create(
        run=run, line=1, intent_at=now, over_at=now, settled_by=by, **facts
    )


@pytest.mark.parametrize(
    "status", ["completed", "rejected", "cancelled", "tampered", "incompatible"]
)
def test_nothing_is_open_in_a_run_that_is_over_or_refused(
    people: People, status: str
) -> None:
    assert status in permissions.closed(a_request(a_run(status=status), "user:rita"))


@pytest.mark.parametrize(
    "status", ["queued", "running", "paused", "waiting", "failed", "unknown"]
)
def test_a_request_stays_open_in_every_other_status(
    people: People, status: str
) -> None:
    assert permissions.closed(a_request(a_run(status=status), "user:rita")) == ""


def test_a_settled_request_is_closed() -> None:
    assert permissions.closed(a_request(a_run(), "user:rita", status="settled")) != ""


def test_a_right_that_does_not_exist_is_a_mistake_of_the_caller(people: People) -> None:
    assert permissions.may(people.starter, "start_run")
    assert not permissions.may(people.reviewer, "start_run")
    with pytest.raises(KeyError):
        permissions.may(people.starter, "everything")


def test_a_run_that_is_shown_brings_its_seal_with_what_the_seal_covers(
    people: People,
) -> None:
    run = permissions.visible_run(people.steward, a_run().id)
    assert run.get_deferred_fields() == {"input"}, (
        "a seal that is read later is that of a later state"
    )
