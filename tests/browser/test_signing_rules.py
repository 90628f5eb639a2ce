"""The rules of signing, each as a reviewer meets it in a real browser: whose signature
counts, what a rejection needs, what is refused and what is kept then.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import reviews
from approvals.models import ApprovalRequest, Decision, Receipt
from checkpoints.core.status import Status
from checkpoints.models import AuditLine, PendingWrite, Run
from orchestrator import runs
from orchestrator.engine.graphs.limit import Limit
from tests.browser.conftest import Page
from tests.support import claims, deadlines, run_actions
from tests.support.cast import People, named

Browse = Callable[..., Page]
LOWER = {"amount": "9.75", "account": "DE89370400440532013000"}


@pytest.fixture
def graphs() -> Iterator[None]:
    with claims.registered(
        claims.graph_of(),
        claims.graph_of("four_eyes", four_eyes=True),
        claims.graph_of("two_people", quorum=2),
        claims.in_two_steps(limits={"amount": Limit(at_most=2000)}),
    ):
        yield


def choose(page: Any, number: int, verdict: str) -> None:
    page.check(f"#w{number} input[value={verdict}]", force=True)


def choose_all(page: Any, verdict: str = "approve") -> None:
    for number in (1, 2, 3):
        choose(page, number, verdict)


def sign(page: Any) -> None:
    page.click("#sign")


def edit_payout(run: Run, by: User) -> None:
    """Another reviewer edits the payout, from elsewhere."""
    payout = next(row for row in run_actions.pending(run) if row.channel == "payout")
    item = {"write": str(payout.write), "hash": payout.hash, "verdict": "edit"}
    reviews.sign(run.id, [{**item, "value": LOWER}], by=by)


def test_choosing_fills_the_verdict_stamps_the_slip_and_survives_reload_and_another_browser(
    graphs: None, people: People, browse: Browse
) -> None:
    claims.paused("CLM-19", people.starter)
    first = browse(people.reviewer)
    first.open("/reviews/CLM-19/")
    with first.page.expect_response(lambda answer: answer.request.method == "POST"):
        choose(first.page, 1, "approve")
    assert first.page.locator("#w1 .stamp:not([hidden])").count() >= 1
    second = browse(people.reviewer)
    second.open("/reviews/CLM-19/")
    for page in (first, second):
        page.page.reload()
        assert page.page.is_checked("#w1 input[value=approve]")
        assert not page.page.is_checked("#w2 input[value=approve]")


def test_an_edit_that_breaks_a_limit_cannot_be_signed_and_says_so_at_the_field(
    graphs: None, people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-24", people.starter, graph="two_steps")
    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/CLM-24/")
    choose(reviewer.page, 1, "edit")
    field = reviewer.page.locator("#w1 input[name$='.amount']").first
    field.fill("5000")
    choose(reviewer.page, 2, "approve")
    sign(reviewer.page)
    reviewer.page.wait_for_selector("#w1 .err, #w1 [role=alert]")
    assert "2000" in reviewer.page.inner_text("#w1")
    # The choice for the other write is still there.
    assert reviewer.page.is_checked("#w2 input[value=approve]")
    assert not Decision.objects.filter(run=run.id).exists()


def test_after_an_edit_of_one_write_only_that_one_comes_back(
    graphs: None, people: People, browse: Browse
) -> None:
    named(people.second_reviewer, "Ravi Shah")
    run = claims.paused("CLM-25", people.starter, graph="two_people")
    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/CLM-25/")
    choose_all(reviewer.page)
    sign(reviewer.page)
    reviewer.page.wait_for_url("**/receipts/**")
    edit_payout(run, people.second_reviewer)
    reviewer.open("/reviews/CLM-25/")
    page = reviewer.page
    assert page.is_enabled("#w1 input[value=approve]")
    assert "edited" in page.inner_text("#w1").lower()
    standing = {row.channel: row.revision for row in run_actions.pending(run)}
    assert standing == {"payout": 2, "letter": 1, "count": 1}
    # The others still count: with Ravi's approval they are settled.
    rest = [row for row in run_actions.pending(run) if row.channel != "payout"]
    items = [
        {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
        for row in rest
    ]
    reviews.sign(run.id, items, by=people.second_reviewer)
    choose(page, 1, "approve")


def test_the_starter_under_four_eyes_reads_a_sentence_and_posting_by_hand_is_refused(
    graphs: None, people: People, browse: Browse
) -> None:
    claims.member(people.starter, "reviewer")
    run = claims.paused("CLM-26", people.starter, graph="four_eyes")
    starter = browse(people.starter)
    starter.open("/reviews/CLM-26/")
    assert starter.page.locator("input[value=approve]").count() == 0
    assert "somebody else must" in starter.page.inner_text("main").lower()
    row = run_actions.pending(run)[0]
    token = starter.page.evaluate("document.cookie.match(/csrftoken=([^;]+)/)?.[1]")
    answer = starter.page.request.post(
        f"{starter.site}/api/v1/requests/{run_actions.request(run).id}/decisions/",
        data={
            "decisions": [
                {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
            ]
        },
        headers={"X-CSRFToken": token or "", "Referer": starter.site},
    )
    assert answer.status == 403
    assert not Decision.objects.filter(run=run.id).exists()
    assert AuditLine.objects.filter(kind="refused_not_a_reviewer").exists()


def test_the_same_person_who_signs_twice_counts_once_and_after_two_people_the_run_goes_on_once(
    graphs: None, people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-28", people.starter, graph="two_people")
    reviewer = browse(people.reviewer)
    for _ in range(2):
        reviewer.open("/reviews/CLM-28/")
        choose_all(reviewer.page)
        sign(reviewer.page)
        reviewer.page.wait_for_url("**/receipts/**")
        assert runs.advance(run.id).status == Status.PAUSED
    second = browse(people.second_reviewer)
    second.open("/reviews/CLM-28/")
    choose_all(second.page)
    sign(second.page)
    second.page.wait_for_url("**/receipts/**")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(run_actions.event_payloads(run, "gate_applied")) == 1


def test_in_the_demo_two_people_sign_what_its_starter_cannot(
    demo: Callable[[str], User], browse: Browse
) -> None:
    olive = browse(demo("olive"))
    olive.open("/graphs/account_change/start/")
    for name, value in {
        "i.policy": "POL-2207",
        "i.payee": "Nora Field",
        "i.account": "NL91ABNA0417164300",
        "i.email": "nora@example.com",
    }.items():
        olive.page.fill(f"[name='{name}']", value)
    olive.page.fill("#key", "POL-2207")
    olive.page.click("button:has-text('Start run')")
    olive.page.wait_for_url("**/runs/**")
    run = runs.advance(runs.get("POL-2207").id)
    # She is among those who are asked, and could sign if she had not started it.
    olive.open("/reviews/POL-2207/")
    assert "You started this run, so somebody else must sign." in olive.page.inner_text(
        "main"
    )
    assert olive.page.locator("input[value=approve]").count() == 0
    for name in ("rita", "jonas"):
        assert run.status == Status.PAUSED
        window = browse(demo(name))
        window.open("/reviews/POL-2207/")
        choose(window.page, 1, "approve")
        sign(window.page)
        window.page.wait_for_url("**/receipts/**")
        run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    receipt = window.page.inner_text("main")
    assert "Decided before by Rita Lund (approved)." in receipt
    assert "Jonas Weber" in receipt


def test_two_who_sign_the_deciding_decision_at_once_get_one_receipt_and_one_wake(
    graphs: None, people: People, browse: Browse
) -> None:
    named(people.reviewer, "Rita Rivers")
    named(people.second_reviewer, "Ravi Shah")
    run = claims.paused("CLM-36", people.starter)
    windows = [browse(people.reviewer), browse(people.second_reviewer)]
    for window in windows:
        window.open("/reviews/CLM-36/")
        choose_all(window.page)
        window.page.wait_for_selector("#sign:text-is('Sign 3 decisions')")
    for window in windows:
        # Neither waits for the answer to the other.
        window.page.evaluate("document.getElementById('sign').click()")
    by = "already settled by|was settled|approved by"
    for window in windows:
        window.page.wait_for_function(
            "by => location.pathname.startsWith('/receipts/') "
            "|| new RegExp(by, 'i').test(document.getElementById('message')?.innerText)",
            arg=by,
        )
    ends = ["/receipts/" in window.page.url for window in windows]
    assert sorted(ends) == [False, True]
    winner = ("Rita Rivers", "Ravi Shah")[ends.index(True)]
    loser = windows[ends.index(False)]
    assert winner in loser.page.inner_text("#message")
    assert Receipt.objects.filter(run=run).count() == 1
    assert len(run_actions.event_payloads(run, "decision_signed")) == 3
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(run_actions.event_payloads(run, "gate_applied")) == 1


def test_a_rejection_that_needs_a_reason_asks_for_it_and_the_reason_is_in_the_log(
    graphs: None, people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-29", people.starter)
    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/CLM-29/")
    choose(reviewer.page, 1, "approve")
    choose(reviewer.page, 2, "reject")
    choose(reviewer.page, 3, "approve")
    sign(reviewer.page)
    assert "/receipts/" not in reviewer.page.url
    assert not Decision.objects.filter(run=run.id).exists()
    reviewer.page.locator("#w2 [name^='r-']").first.fill("too kind")
    sign(reviewer.page)
    reviewer.page.wait_for_url("**/receipts/**")
    rejected = Decision.objects.get(run=run.id, verdict="reject")
    assert rejected.channel == "letter"
    auditor = browse(people.auditor)
    auditor.open(f"/audit/?run={run.key}")
    assert "too kind" in auditor.page.inner_text("main")


def test_a_proposal_that_changed_while_it_was_open_is_refused_and_the_others_are_signed(
    graphs: None, people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-35", people.starter)
    reviewer = browse(people.reviewer, java_script_enabled=False)
    reviewer.open("/reviews/CLM-35/")
    choose_all(reviewer.page)
    edited = next(row for row in run_actions.pending(run) if row.channel == "count")
    item = {"write": str(edited.write), "hash": edited.hash, "verdict": "edit"}
    reviews.sign(run.id, [{**item, "value": 4}], by=people.second_reviewer)
    sign(reviewer.page)
    reviewer.page.wait_for_url("**/receipts/**")
    text = reviewer.page.inner_text("main")
    assert "2 decisions signed" in text
    assert "already settled" in text
    counted = Decision.objects.filter(run=run.id, by=people.reviewer)
    assert {decision.channel for decision in counted} == {"payout", "letter"}


def test_a_deadline_that_passes_while_the_review_is_open_takes_the_buttons_away(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.graph_of(deadline=deadlines.HOUR)):
        run = claims.paused("CLM-39", people.starter)
        reviewer = browse(people.reviewer)
        reviewer.open("/reviews/CLM-39/")
        reviewer.page.wait_for_selector(".live:not([hidden])")
        assert reviewer.page.locator("input[value=approve]").count() > 0
        deadlines.let_come(run)
        deadlines.work_off(run)
        reviewer.page.wait_for_selector("#w1 input[value=approve]", state="detached")
        text = reviewer.page.inner_text("main").lower()
        assert "deadline" in text
        assert ApprovalRequest.objects.get(run=run).status != "open"


def test_the_double_click_the_reload_and_the_way_back_sign_once(
    graphs: None, people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-37", people.starter)
    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/CLM-37/")
    choose_all(reviewer.page)
    reviewer.page.dblclick("#sign")
    reviewer.page.wait_for_url("**/receipts/**")
    receipt = reviewer.page.url
    reviewer.page.reload()
    assert reviewer.page.url == receipt
    reviewer.page.go_back()
    reviewer.page.go_forward()
    assert Decision.objects.filter(run=run.id).count() == 3
    assert PendingWrite.objects.filter(run=run).count() == 3
