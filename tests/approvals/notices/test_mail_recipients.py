"""Who is meant by a notice, and when it is quiet."""

from datetime import UTC, datetime, time
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User

from approvals import reviews
from approvals.models import MailPreference, Notice
from approvals.notices.mail_recipients import is_quiet, people_for
from orchestrator import runs
from tests.support.cast import People
from tests.support.confirmed_graphs import gated
from tests.support.rows import a_request, a_run
from tests.support.run_actions import request, reviewer
from tests.support.small_graphs import advanced


def names(notice: Notice) -> set[str]:
    return {person.username for person in people_for(notice)}


@pytest.mark.django_db
def test_reviewers_are_found_by_name_group_and_permission(people: People) -> None:
    people.nobody.user_permissions.add(Permission.objects.get(codename="view_audit"))
    User.objects.create_superuser("root", email="root@example.org")
    User.objects.create_user("mute").groups.add(Group.objects.get(name="reviewer"))
    assert people.reviewer.email
    assert people.starter.email
    for principal, expected in (
        ("user:rita", {"rita"}),
        ("group:reviewer", {"rita"}),
        ("perm:approvals.decide", {"rita"}),
        ("perm:approvals.view_audit", {"nobody"}),
        ("user:gone", set()),
        ("perm:nonsense", set()),
        ("other:rita", set()),
    ):
        Notice.objects.all().delete()
        a_request(a_run(), principal)
        assert names(Notice.objects.get()) == expected, principal


@pytest.mark.parametrize(
    ("begin", "end", "zone", "quiet"),
    [
        (None, None, "UTC", False),
        (time(22), time(7), "UTC", True),
        (time(22), time(7), "Asia/Tokyo", False),
        (time(1), time(2), "UTC", False),
        (time(23), time(23, 30), "UTC", True),
        (time(23, 15), time(23, 30), "UTC", False),
        (time(8), time(9), "Asia/Tokyo", True),
        (time(5), time(5), "UTC", False),
    ],
)
def test_quiet_hours_pass_midnight_in_the_time_zone_of_the_person(
    begin: Any, end: Any, zone: str, quiet: bool
) -> None:
    preference = MailPreference(quiet_from=begin, quiet_until=end, time_zone=zone)
    assert is_quiet(preference, datetime(2026, 11, 28, 23, 10, tzinfo=UTC)) is quiet


@pytest.mark.django_db
def test_a_comment_notifies_the_starter_the_holder_and_earlier_commenters(
    people: People,
) -> None:
    graph = advanced(gated()).graph
    run = runs.advance(runs.start(graph, {}, by=people.starter).id)
    open_request = request(run)
    rita = reviewer(people.reviewer)
    reviews.claim(open_request.id, by=rita)
    reviews.comment(open_request.id, "Who knows this payee?", by=people.steward)
    comments = Notice.objects.filter(event="request.commented")
    assert names(comments.order_by("id")[0]) == {"olive", "rita"}
    reviews.comment(open_request.id, "I do.", by=rita)
    assert names(comments.order_by("-id")[0]) == {"olive", "stella"}
