"""From the start form to the completed run, as people live it; what the browser
complains of is counted.
"""

from collections.abc import Callable
from typing import Any

from checkpoints.models import Run
from tests.browser.conftest import Page
from tests.support.cast import People

Browse = Callable[..., Page]
Worker = Callable[[str], None]


def start_by_form(page: Page, key: str) -> None:
    page.open("/graphs/page_claim/start/")
    page.page.fill("[name='i.claim_id']", key)
    page.page.fill("[name='i.amount']", "12.50")
    page.page.check("[name='i.cause'][value='fire']")
    page.page.fill("[name='key']", key)
    page.page.click("text=Start run")
    page.page.wait_for_selector("h1:has-text('Claim')")


def verdict(page: Page, write: int, word: str) -> None:
    page.page.check(f"#w{write} input[value={word}]", force=True)


def signed(page: Page) -> str:
    page.page.click("#sign")
    page.page.wait_for_url("**/receipts/**")
    return str(page.page.inner_text("h1"))


def test_a_claim_is_started_decided_write_by_write_and_goes_on_live(
    people: People, browse: Browse, worker: Worker
) -> None:
    operator = browse(people.starter)
    reviewer = browse(people.reviewer)
    start_by_form(operator, "CLM-1")
    assert "Queued" in operator.page.inner_text("#run-head")

    worker("CLM-1")
    operator.page.wait_for_selector("#run-head :text('Needs review')")

    reviewer.open("/")
    assert reviewer.page.url.endswith("/reviews/")
    reviewer.page.click("text=Pay CLM-1?")
    assert reviewer.page.locator(".trip input:checked").count() == 0
    reviewer.page.wait_for_selector("#sign:text-is('Decide 3 more to sign')")

    verdict(reviewer, 1, "edit")
    reviewer.page.fill("#w1 .editor input[name$='.amount']", "9.75")
    verdict(reviewer, 2, "reject")
    assert reviewer.page.inner_text("#sign") == "Decide 1 more to sign"
    assert reviewer.page.inner_text("#sign-some") == "Sign 2 of 3 now"
    reviewer.page.fill("#w2 .why textarea", "the tone is wrong")
    verdict(reviewer, 3, "approve")
    assert reviewer.page.inner_text("#sign") == "Sign 3 decisions"
    reviewer.page.wait_for_selector("#next li:has-text('pay')")
    assert signed(reviewer) == "3 decisions signed"

    worker("CLM-1")
    operator.page.wait_for_selector("#run-head :text('Completed')")
    operator.page.wait_for_selector(".cplist :text('pay')")
    assert Run.objects.get(key="CLM-1").status == "completed"
    assert operator.complaints == reviewer.complaints == []


def test_keys_choose_but_never_sign_before_all_is_decided(
    people: People, browse: Browse, worker: Worker
) -> None:
    reviewer = opened_review(people, browse, "CLM-2", worker)
    keyboard = reviewer.page.keyboard
    reviewer.page.focus("#w1 h3")
    keyboard.press("a")
    keyboard.press("Control+Enter")
    keyboard.press("j")
    keyboard.press("r")
    reviewer.page.focus("#w2 .why textarea")
    keyboard.type("area")
    assert reviewer.page.input_value("#w2 .why textarea") == "area"
    assert reviewer.page.inner_text("#sum") == "2 of 3 decided"
    reviewer.page.focus("#w2 h3")
    keyboard.press("z")
    assert reviewer.page.inner_text("#sum") == "1 of 3 decided"
    assert "/reviews/" in reviewer.page.url


def opened_review(
    people: People, browse: Browse, key: str, worker: Worker, **options: Any
) -> Page:
    from tests.support import claims

    claims.paused(key, people.starter)
    reviewer = browse(people.reviewer, **options)
    reviewer.open(f"/reviews/{key}/")
    return reviewer


def test_everything_works_with_scripts_blocked(
    people: People, browse: Browse, worker: Worker
) -> None:
    reviewer = opened_review(people, browse, "CLM-3", worker, java_script_enabled=False)
    verdict(reviewer, 1, "edit")
    reviewer.page.fill("#w1 .editor input[name$='.amount']", "1.25")
    verdict(reviewer, 2, "approve")
    verdict(reviewer, 3, "approve")
    assert signed(reviewer) == "3 decisions signed"

    operator = browse(people.starter, java_script_enabled=False)
    start_by_form(operator, "CLM-4")
    assert Run.objects.filter(key="CLM-4", started_by=people.starter).exists()


def test_what_a_colleague_settles_is_shown_while_one_reads(
    people: People, browse: Browse, worker: Worker
) -> None:
    from approvals import reviews
    from checkpoints.models import PendingWrite

    reviewer = opened_review(people, browse, "CLM-5", worker)
    reviewer.page.wait_for_selector(".live:not([hidden])")
    write = PendingWrite.objects.get(channel="count")
    reviews.sign(
        write.run_id,
        [{"write": write.write, "hash": write.hash, "verdict": "approve"}],
        by=people.second_reviewer,
    )
    reviewer.page.wait_for_selector("#w3 .stamp.settled")
    assert reviewer.page.locator("#w3 .trip").count() == 0
    assert reviewer.page.inner_text("#sign") == "Decide 2 more to sign"
    assert reviewer.complaints == []


def test_stepping_changes_page_and_address_together(
    people: People, browse: Browse, worker: Worker
) -> None:
    from tests.support import claims

    claims.paused("CLM-6", people.starter)
    operator = browse(people.starter)
    operator.open("/runs/CLM-6/")
    operator.page.keyboard.press("ArrowLeft")
    operator.page.wait_for_selector(".pastbar")
    assert "at=1" in operator.page.url
    assert operator.page.inner_text("#cp") == "Checkpoint 1"
    operator.page.keyboard.press("l")
    operator.page.wait_for_selector(".pastbar", state="detached")
    assert "at=" not in operator.page.url
    operator.page.go_back()
    operator.page.wait_for_selector(".pastbar")
    assert operator.complaints == []


def test_the_list_moves_in_place(
    people: People, browse: Browse, worker: Worker
) -> None:
    from orchestrator import runs

    run = runs.start(
        "page_claim",
        {"claim_id": "CLM-7", "amount": "1"},
        key="CLM-7",
        by=people.starter,
    )
    operator = browse(people.starter)
    operator.open("/runs/")
    operator.page.wait_for_selector(".live:not([hidden])")
    worker("CLM-7")
    operator.page.wait_for_selector(f"#run-{run.id} :text('Needs review')")
    assert operator.complaints == []


def test_everything_that_was_missed_offline_arrives(
    people: People, browse: Browse, worker: Worker
) -> None:
    from orchestrator import runs

    runs.start(
        "page_claim",
        {"claim_id": "CLM-8", "amount": "1"},
        key="CLM-8",
        by=people.starter,
    )
    operator = browse(people.starter)
    operator.open("/runs/CLM-8/")
    operator.page.wait_for_selector(".live:not([hidden])")
    operator.page.context.set_offline(True)
    operator.page.evaluate("() => performance.now()")
    worker("CLM-8")
    operator.page.context.set_offline(False)
    assert operator.page.wait_for_selector(
        "#run-head :text('Needs review')", timeout=20_000
    )


def test_the_theme_is_kept_and_right_at_first_paint(
    people: People, browse: Browse, worker: Worker
) -> None:
    operator = browse(people.starter)
    operator.open("/runs/")
    operator.page.click(".acct summary")
    operator.page.click(".acct [data-theme-set=dark]")
    assert operator.page.get_attribute("html", "data-theme") == "dark"
    operator.page.wait_for_timeout(300)
    operator.open("/runs/")
    assert operator.page.get_attribute("html", "data-theme") == "dark"
    # Another browser learns the theme of a person when he signs in there.
    again = browse(people.starter)
    again.page.context.clear_cookies()
    again.sign_in(people.starter)
    assert again.page.get_attribute("html", "data-theme") == "dark"
    assert operator.complaints == []


def test_what_is_typed_is_carried_between_the_form_and_the_json_of_a_start(
    people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open("/graphs/page_claim/start/")
    page = window.page
    page.fill("[name='i.claim_id']", "CLM-7")
    page.fill("#key", "mine")
    page.click("#view-json")
    page.wait_for_selector("#json")
    assert page.evaluate("document.activeElement.id") == "view-json"
    page.fill("#json", page.input_value("#json").replace("CLM-7", "CLM-8"))
    page.click("#view-form")
    page.wait_for_selector("[name='i.claim_id']")
    assert page.input_value("[name='i.claim_id']") == "CLM-8"
    page.fill("[name='i.amount']", "3.50")
    page.check("[name='i.cause'][value='fire']")
    page.press("[name='i.claim_id']", "Enter")
    page.wait_for_selector("h1:has-text('Claim')")
    assert Run.objects.get().key == "mine"
    assert window.complaints == []
