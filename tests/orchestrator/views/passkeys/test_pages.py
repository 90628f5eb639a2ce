"""Passkeys on the page of one's account: registered and revoked with the password again."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.confirmation import Site
from approvals.models import Passkey
from checkpoints.models import AuditLine
from tests.support import authenticators
from tests.support.authenticators import PRESENT, Authenticator
from tests.support.cast import PASSWORD, People

Browse = Callable[[User], Client]
SITE = Site("testserver", "http://testserver")

pytestmark = pytest.mark.django_db


def begun(client: Client, password: str = PASSWORD, name: str = "My laptop") -> Any:
    return client.post(
        reverse("passkey_options"),
        {"password": password, "name": name},
        headers={"X-Fragment": "1"},
    )


def completed(client: Client, credential: Any) -> Any:
    form = {"credential": json.dumps(credential)}
    return client.post(reverse("passkey_register"), form, follow=True)


def test_an_account_without_passkeys_says_so(people: People, browse: Browse) -> None:
    html = browse(people.reviewer).get(reverse("account")).content.decode()
    assert "A gate that asks for a passkey cannot be signed by you." in html


def test_a_passkey_is_registered_with_the_password(
    people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    options = begun(client).json()
    assert options["authenticatorSelection"]["userVerification"] == "required"
    html = completed(client, Authenticator(SITE).create(options)).content.decode()
    key = Passkey.objects.get()
    assert (key.user, key.name, key.rp_id) == (people.reviewer, "My laptop", SITE.rp_id)
    assert key.fingerprint in html
    line = AuditLine.objects.get(kind="passkey_registered")
    assert (line.actor, line.facts["fingerprint"]) == (people.reviewer, key.fingerprint)


def test_a_wrong_password_begins_nothing(people: People, browse: Browse) -> None:
    client = browse(people.reviewer)
    answer = begun(client, "not the right words")
    assert answer.status_code == 403
    assert "not your password" in answer.json()["message"]
    assert AuditLine.objects.filter(kind="refused_confirmation").count() == 1
    key = Authenticator(SITE).create({"challenge": "AAAA"})
    completed(client, key)
    assert not Passkey.objects.exists()


@pytest.mark.parametrize(
    "made",
    [
        lambda key, options: key.create(options, flags=PRESENT),
        lambda key, options: key.create({"challenge": "AAAA"}),
        lambda key, options: Authenticator(
            Site("evil.example", "https://evil.example")
        ).create(options),
        lambda key, options: None,
        lambda key, options: {"id": "x"},
    ],
)
def test_what_is_no_answer_to_the_challenge_of_this_site_is_refused(
    people: People, browse: Browse, made: Callable[..., Any]
) -> None:
    client = browse(people.reviewer)
    options = begun(client).json()
    answer = completed(client, made(Authenticator(SITE), options))
    assert answer.status_code == 200
    assert "passkey was not taken" in answer.content.decode()
    assert not Passkey.objects.exists()


def test_one_challenge_registers_one_key(people: People, browse: Browse) -> None:
    client = browse(people.reviewer)
    options = begun(client).json()
    completed(client, Authenticator(SITE).create(options))
    completed(client, Authenticator(SITE).create(options))
    assert Passkey.objects.count() == 1


def test_a_key_that_is_registered_already_is_refused(
    people: People, browse: Browse
) -> None:
    authenticator, _ = authenticators.registered(people.second_reviewer, SITE)
    client = browse(people.reviewer)
    html = completed(client, authenticator.create(begun(client).json())).content
    assert b"registered already" in html
    assert Passkey.objects.count() == 1


def test_a_passkey_gets_another_name(people: People, browse: Browse) -> None:
    _, key = authenticators.registered(people.reviewer, SITE)
    client = browse(people.reviewer)
    client.post(reverse("passkey_rename", args=[key.id]), {"name": "Old laptop"})
    assert Passkey.objects.get().name == "Old laptop"
    client.post(reverse("passkey_rename", args=[key.id]), {"name": " "})
    assert Passkey.objects.get().name == "Old laptop"


def test_a_passkey_is_revoked_with_the_password_and_for_good(
    people: People, browse: Browse
) -> None:
    _, key = authenticators.registered(people.reviewer, SITE)
    client = browse(people.reviewer)
    address = reverse("passkey_revoke", args=[key.id])
    client.post(address, {"password": "not the right words"})
    assert Passkey.objects.get().revoked_at is None
    client.post(address, {"password": PASSWORD})
    revoked_at = Passkey.objects.get().revoked_at
    assert revoked_at is not None
    client.post(address, {"password": PASSWORD})
    assert Passkey.objects.get().revoked_at == revoked_at
    assert AuditLine.objects.filter(kind="passkey_revoked").count() == 1


def test_nobody_touches_the_passkey_of_another_person(
    people: People, browse: Browse
) -> None:
    _, key = authenticators.registered(people.second_reviewer, SITE)
    client = browse(people.reviewer)
    form = {"password": PASSWORD, "name": "Mine"}
    for page in ("passkey_rename", "passkey_revoke"):
        wanted = {"name": form["name"]} if page == "passkey_rename" else form
        client.post(reverse(page, args=[key.id]), wanted)
    key.refresh_from_db()
    assert (key.name, key.revoked_at) == ("My laptop", None)


def test_a_steward_sees_who_has_none(people: People, browse: Browse) -> None:
    authenticators.registered(people.reviewer, SITE)
    _, revoked = authenticators.registered(people.second_reviewer, SITE)
    browse(people.second_reviewer).post(
        reverse("passkey_revoke", args=[revoked.id]), {"password": PASSWORD}
    )
    people.steward.is_staff = True
    people.steward.save()
    page = browse(people.steward).get(reverse("admin:approvals_passkey_changelist"))
    assert page.status_code == 200
    assert page.context["without"] == ["ravi", "stella"]
    assert browse(people.reviewer).get(page.request["PATH_INFO"]).status_code == 302
