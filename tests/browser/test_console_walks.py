"""The page of the documentation about the console, walked section by section with the
runs and people of the demo: each address is there for whom it is for, and what the page
calls something is what the browser shows.
"""

import json
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import reviews
from approvals.models import Decision, Draft
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.models import AuditLine, Run
from orchestrator import runs
from orchestrator.demo.claims.models import Payment
from tests.browser.conftest import KEY, Page
from tests.browser.docs_walk import DocsPage
from tests.browser.wire import Wire
from tests.support import claims, forks, run_actions
from tests.support.cast import UserFactory
from tests.support.processes import until

Person = Callable[[str], User]
Browse = Callable[..., Page]
DOCS = "console.md"
ASKS = "CLM-118834"
"""A run of the demo that waits for a review of four writes."""
STEP = 6
"""The checkpoint of KEY behind `review`, which had set the payout."""


@pytest.fixture
def asked(demo: Person) -> Run:
    """The run of the demo that waits for Rita or Jonas."""
    run = runs.advance(runs.get(ASKS).id)
    assert run.status == Status.PAUSED
    return run


def point_of(key: str, seq: int) -> Any:
    return timeline.get_checkpoint(f"{key}:at-{seq}")


def status_of(window: Page, address: str) -> int:
    answer = window.page.request.get(window.site + address)
    return int(answer.status)


WHO = {
    "everybody": ("nobody", ""),
    "everybody, what asks or asked them": ("nobody", ""),
    "everybody, their own": ("nobody", ""),
    "everybody, the runs they may see": ("nobody", ""),
    "everybody, of the runs they may see": ("nobody", ""),
    "everybody with a role": ("rita", "nobody"),
    "everybody with a role; doing it: the right to start": ("rita", "nobody"),
    "who may see the run": ("olive", "rita"),
    "who may see the run; signing: its reviewers": ("olive", "rita"),
    "who may see the run; keeping: who may decide": ("olive", "rita"),
    "who may see the run; noting: who may decide": ("olive", "rita"),
    "the right to see all runs, and to read the log or to reassign requests": (
        "ada",
        "rita",
    ),
    "who may see the run; doing it: the right to settle": ("olive", "rita"),
    "who may see the run; doing it: who may steer runs": ("olive", "rita"),
    "who may see the run; doing it: who may manage retention": ("olive", "rita"),
    "who may see the run; doing it: stewards": ("olive", "nobody"),
    "who may see both": ("olive", "rita"),
    "who signed; who may read the log, of runs that he may see": ("rita", "olive"),
    "the right to export": ("ada", "olive"),
    "the right to import": ("stella", "olive"),
    "the right to read the log: all; who sees all runs: lines about runs; others: their own": (
        "olive",
        "",
    ),
    "who may read the log and export": ("ada", "stella"),
    "who may manage webhooks": ("stella", "olive"),
}
"""Who a page is for, in the words of the documentation -> a person of the demo for whom
it is there, and one for whom it is not. The runs that are looked at did not ask Rita.
"""


def test_every_address_of_the_console_is_there_for_whom_the_documentation_says(
    asked: Run, demo: Person, browse: Browse
) -> None:
    docs = DocsPage(DOCS, "Pages")
    receipt = run_actions.sign(asked, demo("rita"), ["approve"] * 4)
    decision = Decision.objects.filter(run=asked.id)[0]
    ids = {
        "/receipts/<id>/": f"/receipts/{receipt.id}/",
        "/decisions/<id>/receipt/": f"/decisions/{decision.id}/receipt/",
        "/checkpoints/<id>/": f"/checkpoints/{point_of(KEY, STEP).id}/",
        "<run>/reopen/<request>/": f"{ASKS}/reopen/{decision.request_id}/",
        "b=<run>": f"b={ASKS}",
        "<run>": KEY,
        "<name>": "claim_payout",
        "<line>": str(AuditLine.objects.filter(run=asked.id)[0].pk),
    }
    windows = {name: browse(demo(name)) for name in ("olive", "rita", "stella", "ada")}
    windows["nobody"] = browse(UserFactory.create(username="nobody"))
    for cell, _, who in docs.table("address"):
        may, may_not = WHO[who]
        for address in re.findall(r"`([^`]+)`", cell):
            for word, value in ids.items():
                address = address.replace(word, value)
            assert status_of(windows[may], address) == HTTPStatus.OK, (may, address)
            if may_not:
                refused = status_of(windows[may_not], address)
                assert refused in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND), (
                    may_not,
                    address,
                )


def test_what_the_console_says_of_its_pages_stands_there(
    asked: Run, demo: Person, browse: Browse
) -> None:
    docs = DocsPage(DOCS, "Pages")
    window = browse(demo("olive"))
    page = window.page

    # The address is the view.
    for tab in re.findall(
        r"`(\w+)`",
        docs.says(
            "`&tab=` one of `changed`, `state`, `writes`, `results`, `memory`, `events`"
        ),
    ):
        window.open(f"/runs/{KEY}/?at={STEP}&tab={tab}")
        assert (
            page.get_attribute(".subtabs [aria-current]", "href").endswith(f"tab={tab}")
            or tab == "changed"
        )
    window.open(f"/runs/{KEY}/?at={STEP}")
    docs.press(page, "What changed", within=".subtabs")
    docs.says("A path under")
    page.locator("[data-test=changed]").get_by_role(
        "link", name="payout.account", exact=True
    ).first.click()
    page.wait_for_url("**path=scratch.payout.account**")
    docs.says("People are called by their names")
    assert "by Olive Hart" in page.inner_text("#run-head")

    # What stopped, what was not started, and what wants a yes
    docs.says("The list of runs says why a run stopped")
    failed = runs.advance(runs.get("CLM-118899").id)
    assert failed.status == Status.FAILED
    fork = {"by": demo("olive"), "reason": "the account was closed"}
    runs.fork(point_of(KEY, STEP).id, key="later", start=False, **fork)
    stops = runs.fork(point_of(KEY, STEP).id, key="stops", **fork)
    runs.advance(stops.id)
    window.open("/runs/")
    stopped = page.locator(f"#run-{failed.id}")
    assert "is not JSON" in stopped.inner_text()
    docs.sees(page, "Not started", within="tr:has-text('later')")
    docs.sees(page, "Needs a yes", within="tr:has-text('stops')")
    docs.says("chosen rows lead to their comparison")
    for key in ("later", "stops"):
        page.locator(f"tr:has-text('{key}') input[type=checkbox]").check()
    page.click("#chosen a:has-text('Compare')")
    page.wait_for_url("**/compare/**")

    docs.says("`/account/` switches them off")
    window.open("/account/")
    page.click("text=Switch shortcuts off")
    docs.says('`data-shortcuts="off"` on `body`')
    page.wait_for_selector("body[data-shortcuts=off]")
    docs.is_walked()
    assert window.complaints == []


def test_going_on_from_a_checkpoint_is_walked_from_the_plan_to_the_rewind(
    asked: Run, demo: Person, browse: Browse
) -> None:
    docs = DocsPage(DOCS, "Going on from a checkpoint")
    window = browse(demo("olive"))
    page = window.page
    window.open(f"/runs/{KEY}/?at={STEP}")
    for words in ("Replay from n", "Rewind to n", "Fork from n"):
        docs.sees(
            page,
            words,
            within="#run-head",
            shown=words.replace("n", "", 0)[:-1] + str(STEP),
        )
    docs.press(page, "Fork from n", shown=f"Fork from {STEP}")
    for words in ("kept", "happen again", "stop before", "ask people"):
        docs.sees(page, words, within="#what .tally")

    # One patch, three views.
    docs.says("In the form each channel is one line: its name, its value in short, and")
    docs.sees(page, "change", within="#ch-payout summary")
    docs.says("`input` and `diagnostics` are locked, and say why")
    assert page.locator(".locks li code").all_inner_texts() == ["input", "diagnostics"]
    assert all(text.strip() for text in page.locator(".locks .dim").all_inner_texts())
    page.click("#ch-payment summary")
    docs.sees(page, "Set", within="#ch-payment")
    docs.sees(page, "Not set", within="#ch-payment")
    docs.says("while it is not, none of its fields is asked for")
    assert page.locator("#ch-payment .fields").is_hidden()
    page.fill("#reason", "the account was closed")
    page.click("#ch-letter summary")
    page.fill("[name='s-letter.body']", "another letter")
    docs.press(page, "JSON", within="[aria-label='View of the patch']")
    docs.says(
        "the JSON opens in an editor (CodeMirror 6) with the old lines in red above the new ones"
    )
    docs.says("(`Ctrl F`). Tab leaves it")
    page.click(".json-editor .cm-content")
    page.keyboard.press("Control+f")
    page.wait_for_selector(".json-editor .cm-search")
    page.keyboard.type("another letter")
    page.keyboard.press("Enter")
    page.wait_for_selector(".json-editor .cm-old")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('.json-editor')") is False
    docs.press(page, "Operations", within="[aria-label='View of the patch']")
    docs.says("is RFC 6902, or a merge patch (RFC 7396)")
    page.wait_for_selector("#ops")
    assert json.loads(page.input_value("#ops"))[0]["value"] == "another letter"
    docs.press(page, "Form", within="[aria-label='View of the patch']")
    page.wait_for_selector("#view-form[aria-pressed=true]")
    docs.says("What changed stands open on top")
    assert page.locator(".chan >> nth=0").get_attribute("id") == "ch-letter"
    docs.says("the old one in red above the new one")
    assert page.locator("#lines li").nth(1).get_attribute("class") == "del"
    docs.sees(page, "needs the same signatures", within="#problems")
    docs.press(page, "Reset", within="#lines")
    page.wait_for_selector("#lines:not(:has(li))", state="attached")
    page.locator("#ch-letter").evaluate("channel => { channel.open = true }")
    page.fill("[name='s-letter.body']", "another letter")
    docs.press(page, "Reset all", within="#lines")
    page.wait_for_selector("#lines:not(:has(li))", state="attached")
    docs.sees(page, "Search the state")
    page.fill("#find-state", "closed")
    page.wait_for_selector("#found :text('The state does not contain it'), #found a")
    page.fill("#find-state", "")

    docs.sees(page, "Starting point", within="#from")
    page.click(".tape.start [aria-label^='Checkpoint 5,']")
    page.wait_for_selector("h1:has-text('Go on from checkpoint 5')")

    docs.says(
        "Each effect that happened already, or may have, has a box of its own, and none is ticked"
    )
    assert page.locator("#again input").count() == 3
    assert page.locator("#again input:checked").count() == 0

    # What waits for people at a checkpoint may be answered by who signs.
    rita = demo("rita")
    rita.groups.add(*demo("olive").groups.all())
    both = browse(rita)
    both.open(f"/checkpoints/{asked.head}/go-on/")
    docs.says("What depends on a decision is listed separately, under a heading")
    both.page.locator("#what h3.grp", has_text="review").first.wait_for()
    docs.sees(both.page, "Answers")
    docs.says("ask again (what happens without a choice)")
    assert both.page.is_checked("#answers input[value=ask] >> nth=0")
    docs.says(
        "An answer counts as one signature of yours, so only reviewers can give one"
    )
    both.page.get_by_text("Your answer counts as your signature.").first.wait_for()
    window.open(f"/checkpoints/{asked.head}/go-on/")
    assert page.locator("#answers input[type=radio]").count() == 0
    assert page.locator("#answers .hint").count() >= 4
    docs.says("Money and numbers read as the types declare them (`4,512.50`)")
    page.get_by_text("4,512.50").first.wait_for()

    # A replay
    window.open(f"/runs/{KEY}/?at={STEP}")
    docs.press(page, "Replay from n", shown=f"Replay from {STEP}")
    docs.says("A replay takes no patch, no answers and no yes")
    assert page.locator("#typed, #answers, #again").count() == 0
    docs.sees(page, "reused", within="#what")

    # A fork that is made paused, and one that stops before an effect
    window.open(f"/checkpoints/{point_of(KEY, STEP).id}/go-on/?how=fork")
    page.click("button:has-text('Fork, paused')")
    page.wait_for_url("**/runs/**")
    docs.press(page, "Start it")
    page.wait_for_selector("#run-head :text('Queued')")
    new_run = runs.advance(Run.objects.latest("created_at").id)
    docs.says(
        "A run that stopped before an effect says before which node, with a box for each"
    )
    page.wait_for_selector("text=Stopped before pay")
    page.check("input[name=allow-pay]")
    docs.press(page, "Go on with what is ticked")
    page.wait_for_selector("#run-head :text('Queued')")
    advanced_run = runs.advance(new_run.id)
    assert advanced_run.at_node == "send_letter"
    assert Payment.objects.filter(claim_id=KEY).count() == 2

    # A rewind, and without scripts
    window.open(f"/runs/{ASKS}/?at=2")
    docs.press(page, "Rewind to n", shown="Rewind to 2")
    docs.says(
        "A rewind needs a reason. Where it withdraws reviews or repeats effects it"
        " asks again, and names them"
    )
    page.fill("#reason", "the photographs were mixed up")
    page.wait_for_selector("#go:has-text('withdraw 1 review')")
    page.click("#go")
    asks_again = page.inner_text("[data-test=dialog]")
    assert "1 open review is withdrawn" in asks_again
    assert f"Is the settlement of {ASKS} right, and may it be paid?" in asks_again
    page.click("[data-test=dialog] button:has-text('Rewind to 2')")
    page.wait_for_url("**/runs/**")
    runs.advance(asked.id)
    window.open(f"/runs/{ASKS}/")
    docs.says("The old one is on a thin tape below it")
    page.locator(".tape.thin a").last.click()
    docs.sees(page, "superseded", within="#past")
    page.click(".subtabs a:has-text('Pending writes')")
    docs.sees(page, "withdrawn", within="#trio")
    plain = browse(demo("olive"), java_script_enabled=False)
    plain.open(f"/checkpoints/{point_of(KEY, STEP).id}/go-on/")
    plain.page.locator("#ch-letter summary").click()
    plain.page.fill("[name='s-letter.body']", "another letter")
    docs.press(plain.page, "Check", within="#foot")
    plain.page.wait_for_selector("#lines .new")
    docs.is_walked()
    assert window.complaints == []


def forked_by_hand(olive: User) -> Run:
    """A fork of KEY in which somebody has patched the letter: it waits for those who
    sign letters.
    """
    state = timeline.state_at(point_of(KEY, STEP).id)["artifacts"]
    patch = {
        "artifacts": {
            "letter": {
                **state["letter"],
                "subject": "Your claim, anew",
                "body": "another letter",
            }
        }
    }
    fork = forks.forked(runs.get(KEY), STEP, patch, by=olive)
    return runs.advance(fork.id)


def test_deciding_is_walked_from_the_first_choice_to_the_receipt(
    asked: Run, demo: Person, browse: Browse
) -> None:
    docs = DocsPage(DOCS, "Deciding")
    rita = demo("rita")
    window = browse(rita)
    page = window.page
    window.open(f"/reviews/{ASKS}/")
    docs.says(
        "Nothing is chosen when a review opens. Approve, Edit and Reject look alike"
    )
    assert page.locator(".trip input:checked").count() == 0
    colours = page.locator("#w1 .trip label").evaluate_all(
        "all => all.map(b => getComputedStyle(b).backgroundColor)"
    )
    assert len(set(colours)) == 1
    docs.sees(page, "New", within="#w1 th")
    docs.says("Where nothing was before, a table has one column")
    docs.sees(page, "What happens when you sign", within="#next")
    docs.says("An IBAN whose check digits are right stands in groups of four")
    page.locator("#w1 :text-is('3704')").first.wait_for()

    docs.press(page, "Edit", within="#w1")
    docs.says("opens a form made from the channel's type")
    page.fill("#w1 .editor input[name$='.amount']", "4000.00")
    docs.says(
        "the outcome of each write, with the edited values and amounts. Then it lists the nodes"
    )
    page.wait_for_selector("#next :text('4,000.00')")
    docs.says("It survives reload, log-out and another browser")
    until(Draft.objects.filter(by=rita).exists)
    plain = browse(rita, java_script_enabled=False)
    plain.open(f"/reviews/{ASKS}/")
    assert plain.page.is_checked("#w1 input[value=edit]")
    plain.page.check("#w2 input[value=approve]", force=True)
    docs.press(plain.page, "Keep my choices", within="#foot")
    plain.page.get_by_text("Your choices are kept; nothing is signed.").wait_for()

    window.open(f"/reviews/{ASKS}/")
    assert page.is_checked("#w2 input[value=approve]")
    for write in (1, 2, 3, 4):
        page.check(f"#w{write} input[value=approve]", force=True)
    page.wait_for_selector("#next code:text-is('pay')")
    page.route("**/sign/", lambda route: route.fulfill(status=503, body=""))
    page.click("#sign")
    docs.sees(page, "Not signed", within="#unsigned")
    page.unroute("**/sign/")
    docs.says("signing again counts once, even if the first try had arrived")
    page.click("#sign")
    page.wait_for_url("**/receipts/**")
    assert Decision.objects.filter(run=asked.id).count() == 4
    window.open("/reviews/?folder=decided")
    docs.sees(page, "Decided", within="#folders")
    window.open("/reviews/?q=CLM")
    for words in ("Waiting for you", "Your drafts", "Came back", "Signed, not final"):
        docs.sees(page, words, within="#folders")
    docs.sees(page, "Expired", within="#folders")
    for words in ("free", "taken by you", "taken by others"):
        docs.sees(page, words, within="main nav.seg")
    docs.sees(page, "Keep this filter as", within="main")

    # What somebody changed by hand
    fork = forked_by_hand(demo("olive"))
    window.open("/reviews/")
    docs.sees(page, "changed by hand", within=f"li:has-text('{fork.key}')")
    window.open(f"/reviews/{fork.key}/")
    docs.sees(page, "changed by hand", within=".brief")
    docs.sees(page, "why it is asked", within=".brief")
    docs.says("What the patch sets is compared with what was there")
    docs.sees(page, "Now", within="#w1 th")
    page.locator("#w1 .letter del").first.wait_for()
    # A draft for a version that has changed since
    with claims.registered(claims.graph_of(quorum=2)):
        claims.paused("CLM-5", demo("olive"))
        window.open("/reviews/CLM-5/")
        page.check("#w1 input[value=approve]", force=True)
        page.wait_for_selector("#next :text('1 of 2 signatures')")
        until(Draft.objects.filter(by=rita).exists)
        row = run_actions.pending(runs.get("CLM-5"))[0]
        edit = {
            "write": str(row.write),
            "hash": row.hash,
            "verdict": "edit",
            "value": {"amount": "1", "account": "x"},
        }
        reviews.sign(row.run_id, [edit], by=demo("jonas"))
        window.open("/reviews/CLM-5/")
        docs.sees(page, "This changed while you decided", within="#w1")
        docs.says("and never applied")
        assert page.locator("#w1 .trip input:checked").count() == 0
    docs.is_walked()
    assert [text for text in window.complaints if "503" not in text] == []


def test_comparing_is_walked_by_its_tabs(demo: Person, browse: Browse) -> None:
    docs = DocsPage(DOCS, "Comparing")
    fork = forked_by_hand(demo("olive"))
    window = browse(demo("olive"))
    page = window.page
    window.open(f"/compare/?a={KEY}&b={fork.key}")
    docs.says("A and B are letters in squares")
    assert page.locator(".sums .ab").all_inner_texts() == ["A", "B"]
    docs.sees(page, "Only differences")
    assert page.get_attribute("[role=switch]", "aria-checked") == "true"
    for tab in ("Path", "Writes", "Node results", "State"):
        docs.press(page, tab, within=".subtabs")
        page.wait_for_selector(f".subtabs [aria-current]:has-text('{tab}')")
    docs.press(page, "Only differences", within=".subtabs")
    docs.says("switched off, what is the same is listed too")
    page.wait_for_selector("[role=switch][aria-checked=false]")
    with page.expect_download() as download:
        docs.press(page, "Export as JSON")
    assert json.loads(download.value.path().read_text())["split"]
    page.fill("input[name=c]", ASKS)
    docs.press(page, "Add a third")
    page.wait_for_url("**&c=**")
    assert page.locator(".sums .ab").all_inner_texts() == ["A", "B", "C"]
    docs.is_walked()
    assert window.complaints == []


def test_what_is_said_live_stands_in_the_bar_and_on_the_review(
    asked: Run, demo: Person, browse: Browse
) -> None:
    docs = DocsPage(DOCS, "Live")
    rita = demo("rita")
    jonas = demo("jonas")
    window = browse(jonas)
    page = window.page
    wire = Wire(page)
    page.clock.install()
    window.open(f"/reviews/{ASKS}/")
    bar = ".live:not([hidden])"
    page.wait_for_selector(f"{bar} :text-is('{docs.word('Live')}')", state="attached")
    page.check("#w2 input[value=approve]", force=True)
    run_actions.sign(asked, rita, [None, "reject", None, None])
    said = docs.word("Rejected by Rita Lund at 06:41. Your draft was not sent.")
    who, when, not_sent = re.split(r" (\d\d:\d\d)\. ", said)
    page.wait_for_selector(f"#w2 .changed :text('{who}')")
    text = page.inner_text("#w2 .changed")
    assert re.search(rf"{who} \d\d:\d\d\.? {not_sent}", " ".join(text.split())), (
        text,
        when,
    )

    wire.cut(refuse=True)
    docs.says("(after two seconds)")
    page.clock.run_for(5000)
    page.wait_for_selector(f"{bar} :text-is('{docs.word('Reconnecting')}')")
    docs.says("(after thirty; the page then asks every ten seconds)")
    page.clock.run_for(30_000)
    page.wait_for_selector(f"{bar} :text-is('{docs.word('No live updates')}')")
    wire.is_cut = False
    page.clock.run_for(40_000)
    page.wait_for_selector(
        f"{bar} :text-is('{docs.word('Up to date again')}')", state="attached"
    )
    docs.is_walked()


def test_the_keys_of_the_documentation_are_those_that_each_page_lists(
    asked: Run, demo: Person, browse: Browse
) -> None:
    docs = DocsPage(DOCS, "Keys")
    operator = browse(demo("olive"))
    reviewer = browse(demo("rita"))
    pages = {
        "everywhere": (operator, "/graphs/"),
        "inbox": (reviewer, "/reviews/"),
        "review": (reviewer, f"/reviews/{ASKS}/"),
        "run": (operator, f"/runs/{KEY}/"),
        "compare": (operator, f"/compare/?a={KEY}&b={ASKS}"),
    }
    keys: dict[str, set[str]] = {}
    where = ""
    for place, cell, _ in docs.table("where"):
        where = place or where
        keys.setdefault(where, set()).update(re.findall(r"`([^`]+)`", cell))
    assert keys.keys() == pages.keys()
    for where, (window, address) in pages.items():
        window.open(address)
        window.page.keyboard.press("?")
        window.page.wait_for_selector("dialog#keys[open]")
        listed = window.page.locator("dialog#keys kbd").all_inner_texts()
        assert keys[where] <= {
            key for keys_of_line in listed for key in keys_of_line.split()
        }, where
    docs.is_walked()
