"""Who may see which run, and who may sign what."""

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.utils import timezone

from approvals import permissions
from checkpoints.models import Run, TaskResult
from orchestrator.engine.errors import UnknownThing
from tests.support.cast import People, UserFactory
from tests.support.rows import a_request, a_run

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


def test_a_reviewer_sees_the_runs_that_name_him_and_no_others(people: People, claims: Group) -> None:
    by_group, by_name, by_permission, other = a_run(), a_run(), a_run(), a_run()
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


def test_a_run_that_names_somebody_twice_is_seen_once(people: People, claims: Group) -> None:
    run = a_run(started_by=people.reviewer)
    a_request(run, "group:claims", "user:rita")
    a_request(run, "user:rita")
    assert permissions.visible_runs(people.reviewer).count() == 1


def test_strangers_and_inactive_people_see_nothing(people: People) -> None:
    a_run(started_by=people.nobody)
    people.nobody.is_active = False
    assert seen(people.nobody) == set()
    assert seen(AnonymousUser()) == set()
    assert permissions.principals_of(people.nobody) == []


def test_a_run_is_found_by_id_and_by_key_and_is_unknown_to_whoever_may_not_see_it(people: People) -> None:
    run = a_run(key="CLM-3")
    assert permissions.visible_run(people.starter, "CLM-3") == run
    assert permissions.visible_run(people.starter, str(run.id)) == run
    for user, name in ((people.nobody, "CLM-3"), (people.starter, "CLM-4"), (people.nobody, str(run.id))):
        with pytest.raises(UnknownThing):
            permissions.visible_run(user, name)


def test_principals_are_the_name_the_groups_and_the_permissions(people: People, claims: Group) -> None:
    assert sorted(permissions.principals_of(people.reviewer)) == [
        "group:claims",
        "group:reviewer",
        "perm:approvals.decide",
        "user:rita",
    ]


def test_a_superuser_sees_all_and_is_a_reviewer_only_where_named(claims: Group) -> None:
    root = UserFactory.create(username="root", is_superuser=True)
    run = a_run()
    request = a_request(run, "group:claims", "perm:approvals.decide")
    assert seen(root) == {run}
    assert permissions.may_decide(root, request) == (False, "You are not one of its reviewers.")
    root.user_permissions.add(Permission.objects.get(codename="decide"))
    assert permissions.may_decide(root, request).yes


def test_membership_is_judged_anew_at_each_question(people: People, claims: Group) -> None:
    request = a_request(a_run(), "group:claims")
    assert permissions.may_decide(people.reviewer, request).yes
    people.reviewer.groups.remove(claims)
    assert not permissions.may_decide(User.objects.get(username="rita"), request).yes


def test_without_four_eyes_the_starter_may_sign(people: People) -> None:
    run = a_run(started_by=people.starter)
    assert permissions.may_decide(people.starter, a_request(run, "user:olive")).yes


def test_four_eyes_exclude_who_started_who_it_is_for_and_who_settled(people: People) -> None:
    run = a_run(started_by=people.starter, on_behalf_of=people.steward)
    settled(run, people.auditor)
    names = ("user:olive", "user:stella", "user:ada", "user:rita")
    request = a_request(run, *names, policy={"four_eyes": True})
    reasons = {u.username: permissions.may_decide(u, request).why_not for u in User.objects.all()}
    assert "started this run" in reasons["olive"]
    assert "on your behalf" in reasons["stella"]
    assert "settled an outcome" in reasons["ada"]
    assert permissions.may_decide(people.reviewer, request) == (True, "")


def settled(run: Run, by: User) -> None:
    now = timezone.now()
    facts = {"node": "pay", "visit": 1, "attempt": 1, "effect": "external", "epoch": 1, "superstep": 1}
    TaskResult.objects.create(run=run, line=1, intent_at=now, over_at=now, settled_by=by, **facts)


@pytest.mark.parametrize("status", ["completed", "rejected", "cancelled", "tampered", "incompatible"])
def test_nothing_is_open_in_a_run_that_is_over_or_refused(people: People, status: str) -> None:
    assert status in permissions.closed(a_request(a_run(status=status), "user:rita"))


@pytest.mark.parametrize("status", ["queued", "running", "paused", "waiting", "failed", "unknown"])
def test_a_request_stays_open_in_every_other_status(people: People, status: str) -> None:
    assert permissions.closed(a_request(a_run(status=status), "user:rita")) == ""


def test_a_settled_request_is_closed() -> None:
    assert permissions.closed(a_request(a_run(), "user:rita", status="settled")) != ""


def test_a_right_that_does_not_exist_is_a_mistake_of_the_caller(people: People) -> None:
    assert permissions.may(people.starter, "start_run")
    assert not permissions.may(people.reviewer, "start_run")
    with pytest.raises(KeyError):
        permissions.may(people.starter, "everything")


def test_a_run_that_is_shown_brings_its_seal_with_what_the_seal_covers(people: People) -> None:
    run = permissions.visible_run(people.steward, a_run().id)
    assert run.get_deferred_fields() == {"input"}, "a seal that is read later is that of a later state"
