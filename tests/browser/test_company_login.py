"""A person of a company signs in at its provider, signs a review, confirms with a fresh
log-in; and can no longer sign once the directory took their group away.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import Decision
from tests.browser.axe import violations
from tests.browser.conftest import LONGEST_WAIT, Page
from tests.support import oidc_provider
from tests.support.confirmed_graphs import gated
from tests.support.oidc_provider import CompanyDirectory
from tests.support.small_graphs import advanced


@pytest.fixture
def directory(tmp_path: Path, settings: Any, site: str) -> Iterator[CompanyDirectory]:
    with oidc_provider.running(tmp_path) as running:
        settings.COUNTERSIGN = running.settings(
            COMPANY_GROUPS={"acme-claims": ["claims", "reviewer"]}
        )
        yield running


@pytest.fixture
def window(site: str, chromium: Any) -> Iterator[Page]:
    """A window in which nobody is signed in."""
    context = chromium.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(LONGEST_WAIT)
    yield Page(context.new_page(), site)
    context.close()


def answer_provider(window: Page, directory: CompanyDirectory, sub: str) -> None:
    window.page.wait_for_url(f"{directory.issuer}/**")
    window.page.fill("input[name=sub]", sub)
    window.page.press("input[name=sub]", "Enter")


def choose(window: Page) -> None:
    window.page.check(".trip input[value=approve]", force=True)


def test_a_person_of_the_company_signs_until_the_group_is_taken_away(
    site: str, directory: CompanyDirectory, window: Page
) -> None:
    directory.set_person("rosa", "acme-claims", name="Rosa")
    first = advanced(gated("first"))
    window.open(f"/reviews/{first.id}/")
    assert violations(window.page) == []
    window.page.click("text=Sign in with Acme")
    answer_provider(window, directory, "rosa")
    window.page.wait_for_url(f"{site}/reviews/{first.id}/")
    choose(window)
    window.page.click("#sign")
    window.page.wait_for_url("**/receipts/**")
    assert Decision.objects.get().by == User.objects.get(username="rosa")
    # The policy of the pages stood in nobody's way; the provider's page has its own faults.
    assert [said for said in window.complaints if "Content Security" in said] == []

    second = advanced(gated("second", confirm="password"))
    window.open(f"/reviews/{second.id}/")
    choose(window)
    window.page.click("#sign")
    window.page.wait_for_selector("#unconfirmed:not([hidden])")
    assert violations(window.page) == []
    window.page.click("text=Sign in again with Acme")
    answer_provider(window, directory, "rosa")
    window.page.wait_for_selector("[data-test=fresh]")
    # What was chosen is still chosen.
    assert window.page.is_checked(".trip input[value=approve]")
    window.page.click("#sign")
    window.page.wait_for_url("**/receipts/**")
    assert "confirmed by log-in" in window.page.inner_text("#main")

    third = advanced(gated("third"))
    directory.set_person("rosa", "acme-canteen", name="Rosa")
    window.page.context.clear_cookies()
    window.open(f"/reviews/{third.id}/")
    window.page.click("text=Sign in with Acme")
    answer_provider(window, directory, "rosa")
    window.page.wait_for_selector("text=in none of the groups")
    assert violations(window.page) == []
    assert not User.objects.get(username="rosa").groups.exists()
    window.open(f"/reviews/{third.id}/")
    assert "/login/" in window.page.url
    assert Decision.objects.count() == 2


def test_a_session_from_before_signs_nothing_without_the_group(
    site: str, directory: CompanyDirectory, window: Page, chromium: Any
) -> None:
    directory.set_person("rosa", "acme-claims")
    run = advanced(gated())
    window.open(f"/login/?next=/reviews/{run.id}/")
    window.page.click("text=Sign in with Acme")
    answer_provider(window, directory, "rosa")
    window.page.wait_for_url(f"{site}/reviews/{run.id}/")
    choose(window)

    directory.set_person("rosa", "acme-canteen")
    elsewhere = chromium.new_context()
    other = Page(elsewhere.new_page(), site)
    other.open("/login/")
    other.page.click("text=Sign in with Acme")
    answer_provider(other, directory, "rosa")
    other.page.wait_for_selector("text=in none of the groups")
    elsewhere.close()

    window.page.click("#sign")
    window.page.wait_for_selector("text=/Not found|Not allowed|may not|not among/i")
    assert not Decision.objects.exists()
