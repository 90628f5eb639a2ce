"""Pages of the documentation that explain one thing and name pages of the console on
the way: what they say of these is done and seen in a browser, with the runs and people
of the demo where these suffice.
"""

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from checkpoints import retention, timeline, verification
from checkpoints.core.status import Status
from checkpoints.models import Job, Run
from orchestrator import runs
from orchestrator.demo.claims.graphs import graph
from orchestrator.jobs import kinds
from tests.browser.conftest import KEY, Page
from tests.browser.docs_walk import DocsPage
from tests.support import run_actions, sealed_graphs
from tests.support.cast import People
from tests.support.figures import noted
from tests.support.forging import tamper
from tests.support.small_graphs import started
from tests.support.versioned_graphs import Texts, deployed, paying

Person = Callable[[str], User]
Browse = Callable[..., Page]
ASKS = "CLM-118834"


def test_erasure_a_steward_erases_a_path_on_the_pages_and_the_run_stays_readable(
    demo: Person, browse: Browse
) -> None:
    docs = DocsPage("erasure.md")
    window = browse(demo("stella"))
    page = window.page
    run = runs.get(KEY)
    person = timeline.state_at(str(run.head))["scratch"]["claim"]["policyholder"]

    # A path is written as on the pages.
    window.open(f"/runs/{KEY}/?at=1")
    docs.says("A path is written as on the pages")
    page.locator(
        "[data-test=changed] a", has_text="claim.policyholder"
    ).first.wait_for()

    docs.says(
        "stewards (the right to manage retention), on the run's page at `/runs/<run>/erase/`"
    )
    window.open(f"/admin/checkpoints/run/?q={KEY}")
    page.check("input[name=_selected_action] >> nth=0")
    page.select_option("select[name=action]", label=docs.word("Erase values…"))
    page.click("button[name=index]")
    page.wait_for_url("**/erase/")
    page.fill("#paths", "claim.policyholder")
    page.fill("#reason", "a person asked")
    docs.says("where the run's key is typed")
    page.get_by_label(f"Type {KEY} to confirm").fill(KEY)
    docs.press(page, "Erase for ever")
    docs.says(
        "Page and API queue the work (`retention.begin_erasure`) and answer at once"
    )
    page.wait_for_url(f"**/runs/{run.id}/")
    page.get_by_text("Values of this run are being erased since").wait_for()
    assert kinds.advance(Job.objects.get(kind="erase_run").id).status == "done"
    docs.says("the run's page and `GET` of the same address say when it has ended")
    page.reload()
    said = page.inner_text("[data-test=erased]")
    assert "were erased" in said
    assert "a person asked" in said

    docs.says('pages say "erased"')
    window.open(f"/runs/{KEY}/?at=1")
    assert "erased" in page.inner_text("[data-test=changed]")
    assert person not in page.content()
    docs.says(
        "From the first transaction on nothing can be forked, replayed or rewound from the run"
    )
    docs.says("the code of that refusal is `erased`, its status 410")
    window.open(f"/checkpoints/{run.head}/go-on/")
    assert "erased" in page.inner_text("main")
    assert page.locator("#go").count() == 0
    docs.says("so the run stays readable, and `verify_runs` still proves it")
    assert verification.verify_run(run.id) == []
    docs.is_walked()
    (refusal,) = window.complaints
    assert "410" in refusal


def test_erasure_is_refused_on_its_page_while_a_run_can_go_on_or_is_held(
    demo: Person, browse: Browse
) -> None:
    docs = DocsPage("erasure.md")
    stella = demo("stella")
    window = browse(stella)
    runs.advance(runs.get(ASKS).id)
    docs.says("a run that can still go on (cancel it first)")
    window.open(f"/runs/{ASKS}/erase/")
    assert "cancel it first" in window.page.inner_text("main").lower()
    docs.says("a run under a [legal hold]")
    retention.hold(runs.get(KEY).id, "a court asked", by=stella)
    window.open(f"/runs/{KEY}/erase/")
    assert "legal hold" in window.page.inner_text("main")
    assert window.page.locator("button:has-text('Erase for ever')").count() == 0


def test_integrity_what_was_changed_is_marked_on_its_page_and_nobody_decides_there(
    demo: Person, browse: Browse, settings: Any
) -> None:
    docs = DocsPage("integrity.md")
    run = runs.advance(runs.get(ASKS).id)
    point = timeline.get_checkpoint(f"{ASKS}:at-2")
    honest = point.superstep
    tamper(point, superstep=7)
    window = browse(demo("olive"))
    page = window.page

    docs.says("A row that does not match its seal is still listed")
    window.open(f"/runs/{ASKS}/?at=2")
    docs.sees(page, "tampered", within=".cplist")
    docs.says(
        "with the code `tampered_row` and the `row`. A page says so at that position,"
        " and shows the rest"
    )
    assert "it, or one that it builds on, is not what was written" in page.inner_text(
        "[data-test=refused]"
    )
    assert page.locator(".cplist li").count() > 2

    docs.says(
        "With `--mark`, a bad run becomes `tampered` if it has not ended and no worker"
        " is working on it"
    )
    with pytest.raises(CommandError, match="not as they were written"):
        call_command("verify_runs", ASKS, "--mark", stdout=io.StringIO())
    docs.says(
        "Its page and `GET runs/{run}/` say what is wrong and what helps. Nobody can decide in it"
    )
    page.reload()
    problem = page.inner_text(".problem")
    assert "Checkpoint 2 does not match its seal" in problem
    assert (
        "Restore the record from a backup; this page then offers to resume the run"
        in problem
    )
    reviewer = browse(demo("rita"))
    reviewer.open(f"/reviews/{ASKS}/")
    assert reviewer.page.locator("#sign, .trip input").count() == 0

    docs.says(
        "Restore the row from a backup and resume the run (page, API, `resume_run`)"
    )
    tamper(point, superstep=honest)
    page.reload()
    page.locator(".problem summary", has_text="Resume").click()
    page.click("button:has-text('Resume this run')")
    page.wait_for_selector("#run-head :text('Queued')")
    assert runs.advance(run.id).status == Status.PAUSED

    docs.says("If a key is missing, the code is `wrong_key`")
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, "SIGNING_KEYS": {"lost": b"l" * 32}}
    claim = {"claim_id": "CLM-118900", "amount": "180.00"}
    runs.advance(
        runs.start("claim_payout", claim, key="CLM-118900", by=demo("olive")).id
    )
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, "SIGNING_KEYS": {}}
    window.open("/runs/CLM-118900/")
    docs.sees(page, "not verified")

    docs.says(
        "Without any, a key is derived from `SECRET_KEY` (HKDF with SHA-256), and the"
        " workers page says so"
    )
    window.open("/workers/")
    page.get_by_text("derived from SECRET_KEY").wait_for()
    docs.is_walked()


def test_encryption_a_value_whose_key_is_missing_is_named_beside_the_run_and_breaks_no_page(
    people: People, browse: Browse, settings: Any, tmp_path: Any
) -> None:
    docs = DocsPage("encryption.md")
    others = {
        name: value
        for name, value in settings.COUNTERSIGN.items()
        if name != "ENCRYPTION_KEYS"
    }
    settings.COUNTERSIGN = {**others, "ENCRYPTION_KEYS": {"k1": b"k" * 32}}
    run = sealed_graphs.started(tmp_path, encrypted=True)
    docs.says(
        "In an encrypted graph it is left out, and lists name the graph and the key of the run"
    )
    window = browse(run_actions.reviewer(people.auditor))
    page = window.page
    window.open("/runs/")
    row = page.locator("tbody tr", has_text=run.key[:8]).first
    assert "watched" in row.inner_text()

    settings.COUNTERSIGN = others
    missing = docs.says("cannot be opened: key 'k1' is not configured")
    docs.says("A value that cannot be opened never breaks a page")
    for address in (
        "/reviews/",
        f"/runs/{run.id}/?tab=changed",
        f"/runs/{run.id}/?tab=state",
        f"/runs/{run.id}/?tab=writes",
    ):
        window.open(address)
        page.get_by_text(missing).first.wait_for()
    docs.says(
        "a page or an API call that needs the value answers 409 with the code"
        " `wrong_key` and the name of the row"
    )
    answer = page.goto(f"{window.site}/reviews/{run.id}/")
    assert answer.status == 409
    assert "approvals_approvalrequest" in page.inner_text("main")
    docs.says(
        "A worker stops the run in the status `tampered` with the same code and changes nothing"
    )
    settings.COUNTERSIGN = {**others, "ENCRYPTION_KEYS": {"k1": b"k" * 32}}
    run_actions.sign(run, people.auditor, ["approve", "approve"])
    settings.COUNTERSIGN = others
    stopped = runs.advance(run.id)
    assert stopped.status == Status.TAMPERED
    window.open(f"/runs/{run.id}/")
    page.get_by_text("A key is missing").first.wait_for()
    page.get_by_text("Put the key back").first.wait_for()
    docs.is_walked()


def test_versions_the_page_of_a_run_that_stopped_says_what_changed_and_offers_the_ways_that_exist(
    people: People, browse: Browse
) -> None:
    docs = DocsPage("versions.md")
    run = started(paying("1"))
    deployed(paying("2", Texts))
    window = browse(people.steward)
    page = window.page
    docs.says("The workers page names runs that no live worker can take")
    assert runs.advance(run.id).status == Status.INCOMPATIBLE
    window.open(f"/runs/{run.id}/")
    panel = page.locator(".problem")
    docs.says(
        "Each difference is said in words: ``channel `amount`: number became text``"
    )
    panel.get_by_text(re.compile("channel .?total.?: .* became text")).first.wait_for()
    docs.says(
        "The ways out of `incompatible`, of which the run's page offers those that exist"
    )
    docs.says("resume the run once it is deployed")
    docs.says(
        "a fork onto the new version from a checkpoint at which that can take over"
    )
    ways = (
        "Deploy the version that it began with beside the new one, or a migration"
        " to the new one; then resume it."
    )
    panel.get_by_text(ways).wait_for()
    assert panel.locator("summary, button", has_text="Resume").count() == 0
    window.open("/graphs/paying/")
    docs.word("fingerprint")
    docs.sees(page, "fingerprint", within=".facts")
    docs.is_walked()
    assert Run.objects.count() == 1


def test_checkpoints_their_names_and_sources_stand_on_the_page_of_the_run(
    demo: Person, browse: Browse
) -> None:
    docs = DocsPage("checkpoints.md")
    window = browse(demo("olive"))
    page = window.page
    window.open(f"/runs/{KEY}/?at=7")
    docs.says("| `CLM-1:at-7` | exactly the row with `seq` 7 |")
    assert page.inner_text("dd code.id") == f"{KEY}:at-7"
    docs.says("| `source` | why it was made:")
    assert "superstep ended, line 1" in page.inner_text("section:has(#cp)")
    docs.says("where a value was set, and by whom")
    window.open(f"/runs/{KEY}/?at=7&path=payout.amount")
    assert "payout.amount was set at" in page.inner_text("[data-test=watched]")
    docs.is_walked("before", "ops", "snapshot", "stay", "own", "ahead")


def test_graphs_what_an_author_writes_stands_where_the_documentation_says(
    demo: Person, browse: Browse
) -> None:
    docs = DocsPage("graphs.md")
    runs.advance(runs.get(ASKS).id)
    window = browse(demo("rita"))
    page = window.page
    docs.says(
        "one sentence about the graph, for its page, the catalogue and the start page"
    )
    operator = browse(demo("olive"))
    for address in ("/graphs/", "/graphs/claim_payout/", "/graphs/claim_payout/start/"):
        operator.open(address)
        operator.page.get_by_text(graph.description).first.wait_for()
    docs.says(
        "the path of the amount within the value: the inbox and groups of writes show the sum"
    )
    window.open("/reviews/")
    row = page.locator("[data-test=ask]", has_text=ASKS)
    assert "€4,512.50" in row.inner_text()
    window.open(f"/reviews/{ASKS}/")
    docs.says("a template over input, state and proposal")
    page.get_by_role(
        "heading", name=f"Is the settlement of {ASKS} right, and may it be paid?"
    ).first.wait_for()
    docs.says("`Fact(label, path)`, shown beside the writes")
    page.locator(".brief dt", has_text="Fraud score").wait_for()
    docs.says("a text is shown as the reason")
    assert "fraud score" in page.inner_text(".brief dl")
    docs.says("the name of the write, where it brings none of its own")
    page.get_by_text("Pay €4,512.50 to").first.wait_for()
    docs.says("the sentence on what can be taken back")
    page.get_by_text("A payment cannot be taken back.").first.wait_for()
    noted(runs.get(KEY), {"tokens": 1234})
    docs.says(
        "The run's page shows the figures of a checkpoint by node, and the sums of the run"
    )
    operator.open(f"/runs/{KEY}/?at=1")
    assert "1,234" in operator.page.inner_text("[data-test=noted]")
    assert "1,234" in operator.page.inner_text("[data-test=figures-of-node]")
    operator.open("/runs/")
    docs.press(operator.page, "Figures", within="main")
    docs.says("have the sums by day, graph and run")
    operator.page.locator("[data-test=sum]", has_text="tokens").get_by_text(
        "1,234"
    ).wait_for()
    docs.is_walked("Bound", "Guarded", "skip")
