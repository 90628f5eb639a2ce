"""Passkeys on the page of one's account: registered and revoked with the password again."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from approvals import passkeys
from approvals.confirmation import Site
from approvals.models import Passkey
from checkpoints.models import AuditLine
from orchestrator.engine.errors import Forbidden
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
    assert (
        "You have none, so you cannot sign at a gate that asks for a passkey." in html
    )


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


def steward(people: People) -> User:
    people.steward.is_staff = True
    people.steward.save()
    return people.steward


def revoked_in_admin(client: Client, key: Passkey, **options: str) -> Any:
    form = {"action": "revoke", "_selected_action": str(key.pk), **options}
    return client.post(reverse("admin:approvals_passkey_changelist"), form, follow=True)


def test_a_steward_revokes_the_passkey_of_another_person(
    people: People, browse: Browse
) -> None:
    _, key = authenticators.registered(people.reviewer, SITE)
    client = browse(steward(people))
    asked = revoked_in_admin(client, key)
    assert "My laptop" in asked.content.decode()
    key.refresh_from_db()
    assert key.revoked_at is None
    revoked_in_admin(client, key, confirmed="yes")
    key.refresh_from_db()
    assert key.revoked_at is not None
    line = AuditLine.objects.get(kind="passkey_revoked")
    assert (line.actor, line.facts["of"]) == (people.steward, "rita")
    assert line.facts["fingerprint"] == key.fingerprint


def test_who_is_no_steward_revokes_nothing_of_others(
    people: People, browse: Browse
) -> None:
    _, key = authenticators.registered(people.reviewer, SITE)
    with pytest.raises(Forbidden):
        passkeys.revoke_key(people.reviewer, key.id, by=people.second_reviewer)
    auditor = steward(people)
    auditor.groups.clear()
    auditor.user_permissions.set(Permission.objects.filter(codename="view_passkey"))
    revoked_in_admin(browse(auditor), key, confirmed="yes")
    key.refresh_from_db()
    assert key.revoked_at is None
    assert not AuditLine.objects.filter(kind="passkey_revoked").exists()


def brought_back(person: User) -> Passkey:
    """A revoked key whose whole row of before somebody put back."""
    _, key = authenticators.registered(person, SITE)
    [old] = Passkey.objects.filter(id=key.id).values()
    passkeys.revoke_key(person, key.id)
    Passkey.objects.filter(id=key.id).update(**old)
    return key


def test_an_account_shows_no_fingerprint_that_does_not_prove_right(
    people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    key = brought_back(people.reviewer)
    html = " ".join(client.get(reverse("account")).content.decode().split())
    assert key.fingerprint not in html
    assert "it was revoked, as the audit log says" in html
    _, forged = authenticators.registered(people.reviewer, SITE)
    Passkey.objects.filter(id=forged.id).update(fingerprint="f" * 64)
    html = client.get(reverse("account")).content.decode()
    assert "f" * 64 not in html
    assert "is not as it was sealed" in html


def test_the_admin_says_whether_a_passkey_is_as_it_was_sealed(
    people: People, browse: Browse
) -> None:
    key = brought_back(people.reviewer)
    client = browse(steward(people))
    address = reverse("admin:approvals_passkey_change", args=[key.id])
    assert "revoked, whatever its row says" in client.get(address).content.decode()
    Passkey.objects.update(fingerprint="f" * 64)
    for page in (address, reverse("admin:approvals_passkey_changelist")):
        assert "tampered" in client.get(page).content.decode()


def test_usable_passkeys_come_first_and_the_others_page_by_page(
    people: People, browse: Browse
) -> None:
    _, usable = authenticators.registered(people.reviewer, SITE)
    for _ in range(21):
        _, key = authenticators.registered(people.reviewer, SITE)
        passkeys.revoke_key(people.reviewer, key.id)
    client = browse(people.reviewer)
    first = client.get(reverse("account"))
    listed = [line.key.id for line in first.context["page"]["passkeys"]]
    assert (listed[0], len(listed)) == (usable.id, 20)
    assert "?page=2" in first.content.decode()
    second = client.get(reverse("account") + "?page=2")
    assert len(second.context["page"]["passkeys"]) == 2
    assert "Further passkeys" not in second.content.decode()
    assert client.get(reverse("account") + "?page=x").status_code == 400


def test_too_many_wrong_passwords_are_said_to_be_too_many(
    people: People, browse: Browse
) -> None:
    _, key = authenticators.registered(people.reviewer, SITE)
    client = browse(people.reviewer)
    form = {"password": "not the right words"}
    for _ in range(settings.AXES_FAILURE_LIMIT):
        answer = client.post(
            reverse("passkey_revoke", args=[key.id]),
            form,
            headers={"X-Fragment": "1"},
        )
    assert "too many wrong passwords" in answer.json()["message"]


def test_an_account_with_a_passkey_stays_because_the_audit_log_names_it(
    people: People, admin_client: Client
) -> None:
    authenticators.registered(people.reviewer, SITE)
    address = reverse("admin:auth_user_delete", args=[people.reviewer.pk])
    html = admin_client.post(address, {"post": "yes"}).content.decode()
    assert "Cannot delete user" in html
    assert "<li>audit line</li>" in html
    assert User.objects.filter(pk=people.reviewer.pk).exists()
