"""claim_payout, played in memory: every way through the graph. What it does is real:
HTTP, mail and the register.
"""

from decimal import Decimal
from typing import Any

import pytest
from django.core import mail

from checkpoints import uploads
from orchestrator.demo.claims.graphs import graph
from orchestrator.demo.claims.models import ClaimCase, Payment, PaymentCall
from orchestrator.demo.samples import CLAIMS
from orchestrator.engine import Played, play

pytestmark = pytest.mark.django_db(transaction=True)

PAYOUT, LETTER, CASE, RESERVE = range(4)


@pytest.fixture(autouse=True)
def _endpoint(live_server: Any, settings: Any) -> None:
    settings.COUNTERSIGN_DEMO_PAYMENTS_URL = f"{live_server.url}/demo/payments/"


def claim(number: int, amount: str, *, name: str = "") -> dict[str, Any]:
    with (CLAIMS / (name or f"CLM-{number}.json")).open("rb") as file:
        ref = uploads.save_upload(file, name=name or f"CLM-{number}.json", by=None)
    return {"claim_id": f"CLM-{number}", "amount": amount, "claim_file": ref}


def decided(**verdicts: Any) -> Any:
    """Decisions by channel: "approve", "reject", or a value that the write is edited
    to.
    """

    def decide(request: Any) -> dict[int, Any]:
        answers = {}
        for write in request.writes:
            content = verdicts.get(write.channel, verdicts.get("rest", "approve"))
            answers[write.position] = (
                (content, None) if isinstance(content, str) else ("edit", content)
            )
        return answers

    return decide


def visits(played: Played, node: str) -> int:
    return sum(task.node == node for step in played.supersteps for task in step.tasks)


def nothing_happened() -> bool:
    return not (
        PaymentCall.objects.exists() or mail.outbox or ClaimCase.objects.exists()
    )


def test_a_big_claim_waits_with_four_proposals_and_nothing_has_happened() -> None:
    played = play(graph, claim(118834, "4862.50"))
    assert played.status == "paused"
    (request,) = played.gates
    assert [write.label for write in request.writes] == [
        "Pay €4,512.50 to Marta Lindqvist",
        "Send the settlement letter to marta.lindqvist@example.com",
        "Close case CLM-118834 as settled",
        "Release €1,487.50 of the reserve",
    ]
    assert request.title == "Is the settlement of CLM-118834 right, and may it be paid?"
    assert nothing_happened()


def test_missing_photographs_are_asked_for_exactly_once() -> None:
    played = play(graph, claim(118834, "4862.50"))
    assert visits(played, "request_photos") == 1
    assert visits(played, "assess") == 2
    assert played.state.photos == ["kitchen-1.jpg", "kitchen-2.jpg", "pipe.jpg"]


def test_photographs_that_never_come_do_not_keep_the_loop_going() -> None:
    played = play(graph, claim(118870, "2288.00"))
    assert visits(played, "request_photos") == 1
    assert played.status == "completed"


def test_the_three_preparations_run_side_by_side() -> None:
    played = play(graph, claim(118867, "11530.00"))
    assert any(
        {task.node for task in step.tasks}
        == {"stage_payment", "draft_letter", "stage_case"}
        for step in played.supersteps
    )


def test_approving_everything_does_everything_once() -> None:
    played = play(graph, claim(118834, "4862.50"), decisions=decided(rest="approve"))
    assert played.status == "completed"
    assert played.state.outcome == "settled"
    payment = Payment.objects.get()
    assert payment.amount == Decimal("4512.50")
    assert payment.payee == "Marta Lindqvist"
    assert payment.claim_id == "CLM-118834"
    (letter,) = mail.outbox
    assert letter.to == ["marta.lindqvist@example.com"]
    assert "€4,512.50" in letter.body
    case = ClaimCase.objects.get()
    assert case.status == "settled"
    assert case.paid == Decimal("4512.50")
    assert case.reserve == Decimal("0.00")
    assert case.changes == 1


def test_rejecting_everything_does_nothing() -> None:
    played = play(graph, claim(118834, "4862.50"), decisions=decided(rest="reject"))
    assert played.status == "completed"
    assert played.state.outcome == "handed back"
    assert nothing_happened()


def test_what_was_rejected_is_not_done_and_what_was_edited_is_done_as_edited() -> None:
    letter = {
        "to": "marta@example.org",
        "subject": "About your claim",
        "body": "Dear Ms Lindqvist, we shall pay.",
    }
    decisions = decided(letter=letter, reserve_release="reject")
    played = play(graph, claim(118834, "4862.50"), decisions=decisions)
    assert played.state.outcome == "settled"
    assert mail.outbox[0].to == ["marta@example.org"]
    assert mail.outbox[0].body == "Dear Ms Lindqvist, we shall pay."
    assert ClaimCase.objects.get().reserve == Decimal("1487.50")


def test_a_rejected_payment_is_not_made() -> None:
    played = play(
        graph,
        claim(118834, "4862.50"),
        decisions=decided(payout="reject", letter="reject"),
    )
    assert not PaymentCall.objects.exists()
    assert not mail.outbox
    assert ClaimCase.objects.get().status == "settled"
    assert ClaimCase.objects.get().paid == 0
    assert played.state.outcome == "partly settled"


def test_a_rejected_update_leaves_the_register_alone() -> None:
    play(
        graph,
        claim(118834, "4862.50"),
        decisions=decided(case_update="reject", reserve_release="reject"),
    )
    assert Payment.objects.count() == 1
    assert not ClaimCase.objects.exists()


def test_an_edited_amount_is_what_is_paid() -> None:
    played = play(graph, claim(118834, "4862.50"))
    less = {**played.gates[0].writes[PAYOUT].value, "amount": "4000.00"}
    play(graph, claim(118834, "4862.50"), decisions=decided(payout=less))
    assert Payment.objects.get().amount == Decimal("4000.00")


def test_a_small_claim_pays_itself() -> None:
    played = play(graph, claim(118851, "469.90"))
    assert played.status == "completed"
    assert played.state.outcome == "settled"
    assert Payment.objects.get().amount == Decimal("394.90")


def test_a_claim_without_a_file_is_paid_to_an_example_policyholder() -> None:
    assert play(graph, {"claim_id": "CLM-1", "amount": "10.00"}).status == "completed"
    assert Payment.objects.get().amount == Decimal("10.00")
    assert play(graph, {"claim_id": "CLM-2", "amount": "900.00"}).status == "paused"


@pytest.mark.parametrize(
    ("number", "amount", "why"),
    [
        (118872, "180.00", "within the excess"),
        (118870, "2288.00", "fraud score is 0.92"),
    ],
)
def test_a_claim_that_is_not_covered_is_refused_without_asking(
    number: int, amount: str, why: str
) -> None:
    played = play(graph, claim(number, amount))
    assert played.status == "completed"
    assert played.state.outcome == "refused"
    assert why in played.state.notes[-1]
    assert nothing_happened()


def test_a_broken_claim_file_fails_the_run_naming_place_and_cure() -> None:
    played = play(graph, claim(118899, "10.00", name="CLM-118899-broken.json"))
    assert played.status == "failed"
    assert played.error is not None
    assert "CLM-118899-broken.json is not JSON (line" in played.error.message
    assert "export the claim again" in played.error.message


def test_the_file_of_another_claim_is_refused() -> None:
    played = play(graph, {**claim(118834, "10.00"), "claim_id": "CLM-9"})
    assert played.error is not None
    assert "is the file of CLM-118834, not of CLM-9" in played.error.message


def test_the_same_claim_is_always_screened_alike() -> None:
    scores = {
        str(play(graph, claim(118880, "2630.00")).state.screening) for _ in range(3)
    }
    assert len(scores) == 1
