"""The review page and signing: what one sees, what counts, and what happens when
something is in the way.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals import reviews
from approvals.models import Decision, Receipt
from checkpoints.models import AuditLine, PendingWrite, Run
from orchestrator import runs
from orchestrator.engine import Limit
from tests.support import claims
from tests.support.cast import People, named
from tests.support.review_forms import choose, form_of, slip_of

Browse = Callable[[User], Client]


def open_review(browse: Browse, user: User, run: Run) -> Any:
    page = browse(user).get(reverse("review", args=[run.id]))
    assert page.status_code == 200
    return page


def sign(browse: Browse, user: User, run: Run, posted: dict[str, Any]) -> Any:
    return browse(user).post(reverse("sign", args=[run.id]), posted)


def test_a_review_opens_with_nothing_chosen(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    assert [slip.chosen for slip in page.context["page"].slips] == ["", "", ""]
    assert b" checked" not in page.content


def test_each_slip_shows_now_and_proposed_and_raw_json(
    run: Run, people: People, browse: Browse
) -> None:
    html = open_review(browse, people.reviewer, run).content.decode()
    assert "DE89370400440532013000" in html
    assert "we pay within 10 days." in html
    assert "&quot;amount&quot;: &quot;12.50&quot;" in html
    assert "A letter cannot be taken back." in html


def test_signing_all_leads_to_a_receipt_and_the_run_goes_on(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    answer = sign(
        browse,
        people.reviewer,
        run,
        choose(page, payout="approve", letter="approve", count="approve"),
    )
    receipt = Receipt.objects.get()
    assert answer.status_code == 302
    assert answer.url == reverse("receipt", args=[receipt.id])
    shown = browse(people.reviewer).get(answer.url).content.decode()
    assert "3 decisions signed" in shown
    assert shown.count("Approved") == 3
    assert runs.advance(run.id).status == "completed"


def test_an_edit_by_form_is_what_is_applied(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    posted = choose(page, payout="edit", letter="reject", count="approve")
    posted[f"e-{slip_of(page, 'payout').write}.amount"] = "9.75"
    assert sign(browse, people.reviewer, run, posted).status_code == 302
    edited = Decision.objects.get(verdict="edit")
    state = _state(runs.advance(run.id))
    assert state["payout"] == {"amount": "9.75", "account": "DE89370400440532013000"}
    assert state["letter"] == ""
    assert edited.by == people.reviewer


def _state(run: Run) -> dict[str, Any]:
    from checkpoints import timeline

    assert run.head
    return timeline.state_at(run.head)["scratch"]


def test_an_edit_that_breaks_the_type_is_refused_at_its_field(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    posted = choose(page, payout="edit", count="reject")
    posted[f"e-{slip_of(page, 'payout').write}.amount"] = "a lot"
    answer = sign(browse, people.reviewer, run, posted)
    assert answer.status_code == 422
    amount = next(
        c for c in slip_of(answer, "payout").control.walk() if c.path == "amount"
    )
    assert amount.error
    assert amount.value == "a lot"
    assert slip_of(answer, "count").chosen == "reject"
    assert slip_of(answer, "count").reason == "because"
    assert not Decision.objects.exists()


def test_json_that_cannot_be_read_is_refused_and_kept(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    posted = choose(page, count="edit")
    posted[f"e-{slip_of(page, 'count').write}"] = "three"
    answer = sign(browse, people.reviewer, run, posted)
    assert answer.status_code == 422
    assert b"whole number" in answer.content
    assert not Decision.objects.exists()


def test_rejecting_without_a_required_reason_is_refused(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    posted = choose(page, letter="reject", count="approve")
    posted[f"r-{slip_of(page, 'letter').write}"] = " "
    answer = sign(browse, people.reviewer, run, posted)
    assert answer.status_code == 422
    assert slip_of(answer, "letter").errors
    assert not Decision.objects.exists()


def test_signing_nothing_says_so(run: Run, people: People, browse: Browse) -> None:
    page = open_review(browse, people.reviewer, run)
    answer = sign(browse, people.reviewer, run, form_of(page))
    assert answer.status_code == 422
    assert b"Choose for at least one write" in answer.content


def test_the_same_form_twice_gives_the_same_receipt(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    posted = choose(page, payout="approve")
    first = sign(browse, people.reviewer, run, posted)
    second = sign(browse, people.reviewer, run, posted)
    assert first.url == second.url
    assert Decision.objects.count() == 1


def test_the_same_key_with_other_choices_is_a_conflict_with_a_fresh_key(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    sign(browse, people.reviewer, run, choose(page, payout="approve"))
    answer = sign(browse, people.reviewer, run, choose(page, letter="approve"))
    assert answer.status_code == 409
    assert answer.context["page"].key != page.context["page"].key
    assert Decision.objects.count() == 1


def test_what_changed_since_it_was_opened_is_not_signed_and_other_choices_stay(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    posted = choose(page, payout="approve")
    posted[f"h-{slip_of(page, 'payout').write}"] = "0" * 64
    answer = sign(browse, people.reviewer, run, posted)
    assert answer.status_code == 409
    assert slip_of(answer, "payout").chosen == ""
    assert b"changed since you opened it" in answer.content
    assert not Decision.objects.exists()


def test_what_somebody_else_settled_meanwhile_names_him_the_time_and_that_the_draft_was_not_sent(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    write = PendingWrite.objects.get(run=run, channel="payout")
    decision = {
        "write": write.write,
        "hash": write.hash,
        "verdict": "reject",
        "reason": "no",
    }
    reviews.sign(run.id, [decision], by=named(people.second_reviewer, "Ravi Shah"))
    answer = sign(browse, people.reviewer, run, choose(page, payout="approve"))
    at = f"{timezone.localtime():%H:}"
    assert answer.status_code == 409
    assert answer.context["page"].message.startswith(f"Rejected by Ravi Shah at {at}")
    assert answer.context["page"].message.endswith(" Your draft was not sent.")
    assert slip_of(answer, "payout").settled_line.startswith(
        "Rejected by Ravi Shah at "
    )
    assert not slip_of(answer, "payout").may


def test_it_is_said_also_where_the_run_has_gone_on_meanwhile(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    claims.decide_all(
        run, by=named(people.second_reviewer, "Ravi Shah"), verdict="reject"
    )
    runs.advance(run.id)
    posted = choose(page, payout="approve", letter="approve")
    answer = sign(browse, people.reviewer, run, posted)
    assert answer.status_code == 410
    assert answer.context["page"].message.startswith("Rejected by Ravi Shah at ")
    assert answer.context["page"].message.endswith(" Your drafts were not sent.")


def test_who_is_no_reviewer_reads_a_sentence_instead_of_buttons(
    run: Run, people: People, browse: Browse
) -> None:
    html = open_review(browse, people.starter, run).content.decode()
    assert "You are not one of its reviewers." in html
    assert "<form id=" not in html
    assert 'type="radio" name="v-' not in html


def test_posting_by_hand_without_the_right_is_refused_and_noted(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    answer = sign(browse, people.starter, run, choose(page, payout="approve"))
    assert answer.status_code == 403
    assert not Decision.objects.exists()
    assert AuditLine.objects.filter(
        kind="refused_not_a_reviewer", actor=people.starter
    ).exists()


def test_the_starter_under_four_eyes_reads_why_not(
    claim_graph: None, people: People, browse: Browse
) -> None:
    starter = claims.member(people.starter, "reviewer")
    waiting = claims.paused("CLM-4", starter, graph="four_eyes")
    html = open_review(browse, starter, waiting).content.decode()
    assert "You started this run, so somebody else must sign." in html
    assert "<form id=" not in html


def test_what_one_may_not_see_is_not_there(
    run: Run, people: People, browse: Browse
) -> None:
    nobody = browse(people.nobody)
    assert nobody.get(reverse("review", args=[run.id])).status_code == 404
    assert nobody.post(reverse("sign", args=[run.id]), {}).status_code == 404


def test_a_receipt_is_for_who_signed_and_for_the_auditor(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    url = sign(browse, people.reviewer, run, choose(page, payout="approve")).url
    assert browse(people.auditor).get(url).status_code == 200
    assert browse(people.second_reviewer).get(url).status_code == 404


def test_consequences_follow_the_edges_of_the_graph(
    run: Run, people: People, browse: Browse
) -> None:
    (outcomes,) = open_review(browse, people.reviewer, run).context["page"].outcomes
    nodes = {
        part.outcome: [line.node for line in part.lines if line.node]
        for part in outcomes.parts
    }
    assert nodes == {"approved": ["pay"], "rejected": ["refuse"], "partial": ["pay"]}


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "a\u202eb", "zero\u200bwidth"]
)
def test_hostile_values_are_shown_as_text(
    text: str, claim_graph: None, people: People, browse: Browse
) -> None:
    started = runs.start(
        "page_claim",
        {"claim_id": "CLM-9", "amount": "1", "holder": {"name": text}},
        by=people.starter,
    )
    html = open_review(
        browse, people.reviewer, runs.advance(started.id)
    ).content.decode()
    shown = html[html.index("data-writes") :]
    assert "<script>alert" not in shown
    letter = shown[shown.index('class="letter"') : shown.index("Raw JSON")]
    assert "\u202e" not in letter
    assert "\u200b" not in letter


def test_a_row_of_the_inbox_leads_to_its_review(
    run: Run, people: People, browse: Browse
) -> None:
    html = browse(people.reviewer).get(reverse("inbox")).content.decode()
    assert f'href="{reverse("review", args=[run.id])}"' in html


def test_each_slip_has_the_mark_of_what_it_sets_off_and_names_the_node(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    assert {slip.effect.effect for slip in page.context["page"].slips} == {"external"}
    html = page.content.decode()
    assert html.count('data-test="effect">External, when <code>pay</code> runs.') == 3
    assert "#fx-external" in html


def test_a_fault_is_one_plain_sentence_at_its_field(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run)
    posted = choose(page, payout="edit")
    posted[f"e-{slip_of(page, 'payout').write}.amount"] = "a lot"
    answer = sign(browse, people.reviewer, run, posted)
    amount = next(
        c for c in slip_of(answer, "payout").control.walk() if c.path == "amount"
    )
    assert amount.error == "This must be a number."
    assert slip_of(answer, "payout").errors == ["Amount: This must be a number."]
    assert b"Input should" not in answer.content


def test_who_signed_a_part_is_whom_the_rest_waits_for(
    run: Run, people: People, browse: Browse
) -> None:
    write = PendingWrite.objects.filter(run=run).order_by("position")[0]
    choice = {"write": str(write.write), "hash": write.hash, "verdict": "approve"}
    reviews.sign(run.id, [choice], by=people.reviewer)
    html = open_review(browse, people.reviewer, run).content.decode()
    assert "For the writes that are left." in html
    assert "Somebody else" not in html


@pytest.fixture
def bounded(people: People) -> Iterator[Run]:
    """A run that waits for a payout of at most the 12.50 of its claim, and a letter that
    needs it.
    """
    limits = {"amount": Limit(at_most="{input.amount}")}
    with claims.registered(
        claims.in_two_steps("bounded", limits=limits, needs=["payout"])
    ):
        yield claims.paused("CLM-1", people.starter, graph="bounded")


def test_a_slip_shows_the_limits_of_an_edit_and_what_its_write_needs(
    bounded: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, bounded).content.decode()
    html = " ".join(page.split())
    assert "An edit keeps amount at most 12.50." in html
    assert "Needs write 1: if that is rejected, so is this." in html


def test_an_edit_beyond_a_limit_is_refused_at_its_field(
    bounded: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, bounded)
    posted = choose(page, payout="edit", letter="approve")
    posted[f"e-{slip_of(page, 'payout').write}.amount"] = "12.51"
    answer = sign(browse, people.reviewer, bounded, posted)
    assert answer.status_code == 422
    controls = slip_of(answer, "payout").control.walk()
    errors = {control.path: control.error for control in controls}
    assert errors["amount"] == "must be at most 12.50"
    assert slip_of(answer, "letter").chosen == "approve"
    assert not Decision.objects.exists()


def test_a_write_that_was_rejected_with_another_says_with_which(
    bounded: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, bounded)
    sign(browse, people.reviewer, bounded, choose(page, payout="reject"))
    page = open_review(browse, people.reviewer, bounded)
    line = slip_of(page, "letter").settled_line
    assert line.startswith(
        f"Rejected with write 1 by {people.reviewer.get_full_name()}"
    )
