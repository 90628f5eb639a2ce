"""The password that a review asks for again: what it lets through, and where it stays."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.models import Decision, Draft, Receipt
from checkpoints.models import AuditLine, Run
from tests.support import run_actions
from tests.support.cast import PASSWORD, People
from tests.support.confirmed_graphs import doubly_gated, gated
from tests.support.review_forms import choose
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)

Browse = Callable[[User], Client]
WRONG = "not the right words at all"


@pytest.fixture
def rita(people: People) -> User:
    return run_actions.reviewer(people.reviewer)


def posted(client: Client, run: Run, password: str | None, **options: str) -> Any:
    page = client.get(reverse("review", args=[run.id]))
    form = choose(page, payout="approve")
    form |= options
    if password is not None:
        form["password"] = password
    return client.post(reverse("sign", args=[run.id]), form)


def test_a_review_asks_for_the_password_where_a_gate_wants_it(
    rita: User, browse: Browse
) -> None:
    asks = advanced(gated("asks", confirm="password"))
    silent = advanced(gated("silent"))
    html = browse(rita).get(reverse("review", args=[asks.id])).content.decode()
    assert 'name="password"' in html
    assert 'autocomplete="current-password"' in html
    html = browse(rita).get(reverse("review", args=[silent.id])).content.decode()
    assert 'name="password"' not in html


def test_the_right_password_signs_and_the_receipt_says_so(
    rita: User, browse: Browse
) -> None:
    run = advanced(gated(confirm="password"))
    answer = posted(browse(rita), run, PASSWORD)
    assert answer.status_code == 302
    assert Decision.objects.get().confirmed_by == "password"
    assert "confirmed by password" in browse(rita).get(answer.url).content.decode()


@pytest.mark.parametrize("password", [None, "", WRONG, PASSWORD + " "])
def test_without_it_nothing_is_signed_and_every_choice_stays(
    rita: User, browse: Browse, password: str | None
) -> None:
    run = advanced(gated(confirm="password"))
    answer = posted(browse(rita), run, password)
    assert answer.status_code == 403
    assert answer.headers["X-Unconfirmed"] == "1"
    html = answer.content.decode()
    assert "Nothing was signed" in html
    assert " checked" in html
    if password:
        assert password not in html
        line = AuditLine.objects.get(kind="refused_confirmation")
        assert (line.actor, line.run) == (rita, run.id)
        assert password not in str(line.facts)
    assert not Decision.objects.exists()
    assert not Receipt.objects.exists()


def test_an_account_without_a_password_reads_the_cure_and_is_not_counted(
    rita: User, browse: Browse
) -> None:
    rita.set_unusable_password()
    rita.save()
    run = advanced(gated(confirm="password"))
    client = browse(rita)
    for _ in range(6):
        answer = posted(client, run, WRONG)
    assert answer.status_code == 403
    html = answer.content.decode()
    assert "Ask an administrator to set one" in html
    assert " checked" in html
    assert not AccessAttempt.objects.exists()
    assert not AuditLine.objects.filter(kind="refused_login").exists()
    assert not Decision.objects.exists()


def test_the_password_of_somebody_else_does_nothing(
    rita: User, people: People, browse: Browse
) -> None:
    people.second_reviewer.set_password("another one entirely")
    people.second_reviewer.save()
    run = advanced(gated(confirm="password"))
    more = {"username": people.second_reviewer.username}
    answer = posted(browse(rita), run, "another one entirely", **more)
    assert answer.status_code == 403
    assert not Decision.objects.exists()


def test_wrong_ones_are_counted_as_log_ins_and_lock_without_losing_the_review(
    rita: User, browse: Browse
) -> None:
    run = advanced(gated(confirm="password"))
    client = browse(rita)
    for _ in range(5):
        answer = posted(client, run, WRONG)
    # Locked now: the right one is not even looked at, and the choices are still there.
    answer = posted(client, run, PASSWORD)
    assert answer.status_code == 403
    assert "too many wrong passwords" in answer.content.decode()
    assert " checked" in answer.content.decode()
    assert not Decision.objects.exists()
    log_in = Client().post(
        reverse("login"), {"username": rita.username, "password": PASSWORD}
    )
    assert log_in.status_code == 429


def test_the_right_one_forgives_the_slips_before_it(rita: User, browse: Browse) -> None:
    client = browse(rita)
    for name in ("first", "second", "third"):
        run = advanced(gated(name, confirm="password"))
        posted(client, run, WRONG)
        posted(client, run, WRONG)
        assert posted(client, run, PASSWORD).status_code == 302
    assert not AccessAttempt.objects.exists()


def test_the_right_one_forgives_nobody_else_and_no_other_address(
    rita: User, people: People, browse: Browse
) -> None:
    for name, address in ((rita.username, "203.0.113.9"), ("somebody", "127.0.0.1")):
        failed = {"username": name, "password": WRONG}
        Client().post(reverse("login"), failed, REMOTE_ADDR=address)
    run = advanced(gated(confirm="password"))
    assert posted(browse(rita), run, PASSWORD).status_code == 302
    assert AccessAttempt.objects.count() == 2


def test_it_is_neither_logged_nor_drafted_nor_carried_through_a_log_in(
    rita: User, browse: Browse, caplog: pytest.LogCaptureFixture
) -> None:
    run = advanced(gated(confirm="password"))
    client = browse(rita)
    page = client.get(reverse("review", args=[run.id]))
    form = {**choose(page, payout="approve"), "password": PASSWORD, "number": "1"}
    with caplog.at_level(logging.DEBUG):
        client.post(reverse("draft", args=[run.id]), form)
        signed_out = Client().post(reverse("sign", args=[run.id]), form)
        posted(client, run, PASSWORD)
    assert signed_out.status_code == 401
    assert PASSWORD not in signed_out.content.decode()
    assert PASSWORD not in caplog.text
    assert not Draft.objects.filter(choice__contains=PASSWORD.encode()).exists()


def test_an_edit_above_the_limit_is_asked_and_one_below_is_not(
    rita: User, browse: Browse
) -> None:
    run = advanced(gated(amount="10", confirm="password", confirm_above=5000))
    client = browse(rita)
    html = client.get(reverse("review", args=[run.id])).content.decode()
    assert "above\n          5000" in html
    assert posted(client, run, None).status_code == 302
    assert Decision.objects.get().confirmed_by == ""


def test_groups_of_writes_are_confirmed_too(rita: User, browse: Browse) -> None:
    run = advanced(gated("many", confirm="password", many=60))
    client = browse(rita)
    page = client.get(reverse("review", args=[run.id]))
    (group,) = page.context["page"].groups
    form = {"key": "k", "group": [group.id], f"g-{group.id}": "reject"}
    form |= {f"gs-{group.id}": group.seal, f"gr-{group.id}": "no"}
    form |= {"number": "1"}
    assert client.post(reverse("sign", args=[run.id]), form).status_code == 403
    assert not Decision.objects.exists()
    form["password"] = PASSWORD
    assert client.post(reverse("sign", args=[run.id]), form).status_code == 302
    assert set(Decision.objects.values_list("confirmed_by", flat=True)) == {"password"}


def test_a_gate_that_asks_for_a_passkey_is_not_opened_by_a_password(
    rita: User, browse: Browse
) -> None:
    run = advanced(gated(confirm="passkey"))
    answer = posted(browse(rita), run, PASSWORD)
    assert answer.status_code == 403
    assert "signed with a passkey" in answer.content.decode()
    assert not Decision.objects.exists()


def test_a_password_signs_what_asks_for_no_more_beside_what_asks_for_a_passkey(
    rita: User, browse: Browse
) -> None:
    run = advanced(doubly_gated())
    client = browse(rita)
    html = client.get(reverse("review", args=[run.id])).content.decode()
    assert 'name="password"' in html
    assert 'name="assertion"' in html
    assert posted(client, run, WRONG).status_code == 403
    assert posted(client, run, PASSWORD).status_code == 302
    decision = Decision.objects.get()
    assert (decision.channel, decision.confirmed_by) == ("payout", "password")


def test_a_password_signs_nothing_with_something_that_asks_for_a_passkey(
    rita: User, browse: Browse
) -> None:
    run = advanced(doubly_gated())
    client = browse(rita)
    page = client.get(reverse("review", args=[run.id]))
    form = choose(page, payout="approve", notes="approve") | {"password": PASSWORD}
    answer = client.post(reverse("sign", args=[run.id]), form)
    assert answer.status_code == 403
    assert "signed with a passkey" in answer.content.decode()
    assert not Decision.objects.exists()
