"""The pages of the documentation that name pages of the console, walked word for word:
what they call something is what the browser shows, and what they say happens does.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail

from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.demo.claims.models import Payment
from orchestrator.engine import registry
from tests.browser.conftest import KEY, Page
from tests.browser.docs_walk import DocsPage
from tests.house import tutorial
from tests.house.words import blocks
from tests.support.cast import PASSWORD, People
from tests.support.run_actions import state

Browse = Callable[..., Page]
AGAIN = "CLM-118894-again"


@pytest.fixture
def expenses(site: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The graph of the tutorial, registered as at start-up."""
    known = dict(registry._registered)
    for name in ("expenses", "expenses.graphs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    module = sys.modules["expenses.graphs"]
    exec(compile(tutorial.GRAPHS, "expenses/graphs.py", "exec"), vars(module))
    registry.replace(vars(module)["graph"])
    yield
    registry._registered.clear()
    registry._registered.update(known)


def approve_all(page: Any) -> None:
    for control in page.locator("input[value=approve]").all():
        control.check(force=True)


def test_a_newcomer_goes_back_in_time_on_the_pages(
    demo: Callable[[str], User], browse: Browse
) -> None:
    docs = DocsPage("go-back-in-time.md")
    (patch,) = (json.loads(block) for block in blocks("go-back-in-time.md", "json"))
    account = patch["scratch"]["payout"]["account"]
    letter = patch["artifacts"]["letter"]["body"]
    window = browse(demo("olive"))
    page = window.page

    # 1. Find the checkpoint that set it
    window.open(f"/runs/{KEY}/")
    docs.sees(page, "Checkpoints")
    page.locator(f"a[href*='at={docs.says('Click on 6')[-1]}']").filter(
        visible=True
    ).first.click()
    docs.sees(page, "What changed")
    changed = page.locator("[data-test=changed]")
    docs.says("`review` set `payout`")
    changed.get_by_text("review").first.wait_for()
    docs.says("Click on `payout.account` there")
    changed.get_by_role("link", name="payout.account", exact=True).first.click()
    docs.sees(page, "was set at", within="[data-test=watched]")
    stops = page.locator("[data-test=watched] a").all_inner_texts()
    assert [text for text in stops if text.isdigit()] == re.findall(
        r"\d+", docs.says("was set at* 6")
    )

    # 3. Fork
    window.open(f"/runs/{KEY}/?at=6")
    docs.press(page, "Fork from 6")
    docs.sees(page, "Go on from checkpoint 6, after review", within="h1")
    docs.sees(page, "What will run")
    docs.sees(page, "Patch the state")
    docs.press(page, "Payout", within="#typed")
    docs.fill(page, "Account", account, within="#ch-payout")
    docs.press(page, "Letter", within="#typed")
    docs.fill(page, "Body", letter, within="#ch-letter")
    for view, field in (("JSON", "#json"), ("Operations", "#ops")):
        docs.press(page, view, within="[aria-label='View of the patch']")
        page.wait_for_selector(f"{field}", state="attached")
        assert account in page.input_value(field)
    docs.sees(page, "People sign", within="#problems")
    docs.sees(page, "Nothing runs until they have signed.", within="#problems")
    docs.sees(page, "May these happen a second time?")
    for node in re.findall(r"`(\w+)`", docs.says("tick `pay` and `send_letter`")):
        page.check(f"#allow-{node}")
    docs.sees(page, "Name and reason")
    docs.fill(page, "Key", docs.says(AGAIN))
    docs.fill(page, "Reason", "the account was closed")
    page.wait_for_function(
        "document.getElementById('go').textContent.includes('ask for signatures')"
    )
    docs.press(page, "Fork and ask for signatures", within="#foot")
    page.wait_for_url("**/runs/**")
    new_run = runs.advance(runs.get(AGAIN).id)
    assert new_run.status == Status.PAUSED
    assert Payment.objects.filter(claim_id=KEY).count() == 1

    # 4. Sign
    reviewer = browse(demo("rita"))
    reviewer.open("/")
    docs.press(reviewer.page, "Reviews", within="nav")
    docs.sees(reviewer.page, "changed by hand")
    reviewer.open(f"/reviews/{AGAIN}/")
    docs.sees(reviewer.page, "changed by hand")
    docs.sees(reviewer.page, "Approve")
    approve_all(reviewer.page)
    docs.press(reviewer.page, "Sign 2 decisions")
    reviewer.page.wait_for_url("**/receipts/**")
    runs.advance(new_run.id)
    assert (
        list(
            Payment.objects.filter(claim_id=KEY)
            .order_by("pk")
            .values_list("account", flat=True)
        )[-1]
        == account
    )
    assert mail.outbox[-1].body == letter
    window.open(f"/runs/{AGAIN}/")
    docs.sees(page, "Stopped before")
    page.check("input[name=allow-update_case]")
    docs.press(page, "Go on with what is ticked")
    page.wait_for_url("**/runs/**")
    assert runs.advance(new_run.id).status == Status.COMPLETED

    # 5. Compare both runs
    window.open(f"/compare/?a={KEY}&b={AGAIN}")
    docs.sees(page, "They split after checkpoint 6")
    window.open("/demo/")
    page.get_by_text(account).first.wait_for()
    docs.is_walked("guarded", "line")
    assert window.complaints == []


def test_a_newcomer_sees_a_signature_and_what_a_fork_would_do(
    demo: Callable[[str], User], browse: Browse, worker: Callable[[str], None]
) -> None:
    docs = DocsPage("quick-start.md", "See it")
    claim = docs.says("CLM-118867")
    runs.advance(claim)
    window = browse(demo("rita"))
    page = window.page
    docs.press(page, "Reviews", within="nav")
    page.get_by_role("link", name=claim).first.click()
    docs.sees(page, "Approve")
    for write in (0, 2, 3):
        page.locator("input[value=approve]").nth(write).check(force=True)
    docs.sees(page, "Edit")
    page.locator("input[value=edit]").nth(1).check(force=True)
    docs.fill(page, "Body", "Dear Ines Moreau, we pay.")
    docs.press(page, "Sign 4 decisions")
    page.wait_for_url("**/receipts/**")
    worker(claim)
    docs.sees(page, "What came of it")
    for node in ("pay", "send_letter", "update_case"):
        docs.says(f"`{node}`")
        page.get_by_text(re.compile(rf"{node}:\s+done")).first.wait_for()

    operator = browse(demo("olive"))
    page = operator.page
    docs.press(page, "Runs", within="nav")
    page.get_by_role("link", name=claim).first.click()
    docs.sees(page, "What changed")
    docs.says("Step back to checkpoint 6")
    for seq in range(10, 5, -1):
        page.keyboard.press("ArrowLeft")
        page.wait_for_url(f"**at={seq}")
    docs.press(page, "Fork from 6")
    docs.sees(page, "What will run")
    page.get_by_text("It happened already.").first.wait_for()
    docs.press(page, "Demo", within="header")
    page.wait_for_url("**/demo/")
    page.get_by_text(claim).first.wait_for()
    docs.is_walked()
    assert window.complaints == operator.complaints == []


def test_the_tutorial_is_walked_from_the_people_to_the_settlement(
    expenses: None, people: People, browse: Browse
) -> None:
    docs = DocsPage("tutorial.md")
    admin = User.objects.create_superuser("admin", "admin@example.org", PASSWORD)
    window = browse(admin)
    page = window.page

    # 4. People
    for name, group in (("olive", "operator"), ("rita", "reviewer")):
        window.open("/admin/")
        docs.sees(page, "Users")
        docs.press(page, "Add", within="tr:has-text('Users')")
        page.fill("#id_username", name)
        page.fill("#id_password1", PASSWORD)
        page.fill("#id_password2", PASSWORD)
        page.click("input[name=_save]")
        docs.sees(page, "Groups")
        docs.sees(page, "Staff status")
        page.select_option("[name=groups], #id_groups_from", label=docs.says(group))
        if page.locator("#id_groups_add, #id_groups_add_link").count():
            page.click("#id_groups_add, #id_groups_add_link")
        page.click("input[name=_save]")
        assert Group.objects.get(name=group).user_set.filter(username=name).exists()

    # 5. A run
    operator = browse(User.objects.get(username="olive"))
    page = operator.page
    operator.open("/")
    docs.press(page, "Graphs", within="nav")
    page.get_by_role("link", name="expense").first.click()
    docs.press(page, "Start a run")
    fields = {
        "Employee": "Kim Lund",
        "Amount": "120.50",
        "Reason": "train to Lyon",
        "Key": "EXP-1",
    }
    for label, value in fields.items():
        docs.fill(page, label, value)
    docs.press(page, "Start run")
    page.wait_for_url("**/runs/**")
    run = runs.advance(runs.get("EXP-1").id)
    docs.says("the form shows what differs")
    operator.open("/graphs/expense/start/")
    for label, value in {**fields, "Amount": "99.00"}.items():
        docs.fill(page, label, value)
    docs.press(page, "Start run")
    assert "120.50" in page.inner_text("[data-test=differs]")

    # 6. A review
    reviewer = browse(User.objects.get(username="rita"))
    page = reviewer.page
    reviewer.open("/")
    docs.press(page, "Reviews", within="nav")
    docs.press(page, "Pay 120.50 to Kim Lund?")
    for verdict in ("Approve", "Edit", "Reject"):
        docs.sees(page, verdict)
    approve_all(page)
    docs.press(page, "Sign 2 decisions")
    page.wait_for_url("**/receipts/**")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["paid"] is True
    operator.open("/runs/EXP-1/")
    docs.sees(operator.page, "settlement")
    docs.is_walked("outcome unknown")
    assert Run.objects.count() == 1


NAMED: list[tuple[str, dict[str, tuple[str, ...]], tuple[str, ...]]] = [
    ("audit.md", {"/audit/": ("Export CSV", "Export JSONL")}, ()),
    (
        "bundles.md",
        {f"/runs/{KEY}/": ("Export bundle",), "/runs/": ("Import a bundle",)},
        ("truncated",),
    ),
    ("memory.md", {f"/runs/{KEY}/": ("Memory",)}, ()),
    (
        "cookbook/fork-a-failed-batch.md",
        {
            f"/runs/{KEY}/?at=6": ("What changed",),
            f"/runs/{KEY}/?at=6&path=scratch.payout": ("was set at",),
            "/workers/": ("Workers",),
        },
        (),
    ),
    ("cookbook/erase-a-person.md", {"/runs/CLM-118834/": ("Cancel",)}, ()),
    (
        "retention.md",
        {
            "/admin/checkpoints/retentionpolicy/add/": (
                "Count what this would remove",
                "switched off",
                "waiting",
            )
        },
        (),
    ),
]
"""Docs -> address -> words that stand there; and words of the docs that are on no page.
"""


@pytest.mark.parametrize(
    ("name", "pages", "elsewhere"), NAMED, ids=[name for name, *_ in NAMED]
)
def test_what_the_documentation_calls_something_stands_on_its_page(
    name: str,
    pages: dict[str, tuple[str, ...]],
    elsewhere: tuple[str, ...],
    demo: Callable[[str], User],
    browse: Browse,
) -> None:
    docs = DocsPage(name)
    window = browse(
        User.objects.create_superuser("admin", "admin@example.org", PASSWORD)
    )
    for address, words in pages.items():
        window.open(address)
        for word in words:
            docs.sees(window.page, word)
    docs.is_walked(*elsewhere)
