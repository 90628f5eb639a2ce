"""A person without a password here confirms by a fresh log-in at the provider; who has
lost the group that let them sign cannot.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from approvals.models import ApprovalRequest, Decision, Delegation
from approvals.people import fresh_logins
from checkpoints.models import AuditLine
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support.authority_graphs import paying, payments, signed
from tests.support.confirmed_graphs import approval_of, gated
from tests.support.oidc_provider import CompanyDirectory
from tests.support.small_graphs import advanced

SignIn = Callable[..., Any]
AGAIN = "/login/company/again/"


@pytest.fixture
def reviewer(directory: CompanyDirectory, sign_in: SignIn, settings: Any) -> Client:
    """A person of the company whose group may sign."""
    settings.COUNTERSIGN = directory.settings(
        COMPANY_GROUPS={"acme-claims": ["claims"]}
    )
    directory.set_person("rita", "acme-claims")
    browser: Client = sign_in("rita").browser
    return browser


def sign(browser: Client, run: Any) -> Any:
    return browser.post(f"/reviews/{run.id}/sign/", approval_of(run))


def test_a_fresh_log_in_confirms_one_signature(
    reviewer: Client, sign_in: SignIn
) -> None:
    first = advanced(gated("first", confirm="password"))
    page = reviewer.get(f"/reviews/{first.id}/").content.decode()
    assert "Sign in again with Acme" in page
    assert f"{AGAIN}?next=/reviews/{first.id}/" in page
    answer = sign(reviewer, first)
    assert answer.status_code == 403
    assert "first confirm that it is you" in answer.content.decode()
    # Nobody of the company has one.
    assert "type your password" not in answer.content.decode()
    assert not Decision.objects.exists()

    back = sign_in("rita", reviewer, begin=f"{AGAIN}?next=/reviews/{first.id}/")
    assert back["Location"] == f"/reviews/{first.id}/"
    assert (
        "You have just signed in again"
        in reviewer.get(back["Location"]).content.decode()
    )
    assert sign(reviewer, first).status_code == 302
    assert Decision.objects.get().confirmed_by == "log-in"
    assert verify_run(first.id) == []

    second = advanced(gated("second", confirm="password"))
    assert sign(reviewer, second).status_code == 403
    assert Decision.objects.count() == 1


def test_the_provider_is_told_to_ask_once_more(reviewer: Client) -> None:
    query = parse_qs(urlsplit(reviewer.get(AGAIN)["Location"]).query)
    assert (query["prompt"], query["max_age"]) == (["login"], ["0"])
    assert Client().get(AGAIN)["Location"].startswith("/login/?next=")


def test_a_fresh_log_in_of_another_person_confirms_nothing(
    reviewer: Client, directory: CompanyDirectory, sign_in: SignIn
) -> None:
    directory.set_person("ravi", "acme-claims")
    answer = sign_in("ravi", reviewer, begin=AGAIN)
    assert answer.status_code == 403
    assert "somebody else" in answer.content.decode()
    # Nor does it make an account.
    assert User.objects.get() == User.objects.get(username="rita")
    run = advanced(gated(confirm="password"))
    assert sign(reviewer, run).status_code == 403


@pytest.mark.parametrize("seen_at", [None, 0, "now"])
def test_an_older_log_in_at_the_provider_confirms_nothing(
    reviewer: Client, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch, seen_at: Any
) -> None:
    from orchestrator.company_login.provider import CompanyAdapter

    decode = CompanyAdapter._decode_id_token

    def older(self: Any, *args: Any) -> dict[str, Any]:
        return decode(self, *args) | {"auth_time": seen_at}

    monkeypatch.setattr(CompanyAdapter, "_decode_id_token", older)
    answer = sign_in("rita", reviewer, begin=AGAIN)
    assert answer.status_code == 403
    assert "auth_time" in answer.content.decode()
    run = advanced(gated(confirm="password"))
    assert sign(reviewer, run).status_code == 403


def test_a_fresh_log_in_does_for_minutes_only(
    reviewer: Client, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in("rita", reviewer, begin=AGAIN)
    monkeypatch.setattr(fresh_logins, "LIFETIME", timedelta())
    run = advanced(gated(confirm="password"))
    assert sign(reviewer, run).status_code == 403


def test_a_fresh_log_in_is_no_passkey(reviewer: Client, sign_in: SignIn) -> None:
    sign_in("rita", reviewer, begin=AGAIN)
    run = advanced(gated(confirm="passkey"))
    assert sign(reviewer, run).status_code == 403
    assert not Decision.objects.exists()


def test_a_delegation_is_made_after_a_fresh_log_in(
    reviewer: Client, sign_in: SignIn
) -> None:
    User.objects.create_user("ravi")
    tomorrow = timezone.now() + timedelta(days=1)
    form = {"to": "ravi", "ends": tomorrow.strftime("%Y-%m-%dT%H:%M")}
    answer = reviewer.post("/account/delegations/", form, follow=True)
    assert "sign in again with Acme first" in answer.content.decode()
    assert not Delegation.objects.exists()
    sign_in("rita", reviewer, begin=AGAIN)
    reviewer.post("/account/delegations/", form)
    assert Delegation.objects.get().delegate == User.objects.get(username="ravi")


def test_who_lost_the_group_can_not_sign(
    reviewer: Client, directory: CompanyDirectory, sign_in: SignIn
) -> None:
    run = advanced(gated())
    assert "/sign/" in reviewer.get(f"/reviews/{run.id}/").content.decode()
    directory.set_person("rita", "acme-canteen")
    assert sign_in("rita").status_code == 403
    # The session from before is still there, and signs nothing.
    answer = sign(reviewer, run)
    assert answer.status_code in (403, 404)
    assert not Decision.objects.exists()
    assert not Group.objects.get(name="claims").user_set.exists()
    kinds = set(AuditLine.objects.values_list("kind", flat=True))
    assert {"members_changed", "refused_company_login"} <= kinds


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", ["log-in", "sync"])
def test_an_effect_that_has_not_begun_does_not_rest_on_who_lost_the_group(
    reviewer: Client,
    directory: CompanyDirectory,
    sign_in: SignIn,
    tmp_path: Path,
    way: str,
) -> None:
    person = User.objects.get(username="rita")
    with payments() as paid:
        run = signed(paying(), person)
        if way == "log-in":
            directory.set_person("rita")
            sign_in("rita")
        else:
            users = tmp_path / "users.json"
            group = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:Group"]}
            group |= {"displayName": "acme-claims", "members": []}
            resources = [{"id": "rita"}, group]
            users.write_text(json.dumps({"totalResults": 2, "Resources": resources}))
            call_command("sync_groups", str(users), "--apply", stdout=StringIO())
        runs.advance(run.id)
        assert paid == []
    asked_again = ApprovalRequest.objects.filter(run=run, kind="authority")
    assert asked_again.filter(status="open").exists()
    assert verify_run(run.id) == []
