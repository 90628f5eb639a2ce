"""The receipt: the values that were signed beside what was proposed, what counted, and
why something did not.
"""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils.html import strip_tags

from approvals import reviews
from approvals.models import ApprovalRequest, Decision, Receipt
from checkpoints.models import AuditLine, PendingWrite, Run
from checkpoints.sealing.sealed_columns import pack_json, read_value
from orchestrator import runs
from orchestrator.engine import END, START, Fact, Gate, Show, Write
from orchestrator.engine.errors import NotAReviewer
from tests.support import claims, small_graphs
from tests.support.cast import People, named
from tests.support.forging import tamper
from tests.support.run_actions import pending

Browse = Callable[[User], Client]
LOWER = {"amount": "9.75", "account": "DE89370400440532013000"}


def decide(run: Run, by: User, **verdicts: Any) -> Receipt:
    """Sign writes by channel: a verdict, or the value of an edit."""
    items = []
    for row in pending(run):
        if row.channel in verdicts:
            verdict = verdicts[row.channel]
            edit = (
                {"verdict": "edit", "value": verdict}
                if verdict not in ("approve", "reject")
                else {"verdict": verdict}
            )
            items.append(
                {"write": str(row.write), "hash": row.hash, "reason": "because", **edit}
            )
    return reviews.sign(run.id, items, by=by)


def shown(client: Client, receipt: Receipt) -> str:
    answer = client.get(reverse("receipt", args=[receipt.id]))
    assert answer.status_code == 200
    return plain(answer)


def plain(answer: Any) -> str:
    """A page without what only keeps directions apart, and without the moments of its
    times, whose fractions of seconds may look like an amount.
    """
    html = str(answer.content.decode()).replace("<bdi>", "").replace("</bdi>", "")
    return re.sub(r' datetime="[^"]*"', "", html)


@pytest.fixture
def guarded(claim_graph: None, people: People) -> Run:
    """A run that waits under four eyes."""
    return claims.paused("CLM-4", people.starter, graph="four_eyes")


def titles(html: str) -> list[str]:
    """The headings of a page as one reads them."""
    return [
        unescape(strip_tags(heading))
        for heading in re.findall(r"<h[1-3][^>]*>(.*?)</h[1-3]>", html, re.DOTALL)
    ]


def test_a_receipt_shows_the_value_that_was_signed_beside_what_was_proposed(
    run: Run, people: People, browse: Browse
) -> None:
    html = shown(browse(people.reviewer), decide(run, people.reviewer, payout=LOWER))
    assert "Payout: amount 9.75" in titles(html), (
        "the title is made from the signed value"
    )
    assert "As proposed: Pay €12.50" in strip_tags(html)
    table = html[html.index('class="signed"') :].split("</table>")[0]
    assert [
        word for word in ("Proposed", "Signed", "12.50", "9.75") if word not in table
    ] == []
    assert "Counts. This write is approved." in html


def test_the_title_of_an_edited_write_is_made_from_its_template(
    people: People, browse: Browse
) -> None:
    shows = {"payout": Show(label="Move EUR {amount:,.2f} to {account}")}
    with claims.registered(
        claims.graph_of(writes=shows, title="Pay {payout.amount}?", quorum=2)
    ):
        run = claims.paused("CLM-7", people.starter)
        receipt = decide(run, people.reviewer, payout={**LOWER, "amount": "1800.00"})
        row = PendingWrite.objects.get(write=pending(run)[0].write, revision=2)
        assert row.label == "Move EUR 1,800.00 to DE89370400440532013000"
        assert read_value(row, "shown")["as_proposed"] == "Pay €12.50"
        html = shown(browse(people.reviewer), receipt)
        assert "Move EUR 1,800.00 to DE89370400440532013000" in titles(html)
        assert "Counts: 1 of 2 signatures." in html
        page = plain(
            browse(people.second_reviewer).get(reverse("review", args=[run.id]))
        )
        assert "Move EUR 1,800.00" in strip_tags(page)
        assert "As proposed: Pay €12.50" in strip_tags(page)
        assert "Pay 1800.00?" in titles(page), (
            "the question reads the proposal as it is now"
        )
        assert "Pay 12.50?" not in page


def test_a_question_and_its_facts_follow_an_edit(people: People) -> None:
    facts = [Fact("Amount", "payout.amount"), Fact("Claim", "input.claim_id")]
    with claims.registered(
        claims.graph_of(title="Pay {payout.amount} for {input.claim_id}?", facts=facts)
    ):
        run = claims.paused("CLM-8", people.starter)
        decide(run, people.reviewer, payout=LOWER)
        request = ApprovalRequest.objects.get(run=run)
        assert read_value(request, "title") == "Pay 9.75 for CLM-8?"
        assert [fact["value"] for fact in read_value(request, "facts")] == [
            "9.75",
            "CLM-8",
        ]
        decide(run, people.reviewer, letter="approve", count="approve")
        assert runs.advance(run.id).status == "completed"


def test_a_settled_slip_shows_the_signed_value_and_what_the_node_had_proposed(
    run: Run, people: People, browse: Browse
) -> None:
    decide(run, people.reviewer, payout=LOWER)
    (slip, *_) = (
        browse(people.reviewer)
        .get(reverse("review", args=[run.id]))
        .context["page"]
        .slips
    )
    assert slip.title == "Payout: amount 9.75"
    assert slip.as_proposed == "Pay €12.50"
    html = (
        browse(people.reviewer).get(reverse("review", args=[run.id])).content.decode()
    )
    card = html[html.index("What the edit changed") :]
    assert "Edited" in card.split("</table>")[0]
    assert "12.50" in card.split("</table>")[0]
    assert "9.75" in card.split("</table>")[0]


def test_an_edit_that_changes_nothing_keeps_the_title(run: Run, people: People) -> None:
    decide(run, people.reviewer, payout={**LOWER, "amount": "12.50"})
    assert pending(run)[0].label == "Pay €12.50"


def test_under_four_eyes_a_receipt_says_that_the_editors_own_approval_does_not_count(
    guarded: Run, people: People, browse: Browse
) -> None:
    receipt = decide(guarded, people.reviewer, payout=LOWER, count="approve")
    html = shown(browse(people.reviewer), receipt)
    assert "2 decisions signed, 1 does not count as an approval" in html
    assert "counts as nobody&#x27;s approval" in html
    assert [
        (line["result"], line["signatures"], line["settled"]) for line in receipt.lines
    ] == [
        ("kept", 0, ""),
        ("counted", 1, "approved"),
    ]


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_under_four_eyes_who_edited_a_write_is_excluded_for_both_verdicts(
    verdict: str, guarded: Run, people: People
) -> None:
    decide(guarded, people.reviewer, payout=LOWER)
    with pytest.raises(NotAReviewer, match="You edited this write"):
        decide(guarded, people.reviewer, payout=verdict)
    (line,) = AuditLine.objects.filter(
        kind="refused_not_a_reviewer", actor=people.reviewer
    )
    assert "label" not in str(line.facts), (
        "the audit log holds no text that is made of a value"
    )
    assert Decision.objects.count() == 1
    receipt = decide(
        guarded, people.reviewer, payout=verdict, letter="approve", count="approve"
    )
    assert [line["result"] for line in receipt.lines] == [
        "excluded",
        "counted",
        "counted",
    ]
    assert runs.advance(guarded.id).status == "paused", "his verdict ends nothing"
    decide(guarded, people.second_reviewer, payout="approve")
    assert runs.advance(guarded.id).status == "completed"


def test_the_page_says_before_one_signs_that_four_eyes_exclude_him(
    guarded: Run, people: People, browse: Browse
) -> None:
    before = (
        browse(people.reviewer)
        .get(reverse("review", args=[guarded.id]))
        .content.decode()
    )
    assert before.count("somebody else must sign what you edit") == 3
    decide(guarded, people.reviewer, payout=LOWER)
    page = browse(people.reviewer).get(reverse("review", args=[guarded.id]))
    payout, letter, _ = page.context["page"].slips
    assert payout.may is False
    assert letter.may is True
    assert (
        "You edited this write, so somebody else must approve or reject it."
        in page.content.decode()
    )
    assert "It does not count for what is asked now." in page.content.decode()
    assert page.context["page"].signed == 0
    assert page.context["page"].quorum == 1
    other = (
        browse(people.second_reviewer)
        .get(reverse("review", args=[guarded.id]))
        .context["page"]
    )
    assert all(slip.may for slip in other.slips)


def test_who_signed_already_reads_that_he_counts_once(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.graph_of(quorum=2)):
        run = claims.paused("CLM-5", people.starter)
        decide(run, people.reviewer, payout="approve")
        html = (
            browse(people.reviewer)
            .get(reverse("review", args=[run.id]))
            .content.decode()
        )
        assert "You approved it already. It counts once" in html
        again = decide(run, people.reviewer, payout="approve")
        assert "you count once" in shown(browse(people.reviewer), again)
        assert again.lines[0]["signatures"] == 1


def test_a_value_that_was_changed_after_it_was_signed_is_not_shown_as_signed(
    run: Run, people: People, browse: Browse
) -> None:
    receipt = decide(run, people.reviewer, payout=LOWER)
    (signed,) = PendingWrite.objects.filter(run=run, channel="payout", revision=2)
    tamper(signed, value=pack_json({**LOWER, "amount": "9999.00"}))
    html = shown(browse(people.reviewer), receipt)
    assert "9999" not in html
    assert "is not what was written" in html or "not as it was" in html


@pytest.fixture
def no_longer_asked(run: Run, people: People) -> Receipt:
    """A receipt of the reviewer's, who may not see the run any more."""
    receipt = decide(run, people.reviewer, payout=LOWER, letter="reject")
    people.reviewer.groups.clear()
    return receipt


def test_who_signed_keeps_his_verdicts_and_is_shown_nothing_of_a_run_that_he_may_not_see_any_more(
    run: Run, people: People, browse: Browse, no_longer_asked: Receipt
) -> None:
    client = browse(people.reviewer)
    assert client.get(reverse("run", args=[run.id])).status_code == 404
    html = shown(client, no_longer_asked)
    assert [
        word
        for word in (
            "Edited",
            "Rejected",
            "Counts. This write is approved.",
            "Write 1",
            "Write 2",
        )
        if word not in html
    ] == []
    secrets = (
        "9.75",
        "12.50",
        "DE89",
        "amount",
        "letter",
        "Dear",
        str(run.id),
        run.key,
        str(run),
    )
    assert [word for word in secrets if word in html] == []


def test_a_receipt_of_somebody_else_is_for_who_reads_the_audit_log_and_sees_the_run(
    run: Run, people: People, browse: Browse
) -> None:
    receipt = decide(run, people.reviewer, payout=LOWER)
    address = reverse("receipt", args=[receipt.id])
    watch = User.objects.create(username="watches-the-log")
    watch.user_permissions.add(Permission.objects.get(codename="view_audit"))
    assert browse(people.auditor).get(address).status_code == 200
    assert [
        browse(user).get(address).status_code
        for user in (watch, people.starter, people.nobody)
    ] == [404] * 3


def test_a_receipt_names_who_had_signed_the_same_before_while_its_run_is_seen(
    people: People, browse: Browse, claim_graph: None
) -> None:
    named(people.reviewer, "Rita Rivers")
    with claims.registered(claims.graph_of("two", quorum=2)):
        run = claims.paused("CLM-2", people.starter, graph="two")
        first = decide(run, people.reviewer, payout="approve", count="approve")
        assert "Decided before by" not in shown(browse(people.reviewer), first)
        second = decide(run, people.second_reviewer, payout=LOWER, count="approve")
        html = shown(browse(people.second_reviewer), second)
        # The payout is another one now.
        assert html.count("Decided before by Rita Rivers (approved).") == 1
        people.second_reviewer.groups.clear()
        html = shown(browse(people.second_reviewer), second)
        assert "Rita Rivers" not in html


def test_the_review_and_the_receipt_say_which_effect_a_write_names(
    people: People, browse: Browse
) -> None:
    flow = small_graphs.graph("named-effect")

    @flow.node("propose", effect="human", gate=Gate(reviewers=["user:rita"]))
    def propose(state: Any, ctx: Any) -> list[Write]:
        return [Write("letter", "Dear", effect="external")]

    flow.edge(START, "propose")
    flow.edge("propose", END)
    run = small_graphs.advanced(flow)
    client = browse(people.reviewer)
    review = plain(client.get(reverse("review", args=[run.id])))
    assert "Effect of acting on it: external." in review
    assert 'data-test="named-effect"' in review
    receipt = decide(run, people.reviewer, letter="approve")
    assert "Effect of acting on it: external." in shown(client, receipt)
