"""Notices arrive by mail, once for each person, when that person wants them."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core import mail
from django.core.mail.backends import locmem
from django.utils import timezone

from approvals import reviews
from approvals.models import (
    ApprovalRequest,
    Delegation,
    MailPreference,
    Notice,
    NoticeMail,
)
from approvals.notices import mail_jobs
from checkpoints.ledger.pending_writes import StoredBase
from checkpoints.models import Job
from tests.support import notices, run_actions
from tests.support.cast import People, UserFactory
from tests.support.deadlines import paused_run
from tests.support.rows import a_decision, a_request, a_run, a_write
from tests.support.tiers import HOUR, ONE_OF_EACH, let_tiers_come, work_off_tiers

pytestmark = pytest.mark.django_db(transaction=True)
SENDER = "Countersign <runs@example.org>"


@pytest.fixture(autouse=True)
def _configured(configure: Any) -> None:
    configure(MAIL_FROM=SENDER, SITE_URL="https://runs.example.org")


def prefer(person: Any, **columns: Any) -> None:
    MailPreference.objects.update_or_create(user=person, defaults=columns)


def subjects() -> list[str]:
    return [message.subject for message in mail.outbox]


def let_pass(**past: float) -> None:
    """Let so much time pass since the last messages."""
    for row in NoticeMail.objects.exclude(sent_at=None):
        sent_at = row.sent_at - timedelta(**past) if row.sent_at else None
        NoticeMail.objects.filter(id=row.id).update(sent_at=sent_at)


def test_a_reviewer_hears_of_a_review_with_its_question_and_a_link(
    people: People,
) -> None:
    request = a_request(a_run(), "user:rita", title="Pay Marta?")
    assert people.reviewer.email
    notices.send_notices()
    [message] = mail.outbox
    assert message.to == [people.reviewer.email]
    assert message.from_email == SENDER
    assert message.subject == "A review waits for you: Pay Marta?"
    assert f"https://runs.example.org/reviews/{request.run_id}/" in message.body
    notices.send_notices()
    assert len(mail.outbox) == 1


def test_without_a_sender_nobody_gets_mail(people: People, configure: Any) -> None:
    configure(MAIL_FROM="")
    assert people.reviewer.email
    a_request(a_run(), "user:rita")
    notices.send_notices()
    assert mail.outbox == []
    assert not NoticeMail.objects.exists()


def test_messages_are_gathered_for_ten_minutes(people: People) -> None:
    assert people.reviewer.email
    for number in range(3):
        a_request(a_run(), "user:rita", title=f"Question {number}")
        notices.send_notices()
    assert subjects() == ["A review waits for you: Question 0"]
    let_pass(minutes=11)
    notices.send_notices()
    assert subjects()[1:] == ["2 notices: A review waits for you: Question 1"]
    assert "Question 2" in mail.outbox[1].body


def test_a_deadline_that_is_near_is_not_gathered(people: People) -> None:
    assert people.reviewer.email
    for minutes in (None, 120, 20):
        deadline = minutes and timezone.now() + timedelta(minutes=minutes)
        a_request(a_run(), "user:rita", deadline=deadline)
        notices.send_notices()
    assert len(mail.outbox) == 2


def test_who_wants_each_at_once_gets_each_at_once(people: People) -> None:
    prefer(people.reviewer, mode="at_once")
    for _ in range(2):
        a_request(a_run(), "user:rita")
        notices.send_notices()
    assert len(mail.outbox) == 2


def test_who_wants_none_gets_none(people: People) -> None:
    prefer(people.reviewer, mode="none")
    a_request(a_run(), "user:rita")
    notices.send_notices()
    assert mail.outbox == []
    assert not NoticeMail.objects.exists()


def test_what_comes_in_quiet_hours_waits_until_they_end(people: People) -> None:
    now = timezone.now()
    begin = (now - timedelta(hours=1)).time()
    prefer(
        people.reviewer, quiet_from=begin, quiet_until=(now + timedelta(hours=2)).time()
    )
    a_request(a_run(), "user:rita")
    notices.send_notices()
    assert mail.outbox == []
    prefer(people.reviewer, quiet_from=None, quiet_until=None)
    notices.send_notices()
    assert len(mail.outbox) == 1


@pytest.mark.parametrize("case", ["left", "decided", "inactive", "four eyes"])
def test_who_may_not_decide_any_more_when_it_is_sent_gets_none(
    people: People, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = people.reviewer
    run = a_run(started_by=person if case == "four eyes" else None)
    policy = {"four_eyes": True} if case == "four eyes" else {}
    request = a_request(run, "group:reviewer", policy=policy)
    with monkeypatch.context() as patched:
        patched.setattr(mail_jobs, "send_mails", lambda: iter(()))
        notices.send_notices()
    assert NoticeMail.objects.count() == 1
    if case == "left":
        person.groups.clear()
    if case == "decided":
        ApprovalRequest.objects.filter(id=request.id).update(status="settled")
        Notice.objects.filter(event="request.settled").delete()
    if case == "inactive":
        type(person).objects.filter(pk=person.pk).update(is_active=False)
    notices.send_notices()
    assert mail.outbox == []
    assert not NoticeMail.objects.exists()


def test_who_signed_hears_how_it_was_decided_and_what_came_of_it(
    people: People,
) -> None:
    request = a_request(a_run(), "group:reviewer", title="Pay?")
    write = a_write(
        request, 1, channel="payout", value=1, base=StoredBase("", {}, bound=True)
    )
    a_decision(write, request, by=people.reviewer, verdict="approve", seq=1)
    assert people.second_reviewer.email
    Notice.objects.all().delete()
    rows = ApprovalRequest.objects.filter(id=request.id)
    rows.update(status="settled", outcome="approved")
    rows.update(status="applied")
    type(request.run).objects.update(status="failed")
    notices.send_notices()
    [message] = mail.outbox
    assert message.to == [people.reviewer.email]
    assert "A review that you signed was decided: Pay?" in message.body
    assert "What came of a review that you signed" in message.body
    assert "Outcome: failed" in message.body


def test_a_process_killed_between_sending_and_recording_sends_the_same_message_again(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert people.reviewer.email
    a_request(a_run(), "user:rita", title="Pay?")
    send = locmem.EmailBackend.send_messages

    def killed(self: Any, messages: Any) -> int:
        send(self, messages)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(locmem.EmailBackend, "send_messages", killed)
        with pytest.raises(KeyboardInterrupt):
            notices.send_notices()
    a_request(a_run(), "user:rita", title="Another?")
    Job.objects.filter(status="running").update(lease_until="2020-01-01T00:00Z")
    notices.send_notices()
    ids = [message.extra_headers["Message-ID"] for message in mail.outbox]
    assert len(ids) == 2
    assert len(set(ids)) == 1
    assert subjects() == ["A review waits for you: Pay?"] * 2


def test_what_the_mail_server_refuses_is_tried_again_for_a_day(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert people.reviewer.email
    a_request(a_run(), "user:rita")

    def away(self: Any, messages: Any) -> int:
        raise ConnectionRefusedError

    with monkeypatch.context() as patched:
        patched.setattr(locmem.EmailBackend, "send_messages", away)
        notices.send_notices()
        row = NoticeMail.objects.get()
        assert (row.status, row.attempts) == ("waiting", 1)
        made_at = timezone.now() - timedelta(days=1, hours=1)
        NoticeMail.objects.update(made_at=made_at, due_at=timezone.now())
        notices.send_notices()
    assert NoticeMail.objects.get().status == "given_up"


def test_a_reminder_goes_to_those_who_have_not_decided_and_an_escalation_to_whom_it_names(
    people: People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run_actions.reviewer(people.second_reviewer)
    lena = UserFactory.create(username="lena")
    lena.groups.add(Group.objects.create(name="leads"))
    run = paused_run(tiers=ONE_OF_EACH, quorum=2, deadline=None)
    run_actions.sign(run, rita, ["approve", "approve"])
    notices.send_notices()
    mail.outbox.clear()
    let_pass(minutes=20)

    let_tiers_come(run, by=5 * HOUR)
    work_off_tiers(run)
    notices.send_notices()
    assert {message.to[0]: message.subject for message in mail.outbox} == {
        "ravi@example.org": "A review still waits: propose",
        "lena@example.org": "A review waits for you too: propose",
    }


def test_whom_a_reminder_names_hear_of_it_if_they_may_see_the_run(
    people: People,
) -> None:
    assert people.steward.email
    UserFactory.create(username="stranger")
    run = paused_run(
        tiers=[(HOUR, "remind", ["user:stella", "user:stranger"])], deadline=None
    )
    notices.send_notices()
    mail.outbox.clear()
    let_tiers_come(run)
    work_off_tiers(run)
    notices.send_notices()
    assert [message.to for message in mail.outbox] == [["stella@example.org"]]


def stands_in(delegator: Any, delegate: Any, **times: Any) -> Any:
    times = {"ends": timezone.now() + timedelta(days=1), **times}
    return reviews.delegate(to=delegate, by=delegator, **times)


def test_who_stands_in_for_a_reviewer_hears_of_a_review_and_nobody_twice(
    people: People,
) -> None:
    # Rita and Ravi are in the group, and Rita stands in for Ravi besides.
    stands_in(people.reviewer, people.starter)
    stands_in(people.second_reviewer, people.starter)
    stands_in(people.second_reviewer, people.reviewer)
    a_request(a_run(), "group:reviewer", title="Pay Marta?")
    notices.send_notices()
    recipients = sorted(address for message in mail.outbox for address in message.to)
    expected = (people.reviewer, people.second_reviewer, people.starter)
    assert recipients == sorted(person.email for person in expected)


@pytest.mark.parametrize(
    "case", ["over", "to come", "revoked", "put back", "passed on"]
)
def test_who_does_not_stand_in_now_gets_none(people: People, case: str) -> None:
    now = timezone.now()
    times = {"begins": now + timedelta(hours=1)} if case == "to come" else {}
    passed_on = stands_in(people.reviewer, people.nobody, **times)
    if case == "over":
        earlier = {"begins_at": now - timedelta(2), "ends_at": now - timedelta(1)}
        Delegation.objects.update(**earlier)
    if case in ("revoked", "put back"):
        reviews.revoke_delegation(passed_on.id, by=people.reviewer)
    if case == "put back":
        passed_on.save()
    if case == "passed on":
        reviews.revoke_delegation(passed_on.id, by=people.reviewer)
        stands_in(people.reviewer, people.starter)
        stands_in(people.starter, people.nobody)
    a_request(a_run(), "user:rita")
    notices.send_notices()
    addresses = [address for message in mail.outbox for address in message.to]
    assert people.nobody.email not in addresses
