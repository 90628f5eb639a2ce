"""Notices in the console: who gets one, what it says, and what it costs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from approvals import reviews
from approvals.list_columns import FOR_WEBHOOKS
from approvals.models import Notice, NoticeMail, PersonNotice, WebhookDelivery
from approvals.notice_rows import EVENTS
from approvals.notices import delivery_jobs, person_notices
from approvals.people.notice_list import (
    KIND_WORDS,
    KINDS,
    SENTENCES,
    UNSEEN,
    choose_kinds,
    count_unread,
    kind_of,
    listed_notices,
    mark_read,
    notices_of,
)
from approvals.webhooks import verbs as webhooks
from checkpoints.models import Run
from orchestrator.engine.errors import InvalidValue
from tests.support.api_people import Client
from tests.support.cast import People, UserFactory
from tests.support.confirmed_graphs import gated, items_of
from tests.support.run_actions import request, reviewer
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: People) -> User:
    return reviewer(people.reviewer)


@pytest.fixture
def run(rita: User) -> Run:
    return advanced(gated())


def passed_on() -> None:
    while delivery_jobs._pass_on() is not None:
        pass


def events_of(user: User) -> list[str]:
    return list(notices_of(user).values_list("event", flat=True))


def test_a_reviewer_reads_what_waits_and_the_signer_what_came_of_it(
    rita: User, run: Run
) -> None:
    passed_on()
    assert events_of(rita) == ["request.opened"]
    (notice,) = listed_notices(rita, list(notices_of(rita)))
    assert notice.sentence == "A review was opened"
    assert notice.title
    assert notice.link == f"/reviews/{run.id}/"
    reviews.sign(run.id, items_of(run), by=rita)
    passed_on()
    assert "request.settled" in events_of(rita)


def test_a_comment_is_listed_to_those_concerned_but_not_to_its_author(
    rita: User, run: Run, people: People
) -> None:
    reviews.claim(request(run).id, by=rita)
    reviews.comment(request(run).id, "Who knows them?", by=people.steward)
    passed_on()
    assert "request.commented" in events_of(rita)
    assert events_of(people.steward) == []


def test_passing_on_twice_writes_none_twice_and_what_is_rolled_back_writes_none(
    rita: User, run: Run
) -> None:
    passed_on()
    Notice.objects.update(passed_on_at=None)
    passed_on()
    assert PersonNotice.objects.filter(user=rita).count() == 1
    with transaction.atomic():
        reviews.comment(request(run).id, "Never mind.", by=rita)
        transaction.set_rollback(True)
    passed_on()
    assert not PersonNotice.objects.filter(event="request.commented").exists()


def test_whoever_may_not_see_the_run_any_more_reads_nothing_of_it(
    rita: User, run: Run, browse: Callable[[User], Browser]
) -> None:
    a_notice(rita, 1, event="request.settled", outcome="rejected")
    assert "rejected" in browse(rita).get("/notices/").content.decode()
    lose_rights(rita)
    (notice,) = listed_notices(User.objects.get(pk=rita.pk), list(notices_of(rita)))
    assert (notice.sentence, notice.title, notice.link) == (UNSEEN, "", "")
    html = browse(rita).get("/notices/").content.decode()
    assert UNSEEN in html
    assert "rejected" not in html
    (line,) = Client(rita).get("notices/").json()["results"]
    assert (line["visible"], line["run"], line["request"]) == (False, None, None)
    assert (line["event"], line["outcome"]) == ("", "")


def lose_rights(user: User) -> None:
    user.groups.clear()
    user.user_permissions.clear()


def test_who_may_not_see_the_run_when_it_is_passed_on_gets_no_notice(
    rita: User, run: Run, people: People
) -> None:
    reviews.comment(request(run).id, "Who knows them?", by=rita)
    reviews.comment(request(run).id, "I do.", by=people.steward)
    reviews.sign(run.id, items_of(run), by=rita)
    lose_rights(rita)
    passed_on()
    assert events_of(rita) == []
    assert "request.commented" in events_of(people.steward)


def test_a_review_that_was_decided_before_it_was_passed_on_is_listed_to_nobody(
    rita: User, run: Run
) -> None:
    reviews.sign(run.id, items_of(run), by=rita)
    passed_on()
    assert "request.opened" not in events_of(rita)
    assert "request.settled" in events_of(rita)


@pytest.mark.parametrize("starts_as", ["started_by", "on_behalf_of"])
def test_for_whom_a_run_was_started_under_four_eyes_hears_of_no_review(
    rita: User, people: People, starts_as: str
) -> None:
    second = reviewer(people.second_reviewer)
    run = advanced(gated(four_eyes=True))
    Run.objects.filter(id=run.id).update(**{starts_as: rita})
    passed_on()
    assert events_of(rita) == []
    assert events_of(second) == ["request.opened"]


def test_a_transaction_ends_with_the_notice_that_makes_it_large(
    rita: User, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = reviewer(people.second_reviewer)
    for number in range(3):
        advanced(gated(f"gated-{number}"))
    monkeypatch.setattr(person_notices, "MOST_ROWS", 3)
    assert delivery_jobs._pass_on() == 1
    assert PersonNotice.objects.count() == 2
    assert Notice.objects.filter(passed_on_at=None).count() == 2
    passed_on()
    assert len(events_of(rita)) == len(events_of(second)) == 3


def test_a_notice_to_very_many_people_is_written_in_parts_and_survives_a_crash(
    rita: User, monkeypatch: pytest.MonkeyPatch, configure: Any
) -> None:
    configure(
        MAIL_FROM="Countersign <runs@example.org>",
        WEBHOOKS_TO_PRIVATE_ADDRESSES=True,
    )
    webhooks.add_webhook("https://127.0.0.1/", by=None)
    group = Group.objects.get(name="claims")
    for number in range(4):
        UserFactory.create(username=f"member-{number}").groups.add(group)
    people = set(group.user_set.values_list("pk", flat=True))
    assert len(people) == 5
    advanced(gated())
    monkeypatch.setattr(person_notices, "MOST_ROWS", 2)

    def rows_of(model: Any) -> list[int]:
        return list(model.objects.values_list("user", flat=True))

    assert delivery_jobs._pass_on() == 0
    assert len(rows_of(PersonNotice)) == len(rows_of(NoticeMail)) == 2
    with monkeypatch.context() as crashing:
        crashing.setattr(NoticeMail.objects, "bulk_create", _crash)
        with pytest.raises(RuntimeError, match="crashed"):
            delivery_jobs._pass_on()
    assert len(rows_of(PersonNotice)) == 2
    assert delivery_jobs._pass_on() == 0
    assert len(rows_of(PersonNotice)) == len(rows_of(NoticeMail)) == 4
    assert not WebhookDelivery.objects.exists()
    assert Notice.objects.filter(passed_on_at=None).count() == 1

    assert delivery_jobs._pass_on() == 1
    assert (
        sorted(rows_of(PersonNotice)) == sorted(rows_of(NoticeMail)) == sorted(people)
    )
    assert WebhookDelivery.objects.count() == 1
    assert delivery_jobs._pass_on() is None


def _crash(*rows: Any, **options: Any) -> None:
    raise RuntimeError("crashed")


def test_people_whom_several_notices_mean_are_read_once(rita: User) -> None:
    for number in range(3):
        advanced(gated(f"gated-{number}"))
    notices = list(Notice.objects.filter(event="request.opened"))
    counts = []
    for several in (notices[:1], notices):
        with CaptureQueriesContext(connection) as captured:
            rows, _ = person_notices.new_person_notices(several)
        assert len(rows) == len(several)
        counts.append(len(captured))
    # Requests, accounts, those whose rights are judged (nobody's), and preferences.
    assert counts == [3, 3]


def test_a_person_chooses_which_kinds_are_listed(rita: User) -> None:
    choose_kinds(rita, ["outcomes", "comments"])
    advanced(gated())
    passed_on()
    assert events_of(rita) == []
    with pytest.raises(InvalidValue, match="of the kind mail"):
        choose_kinds(rita, ["mail"])


def test_the_newest_that_came_since_stay_unread(rita: User, run: Run) -> None:
    passed_on()
    newest = notices_of(rita)[0].id
    reviews.sign(run.id, items_of(run), by=rita)
    passed_on()
    unread = count_unread(rita)
    assert mark_read(rita, until=newest) == 1
    assert count_unread(rita) == unread - 1
    assert mark_read(rita, until=newest) == 0


def test_what_was_committed_late_with_a_lower_number_stays_unread(
    rita: User, run: Run, browse: Callable[[User], Browser]
) -> None:
    a_notice(rita, 7)
    until = browse(rita).get("/notices/").context["newest"]
    (line,) = Client(rita).get("notices/").json()["results"]
    assert line["number"] == until
    late = a_notice(rita, 3)
    browse(rita).post("/notices/read/", {"until": str(until)})
    unread = PersonNotice.objects.filter(read_at=None)
    assert [row.id for row in unread] == [late.id]
    # The page marks all that it counts, wherever they stand in its order.
    assert browse(rita).get("/notices/").context["newest"] == late.id


def a_notice(user: User, number: int, **fields: Any) -> PersonNotice:
    run = Run.objects.values_list("id", flat=True)[0]
    fields = {"event": "request.opened", "at": timezone.now(), "run": run, **fields}
    return PersonNotice.objects.create(user=user, notice=number, **fields)


def test_no_more_than_a_hundred_are_counted(rita: User, run: Run) -> None:
    for number in range(1, 121):
        a_notice(rita, number)
    with CaptureQueriesContext(connection) as captured:
        assert count_unread(rita) == 100
    assert len(captured) == 1
    assert "LIMIT 100" in captured[0]["sql"]


def test_they_are_removed_after_ninety_days_and_with_their_person(
    rita: User, run: Run, people: People
) -> None:
    past = timezone.now() - timedelta(days=91)
    a_notice(rita, 1, at=past)
    a_notice(rita, 2, at=timezone.now() - timedelta(days=89))

    class Lease:
        place = ""

    list(delivery_jobs.notices_that_are_old(Lease()))  # type: ignore[arg-type]
    assert [row.notice for row in PersonNotice.objects.all()] == [2]
    a_notice(people.nobody, 3)
    people.nobody.delete()
    assert [row.notice for row in PersonNotice.objects.all()] == [2]


@pytest.fixture
def browse() -> Callable[[User], Browser]:
    def open_for(user: User) -> Browser:
        browser = Browser()
        browser.force_login(user)
        return browser

    return open_for


def test_a_person_reads_marks_and_chooses_on_the_page(
    rita: User, run: Run, browse: Callable[[User], Browser]
) -> None:
    client = browse(rita)
    assert "Nothing yet" in client.get("/notices/").content.decode()
    passed_on()
    html = client.get("/notices/").content.decode()
    assert "A review was opened" in html
    assert "1 unread." in html
    assert 'data-unread="1"' in html
    assert 'aria-label="Notices, 1 unread"' in html
    assert "data-notices>1</span>" in html
    until = str(notices_of(rita)[0].id)
    answer = client.post("/notices/read/", {"until": until}, follow=True)
    assert "You have read all of them." in answer.content.decode()
    client.post("/notices/kinds/", {"comments": "1"})
    html = client.get("/notices/").content.decode()
    assert html.count("checked") == 1
    for nonsense in ("", "-1", "9" * 5000, "٣"):
        assert client.post("/notices/read/", {"until": nonsense}).status_code == 302


def test_the_page_costs_the_same_however_many_there_are(
    rita: User, run: Run, browse: Callable[[User], Browser]
) -> None:
    passed_on()
    client = browse(rita)
    client.get("/notices/")
    counts = []
    for first in (100_000, 200_000):
        with CaptureQueriesContext(connection) as captured:
            client.get("/notices/")
        counts.append(len(captured))
        for number in range(first, first + 60):
            a_notice(rita, number, request=request(run).id)
    assert counts[0] == counts[1]
    assert "Earlier" in client.get("/notices/").content.decode()


def test_the_api_lists_them_in_pages_and_marks_them_as_read(
    rita: User, run: Run, people: People
) -> None:
    passed_on()
    client = Client(rita)
    (line,) = client.get("notices/").json()["results"]
    assert line["event"] == "request.opened"
    assert line["run"] == str(run.id)
    assert line["visible"] is True
    assert line["read_at"] is None
    answer = client.post("notices/read/", {"until": line["number"]})
    assert answer.json() == {"unread": 0}
    assert Client(people.nobody).get("notices/").json()["results"] == []
    reader = Client(rita, ["read"])
    assert reader.post("notices/read/", {"until": 1}).status_code == 403


def test_every_event_but_those_for_webhooks_is_listed_in_words() -> None:
    listed = [event for event in EVENTS if event not in FOR_WEBHOOKS]
    assert [event for event in listed if not kind_of(event)] == []
    assert set(SENTENCES) == set(listed)
    assert set(KIND_WORDS) == set(KINDS)
