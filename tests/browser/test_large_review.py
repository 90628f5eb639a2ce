"""Reviews of many writes in a real browser: groups, samples, lines that open in place,
and what the page weighs.
"""

import gzip
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import pytest

from approvals.models import Decision, Draft
from checkpoints import uploads
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.demo.imports.messy import messy_csv
from tests.browser.axe import violations
from tests.browser.conftest import Page
from tests.support import claims
from tests.support.cast import People

Browse = Callable[..., Page]
HEAVIEST = 40 * 1024
"""Bytes of HTML, compressed, of any page."""
MOST_NODES = 2500


def import_of(people: People, key: str, bad: int) -> Run:
    """An import of the demo that waits for the corrections of so many rows."""
    ref = uploads.save_upload(
        BytesIO(messy_csv(bad * 3, bad).encode()), name="rows.csv", by=people.starter
    )
    return runs.advance(
        runs.start("csv_import", {"rows": ref}, key=key, by=people.starter).id
    )


@pytest.fixture
def review(people: People, browse: Browse) -> Page:
    """Rita's review of 200 corrections."""
    import_of(people, "BIG-200", 200)
    page = browse(people.reviewer)
    page.open("/reviews/BIG-200/")
    return page


@pytest.fixture
def forty(people: People, browse: Browse) -> Iterator[Page]:
    """Rita's review of forty notes of one likeness."""
    with claims.registered(claims.many_writes("forty_notes", 40), claims.graph_of()):
        claims.paused("CLM-40", people.starter, graph="forty_notes")
        page = browse(people.reviewer)
        page.open("/reviews/CLM-40/")
        yield page


def drafts(page: Page, count: int) -> None:
    """Wait until so many writes have a draft on the server."""
    for _ in range(200):
        if Draft.objects.count() == count:
            return
        page.page.wait_for_timeout(50)
    raise AssertionError(f"{Draft.objects.count()} drafts, not {count}")


def open_samples(page: Page, group: str) -> None:
    """Open the three samples of a group, one after the other."""
    for number in range(3):
        link = page.page.locator(f"#{group} [data-sample]").nth(number)
        slip = link.get_attribute("data-open")
        link.click()
        page.page.wait_for_selector(f"#{slip}.slip")


def test_a_200_write_review_shows_groups_approving_one_is_refused_until_three_samples_were_opened(
    review: Page,
) -> None:
    page = review.page
    groups = page.locator(".slip.group")
    assert groups.count() >= 3
    sizes = [int(one.get_attribute("data-count") or 0) for one in groups.all()]
    apart = page.locator("[data-test=apart] .line").count()
    assert sum(sizes) + apart == 200
    approve = page.locator("#g1 input[data-do=a]")
    assert (
        page.inner_text("#g1 .trip .btn:has([data-do=a]) .do")
        == "Open 3 more samples first"
    )
    approve.click(force=True)
    assert not approve.is_checked()
    assert not Draft.objects.exists()
    open_samples(review, "g1")
    assert (
        page.inner_text("#g1 .trip .btn:has([data-do=a]) .do") == f"Approve {sizes[0]}"
    )
    approve.click(force=True)
    drafts(review, sizes[0])
    page.wait_for_selector(f"#sum:text('{sizes[0]} of 200 decided')")
    assert review.complaints == []


def test_what_was_drafted_for_a_group_is_there_after_a_reload_and_is_signed_write_by_write(
    people: People, forty: Page
) -> None:
    page = forty.page
    open_samples(forty, "g1")
    page.locator("#g1 input[data-do=a]").click(force=True)
    drafts(forty, 40)
    page.reload()
    assert page.locator("#g1 input[data-do=a]").is_checked()
    assert page.inner_text("#sign") == "Sign 40 decisions"
    page.click("#sign")
    page.wait_for_url("**/receipts/**")
    assert page.inner_text("h1") == "40 decisions signed"
    seen = set(Decision.objects.values_list("seen_hash", flat=True))
    assert len(seen) == 40


def test_one_write_of_a_group_is_decided_on_its_own(forty: Page) -> None:
    page = forty.page
    open_samples(forty, "g1")
    page.locator("#w1 input[value=reject]").click(force=True)
    drafts(forty, 1)
    page.locator("#g1 input[data-do=a]").click(force=True)
    drafts(forty, 40)
    page.wait_for_selector("#sum:text('40 of 40 decided')")
    page.click("#sign")
    page.wait_for_url("**/receipts/**")
    verdicts = sorted(Decision.objects.values_list("verdict", flat=True))
    assert verdicts == ["approve"] * 39 + ["reject"]


def test_a_group_is_split_into_single_writes_that_open_in_place(forty: Page) -> None:
    page = forty.page
    page.click("#g1 a:text('Split into single writes')")
    page.wait_for_selector("#g1-list .line")
    assert page.locator("#g1-list .line").count() == 40
    page.click("#g1-list .line:nth-child(5) a")
    page.wait_for_selector("#w5.slip")
    page.locator("#w5 input[value=approve]").click(force=True)
    drafts(forty, 1)
    page.wait_for_selector("#sum:text('1 of 40 decided')")


def test_an_undone_choice_for_a_group_drafts_nothing(forty: Page) -> None:
    page = forty.page
    page.locator("#g1 input[data-do=r]").click(force=True)
    drafts(forty, 40)
    page.keyboard.press("z")
    drafts(forty, 0)
    page.wait_for_selector("#sum:text('0 of 40 decided')")


def test_a_group_is_decided_and_signed_without_scripts(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.many_writes("forty_notes", 40), claims.graph_of()):
        claims.paused("CLM-41", people.starter, graph="forty_notes")
        plain = browse(people.reviewer, java_script_enabled=False)
        plain.open("/reviews/CLM-41/")
        plain.page.check("#g1 input[data-do=a]", force=True)
        plain.page.click("#sign")
        assert (
            "Open the samples of this group before you approve it."
            in plain.page.inner_text("#message")
        )
        assert not Decision.objects.exists()
        for number in range(3):
            plain.page.locator("#g1 [data-sample]").nth(number).click()
        plain.page.check("#g1 input[data-do=a]", force=True)
        plain.page.click("#sign")
        assert plain.page.inner_text("h1") == "40 decisions signed"


def test_990_bad_rows_open_with_few_bytes_and_nodes(
    people: People, browse: Browse
) -> None:
    import_of(people, "BIG-990", 990)
    reviewer = browse(people.reviewer)
    answers: list[Any] = []
    reviewer.page.on(
        "response",
        lambda answer: (
            answers.append(answer) if answer.url.endswith("/BIG-990/") else None
        ),
    )
    reviewer.open("/reviews/BIG-990/")
    weight = len(gzip.compress(answers[0].body()))
    nodes = reviewer.page.evaluate("document.querySelectorAll('*').length")
    assert weight <= HEAVIEST
    assert nodes <= MOST_NODES
    assert reviewer.page.locator("#meter i").count() == 0
    assert reviewer.page.locator("#meter svg").count() == 1
    inside = reviewer.page.evaluate(
        "() => { const [a, b] = ['#meter', '.foot .sum'].map(q =>"
        " document.querySelector(q).getBoundingClientRect());"
        " return a.right <= b.left; }"
    )
    assert inside
    assert violations(reviewer.page) == []
    assert reviewer.complaints == []


def test_990_rows_are_decided_by_one_person_as_groups_with_an_exception_on_its_own(
    people: People, browse: Browse
) -> None:
    graphs = (claims.two_likenesses("rows_990", 990), claims.graph_of())
    with claims.registered(*graphs):
        run = claims.paused("CLM-990", people.starter, graph="rows_990")
        reviewer = browse(people.reviewer)
        reviewer.open("/reviews/CLM-990/")
        page = reviewer.page
        groups = [group.get_attribute("id") for group in page.locator(".group").all()]
        assert len(groups) == 2
        for group in groups:
            open_samples(reviewer, str(group))
            page.locator(f"#{group} input[data-do=a]").click(force=True)
        drafts(reviewer, 990)
        # One of the opened samples is rejected on its own.
        sample = page.locator(".opened .slip").first
        sample.locator("input[value=reject]").click(force=True)
        page.wait_for_selector("#sum:text('990 of 990 decided')")
        page.click("#sign")
        page.wait_for_url("**/receipts/**")
        assert page.inner_text("h1") == "990 decisions signed"
        decided = Decision.objects.filter(run=run.id)
        assert decided.filter(verdict="approve").count() == 989
        assert decided.filter(verdict="reject").count() == 1
        # It is one act with one receipt.
        assert len(set(decided.values_list("receipt", flat=True))) == 1


def test_an_outlier_is_listed_apart_and_a_group_shows_its_sum(
    people: People, browse: Browse
) -> None:
    amounts = [f"{number}.50" for number in range(10, 30)] + ["99000.00"]
    with claims.registered(
        claims.many_payouts("many_payouts", amounts), claims.graph_of()
    ):
        claims.paused("CLM-9", people.starter, graph="many_payouts")
        reviewer = browse(people.reviewer)
        reviewer.open("/reviews/CLM-9/")
        page = reviewer.page
        assert page.locator(".slip.group").count() == 1
        assert page.get_attribute("#g1", "data-count") == "20"
        assert "€400.00" in page.inner_text("#g1 .say")
        assert page.locator("[data-test=apart] .line").count() == 1
        assert "Pay €99000.00" in page.inner_text("[data-test=apart]")
        page.keyboard.press("a")
        assert "approve it with its button" in page.inner_text("#announce")
        page.click("[data-test=apart] .line a")
        page.wait_for_selector("#w21.slip")
        assert "€99,000.00" in page.inner_text("#w21")


def test_an_address_opens_the_same_writes_and_lists_in_another_browser(
    forty: Page,
) -> None:
    page = forty.page
    split = page.get_attribute("#g1 a:text('Split into single writes')", "href")
    sample = page.locator("#g1 [data-sample]").first
    anchor = sample.get_attribute("data-open")
    opened = sample.get_attribute("href")
    forty.open(str(split))
    assert page.locator("#g1-list .line").count() == 40
    forty.open(str(opened))
    assert page.locator(f"#{anchor}.slip").count() == 1


def test_the_scripts_of_a_review_are_within_their_budget(
    people: People, browse: Browse
) -> None:
    claims.paused("CLM-1", people.starter)
    scripts: list[Any] = []
    reviewer = browse(people.reviewer)
    reviewer.page.on(
        "response",
        lambda answer: scripts.append(answer) if ".js" in answer.url else None,
    )
    reviewer.open("/reviews/CLM-1/")
    reviewer.page.wait_for_selector(".live:not([hidden])")
    assert 0 < sum(len(gzip.compress(script.body())) for script in scripts) <= 35 * 1024
