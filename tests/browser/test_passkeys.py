"""Passkeys in a real browser, with the virtual authenticator of Chromium: registered on
the page of one's account, signed with, revoked, and then refused.
"""

from collections.abc import Callable
from typing import Any

import pytest

from approvals.models import Decision, Passkey
from tests.browser.axe import violations
from tests.browser.conftest import Page, session_cookie
from tests.support import run_actions
from tests.support.cast import PASSWORD, People
from tests.support.confirmed_graphs import gated
from tests.support.small_graphs import advanced

Browse = Callable[..., Page]


@pytest.fixture
def window(people: People, browse: Browse, site: str) -> Page:
    """Rita's window at a host that has a name: a passkey is for no bare address."""
    rita = run_actions.reviewer(people.reviewer)
    window = browse(rita)
    window.site = site.replace("127.0.0.1", "localhost")
    window.page.context.add_cookies([session_cookie(rita, window.site)])
    return window


@pytest.fixture
def device(window: Page) -> Any:
    """An authenticator that its person has unlocked."""
    session = window.page.context.new_cdp_session(window.page)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    made = session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return session, made["authenticatorId"]


def register(window: Page) -> None:
    window.open("/account/")
    window.page.fill("#key-name", "Rita's laptop")
    window.page.fill("#key-password", PASSWORD)
    window.page.click("text=Register a passkey")
    window.page.wait_for_selector("[data-test=passkey]")


def choose_and_sign(window: Page, run: Any) -> None:
    window.open(f"/reviews/{run.id}/")
    window.page.check(".trip input[value=approve]", force=True)
    window.page.click("#sign")


def test_a_passkey_is_registered_signs_is_revoked_and_signs_no_more(
    window: Page, device: Any
) -> None:
    register(window)
    assert violations(window.page) == []
    key = Passkey.objects.get()
    first = advanced(gated("first", confirm="passkey"))
    choose_and_sign(window, first)
    window.page.wait_for_url("**/receipts/**")
    assert "Rita's laptop" in window.page.inner_text("#main")
    assert Decision.objects.get().confirmed_by == "passkey"

    window.open("/account/")
    window.page.fill(f"#revoke-{key.id}", PASSWORD)
    window.page.click("text=Revoke for good")
    window.page.wait_for_selector("text=can no longer sign")
    second = advanced(gated("second", confirm="passkey"))
    choose_and_sign(window, second)
    window.page.wait_for_selector("#unconfirmed:not([hidden])")
    assert "you have no passkey for this site" in window.page.inner_text("#unconfirmed")
    # Wherever it was scrolled to: the bar at the top may have covered half of a link.
    window.page.evaluate("scrollTo(0, 0)")
    assert violations(window.page) == []
    assert Decision.objects.count() == 1


def test_a_device_that_does_not_know_its_person_signs_nothing(
    window: Page, device: Any
) -> None:
    register(window)
    session, authenticator = device
    session.send(
        "WebAuthn.setUserVerified",
        {"authenticatorId": authenticator, "isUserVerified": False},
    )
    run = advanced(gated("unverified", confirm="passkey"))
    choose_and_sign(window, run)
    window.page.wait_for_selector("#unconfirmed:not([hidden])")
    assert "your passkey was not used" in window.page.inner_text("#unconfirmed")
    assert not Decision.objects.exists()
    # Nothing is lost, and the same button signs once the device knows them.
    assert window.page.is_checked(".trip input[value=approve]")
    session.send(
        "WebAuthn.setUserVerified",
        {"authenticatorId": authenticator, "isUserVerified": True},
    )
    window.page.click("#sign")
    window.page.wait_for_url("**/receipts/**")
    assert Decision.objects.get().confirmed_by == "passkey"


def test_a_signature_whose_answer_was_lost_is_signed_again_on_the_same_page(
    window: Page, device: Any
) -> None:
    register(window)
    run = advanced(gated("lost_answer", confirm="passkey"))

    def lose(route: Any) -> None:
        route.fetch(max_redirects=0)
        route.abort()

    window.page.route("**/sign/", lose)
    choose_and_sign(window, run)
    window.page.wait_for_selector("#unsigned:not([hidden])")
    assert Decision.objects.count() == 1
    window.page.unroute("**/sign/")
    window.page.click("#sign")
    window.page.wait_for_url("**/receipts/**")
    assert Decision.objects.count() == 1


def test_a_server_that_does_not_answer_the_challenge_is_said_to_be_away(
    window: Page, device: Any
) -> None:
    register(window)
    run = advanced(gated("no_challenge", confirm="passkey"))
    window.page.route("**/passkey/", lambda route: route.abort())
    choose_and_sign(window, run)
    window.page.wait_for_selector("#unconfirmed:not([hidden])")
    assert "the server did not answer" in window.page.inner_text("#unconfirmed")
    assert not Decision.objects.exists()


def test_a_password_is_asked_for_again_on_the_page_that_is_open(
    people: People, browse: Browse
) -> None:
    window = browse(run_actions.reviewer(people.reviewer))
    run = advanced(gated("asks", confirm="password"))
    window.open(f"/reviews/{run.id}/")
    assert violations(window.page) == []
    window.page.check(".trip input[value=approve]", force=True)
    window.page.fill("#confirm-password", "not the right words")
    window.page.click("#sign")
    window.page.wait_for_selector("#unconfirmed:not([hidden])")
    assert "that is not your password" in window.page.inner_text("#unconfirmed")
    assert window.page.input_value("#confirm-password") == ""
    assert window.page.is_checked(".trip input[value=approve]")
    window.page.fill("#confirm-password", PASSWORD)
    window.page.click("#sign")
    window.page.wait_for_url("**/receipts/**")
    assert Decision.objects.get().confirmed_by == "password"
