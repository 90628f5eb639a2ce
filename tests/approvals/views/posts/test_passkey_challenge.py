"""Signing a review with a passkey, as a browser does it: a challenge over what is chosen,
and the answer with the form.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.confirmation import Site
from approvals.models import Decision, PasskeyChallenge
from checkpoints.models import Run
from orchestrator import runs
from tests.support import authenticators, run_actions
from tests.support.authenticators import Authenticator
from tests.support.cast import PASSWORD, People
from tests.support.confirmed_graphs import gated
from tests.support.review_forms import choose
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)

Browse = Callable[[User], Client]
SITE = Site("testserver", "http://testserver")


@pytest.fixture
def rita(people: People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def authenticator(rita: User) -> Authenticator:
    return authenticators.registered(rita, SITE)[0]


@pytest.fixture
def run() -> Run:
    return advanced(gated(confirm="passkey"))


def form_of(client: Client, run: Run, verdict: str = "approve") -> dict[str, Any]:
    page = client.get(reverse("review", args=[run.id]))
    return choose(page, payout=verdict)


def challenge(client: Client, run: Run, form: dict[str, Any]) -> Any:
    return client.post(reverse("challenge", args=[run.id]), form)


def answered(authenticator: Authenticator, asked: Any) -> str:
    credential = authenticator.sign(asked["options"])
    return json.dumps({"challenge": asked["challenge"], "credential": credential})


def test_a_review_is_signed_with_a_passkey_and_its_receipt_names_it(
    run: Run, rita: User, browse: Browse, authenticator: Authenticator
) -> None:
    client = browse(rita)
    form = form_of(client, run)
    response = challenge(client, run, form)
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    form["assertion"] = answered(authenticator, response.json())
    answer = client.post(reverse("sign", args=[run.id]), form)
    assert answer.status_code == 302
    assert Decision.objects.get().confirmed_by == "passkey"
    html = client.get(answer.url).content.decode()
    assert "My laptop" in html
    assert "confirmed by passkey" in html


def test_a_signature_whose_answer_was_lost_is_posted_again_and_answered(
    run: Run, rita: User, browse: Browse, authenticator: Authenticator
) -> None:
    client = browse(rita)
    form = form_of(client, run)
    issued = challenge(client, run, form).json()
    signed = form | {"assertion": answered(authenticator, issued)}
    receipt = client.post(reverse("sign", args=[run.id]), signed).url
    runs.advance(run.id)
    # The same page asks anew, and there is nothing left to confirm.
    again = challenge(client, run, form)
    assert (again.status_code, again.json()) == (200, {})
    answer = client.post(reverse("sign", args=[run.id]), form | {"assertion": ""})
    assert answer.url == receipt
    assert Decision.objects.count() == 1


def test_other_choices_under_a_key_that_was_used_are_refused(
    run: Run, rita: User, browse: Browse, authenticator: Authenticator
) -> None:
    client = browse(rita)
    form = form_of(client, run)
    issued = challenge(client, run, form).json()
    signed = form | {"assertion": answered(authenticator, issued)}
    client.post(reverse("sign", args=[run.id]), signed)
    write = form["write"][0]
    answer = challenge(client, run, form | {f"v-{write}": "reject"})
    assert (answer.status_code, answer.json()["code"]) == (409, "key_conflict")


def test_what_others_have_settled_names_them(
    run: Run, rita: User, people: People, browse: Browse, authenticator: Authenticator
) -> None:
    client = browse(rita)
    form = form_of(client, run)
    ravi = run_actions.reviewer(people.second_reviewer)
    theirs, _ = authenticators.registered(ravi, SITE)
    elsewhere = browse(ravi)
    their_form = form_of(elsewhere, run)
    issued = challenge(elsewhere, run, their_form).json()
    their_form["assertion"] = answered(theirs, issued)
    elsewhere.post(reverse("sign", args=[run.id]), their_form)
    answer = challenge(client, run, form)
    assert answer.status_code == 409
    assert answer.json()["code"] == "already_decided"
    assert answer.json()["message"] == "Not signed: already settled by ravi."


def test_another_choice_than_was_signed_changes_nothing(
    run: Run, rita: User, browse: Browse, authenticator: Authenticator
) -> None:
    client = browse(rita)
    issued = challenge(client, run, form_of(client, run)).json()
    form = form_of(client, run, verdict="reject")
    form["assertion"] = answered(authenticator, issued)
    answer = client.post(reverse("sign", args=[run.id]), form)
    assert answer.status_code == 403
    assert answer.headers["X-Unconfirmed"] == "1"
    assert "asked to sign something else" in answer.content.decode()
    assert " checked" in answer.content.decode()
    assert not Decision.objects.exists()


def test_the_challenge_of_another_session_of_the_same_person_is_refused(
    run: Run, rita: User, browse: Browse, authenticator: Authenticator
) -> None:
    issued = challenge(browse(rita), run, form_of(browse(rita), run)).json()
    elsewhere = browse(rita)
    form = form_of(elsewhere, run)
    form["assertion"] = answered(authenticator, issued)
    answer = elsewhere.post(reverse("sign", args=[run.id]), form)
    assert answer.status_code == 403
    assert not Decision.objects.exists()


@pytest.mark.parametrize("assertion", ["", "{", "[]", "{}", '{"challenge": 1}', "null"])
def test_what_is_no_assertion_is_none(
    run: Run, rita: User, browse: Browse, assertion: str
) -> None:
    client = browse(rita)
    form = form_of(client, run) | {"assertion": assertion, "password": PASSWORD}
    answer = client.post(reverse("sign", args=[run.id]), form)
    assert answer.status_code == 403
    assert "signed with a passkey, and none was used" in answer.content.decode()
    assert not Decision.objects.exists()


def test_who_has_no_passkey_reads_where_to_register_one(
    run: Run, rita: User, browse: Browse
) -> None:
    client = browse(rita)
    answer = challenge(client, run, form_of(client, run))
    assert answer.status_code == 422
    assert "register one on the page of your account" in answer.json()["message"]
    assert not PasskeyChallenge.objects.exists()


def test_who_chose_nothing_or_may_not_sign_is_asked_nothing(
    run: Run, rita: User, people: People, browse: Browse, authenticator: Authenticator
) -> None:
    client = browse(rita)
    form = form_of(client, run)
    nothing = {name: text for name, text in form.items() if not name.startswith("v-")}
    assert challenge(client, run, nothing).status_code == 422
    assert challenge(browse(people.nobody), run, form).status_code == 404
    assert challenge(browse(people.starter), run, form).status_code in (403, 422)
    assert challenge(Client(), run, form).status_code == 401
    assert not PasskeyChallenge.objects.exists()


def test_without_scripts_the_page_says_that_it_cannot_be_signed(
    run: Run, rita: User, browse: Browse
) -> None:
    html = browse(rita).get(reverse("review", args=[run.id])).content.decode()
    assert "This cannot be signed without scripts:" in " ".join(html.split())
