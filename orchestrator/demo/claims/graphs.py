"""claim_payout: reads a claim, assesses it, asks people where that is needed, and then
really pays, writes and records.

Nothing happens outside before the review: the three staging nodes only prepare what
`review` proposes. After it, each effect looks at its own channel, which holds what
people approved, or nothing.
"""

from decimal import Decimal
from typing import Annotated, Any, Literal

from django.core.mail import EmailMessage
from pydantic import BaseModel, Field

from orchestrator.demo.claims import assessment, cases, payments, sources
from orchestrator.demo.claims.assessment import money
from orchestrator.demo.claims.values import (
    Assessment,
    CaseUpdate,
    ClaimFile,
    ClaimId,
    Letter,
    Paid,
    PaymentOrder,
    PaymentReceipt,
    Payout,
    ReserveRelease,
    Screening,
)
from orchestrator.engine import (
    END,
    START,
    Append,
    Artifact,
    Context,
    Fact,
    FileRef,
    Gate,
    Graph,
    Limit,
    Retry,
    Show,
    Sum,
    Union,
    Write,
)

NOTHING = Decimal("0.00")


class Claim(BaseModel):
    """The input of a run."""

    claim_id: ClaimId = Field(title="Claim", description="For example CLM-118834")
    amount: Paid = Field(title="Amount claimed", description="In euros")
    claim_file: FileRef | None = Field(
        default=None,
        title="Claim file",
        description="JSON. Without one, an example policyholder is used",
    )


class State(BaseModel):
    """The state of a claim."""

    claim: ClaimFile | None = None
    notes: Annotated[list[str], Append] = []
    photos: Annotated[list[str], Union] = []
    photo_requests: Annotated[int, Sum] = 0
    assessment: Assessment | None = None
    screening: Screening | None = None
    route: Literal["", "small", "large"] = ""
    planned_payout: Payout | None = None
    planned_letter: Annotated[Letter | None, Artifact] = None
    planned_case: CaseUpdate | None = None
    payout: Payout | None = None
    letter: Annotated[Letter | None, Artifact] = None
    case_update: CaseUpdate | None = None
    reserve_release: ReserveRelease | None = None
    payment: PaymentReceipt | None = None
    letter_sent: str = ""
    case_changes: int = 0
    outcome: Literal["open", "settled", "partly settled", "refused", "handed back"] = (
        "open"
    )


graph = Graph(
    "claim_payout",
    description="Screens an insurance claim, proposes the payout and a letter, and"
    " pays what was signed.",
    input=Claim,
    state=State,
    label="Claim {claim_id}",
    facts=[
        Fact("Claim", "input.claim_id", indexed=True),
        Fact("Claimed", "input.amount"),
    ],
)


@graph.node(effect="read", retry=Retry(attempts=3, backoff=0.2, on=(OSError,)))
def read_claim(state: Any, ctx: Context) -> Any:
    """Open the claim file."""
    claim_id = ctx.input.claim_id
    if ctx.input.claim_file is None:
        claim = sources.without_file(claim_id, amount=ctx.input.amount)
    else:
        claim = sources.from_file(ctx.input.claim_file, claim_id=claim_id)
    return {
        "claim": claim,
        "photos": claim.photos,
        "notes": [f"{claim.event}, {claim.happened_on}"],
    }


@graph.node()
def assess(state: Any, ctx: Context) -> Any:
    """Work out what the damage is worth under the policy."""
    assessed = assessment.assess(
        state.claim, claimed=ctx.input.amount, photos=len(state.photos)
    )
    damage = money(assessed.damage)
    return {
        "assessment": assessed,
        "notes": [f"damage {damage}, payable {money(assessed.payable)}"],
    }


@graph.node(effect="read")
def request_photos(state: Any, ctx: Context) -> Any:
    """Fetch the photographs that are only handed over on request. Asked once: what is
    then missing stays missing.
    """
    late = state.claim.photos_on_request
    return {
        "photos": late,
        "photo_requests": 1,
        "notes": [f"asked for photographs, {len(late)} came"],
    }


@graph.node(effect="read")
def screen(state: Any, ctx: Context) -> Any:
    """Estimate how likely it is that the claim is not what it says."""
    return {"screening": assessment.screen(state.claim, photos=len(state.photos))}


@graph.node()
def small_claim(state: Any, ctx: Context) -> Any:
    """Take the short way: a small claim needs no review."""
    return {"route": "small", "notes": ["small claim, no review"]}


@graph.node()
def second_look(state: Any, ctx: Context) -> Any:
    """Note what the reviewer should know."""
    reasons = ", ".join(state.screening.reasons) or "nothing odd"
    return {
        "route": "large",
        "notes": [f"score {state.screening.score}: {reasons}"],
    }


@graph.node()
def stage_payment(state: Any, ctx: Context) -> Any:
    """Prepare the payment."""
    return {"planned_payout": assessment.payout(state.claim, state.assessment)}


@graph.node()
def draft_letter(state: Any, ctx: Context) -> Any:
    """Prepare the letter."""
    return {"planned_letter": assessment.letter(state.claim, state.assessment)}


@graph.node()
def stage_case(state: Any, ctx: Context) -> Any:
    """Prepare the register's update."""
    return {
        "planned_case": CaseUpdate(
            status="settled", note=f"Settled at {money(state.assessment.payable)}"
        )
    }


def needs_review(state: Any, proposal: Any) -> str | bool:
    """Return the reason for which a person has to look, or False for none."""
    # A fork may have patched the amount since the route was chosen.
    if state.route == "small" and state.planned_payout.amount <= assessment.SMALL:
        return False
    return f"{money(state.planned_payout.amount)}, fraud score {state.screening.score}"


@graph.node(
    effect="human",
    gate=Gate(
        reviewers=["group:claims"],
        needs_approval=needs_review,
        title="Is the settlement of {input.claim_id} right, and may it be paid?",
        facts=[
            Fact("Claimed event", "claim.event"),
            Fact("Assessed damage", "assessment.damage"),
            Fact("Fraud score", "screening.score"),
            Fact("Oddities", "screening.reasons"),
        ],
        shows=["claim", "assessment", "screening"],
        writes={
            "payout": Show(
                label="Pay €{amount:,.2f} to {payee}",
                reversible="A payment cannot be taken back.",
                money="amount",
                # Nobody edits a payment beyond what the policy covers.
                limits={"amount": Limit(at_most="{state.claim.policy.limit}")},
            ),
            "letter": Show(
                label="Send the settlement letter to {to}",
                reversible="A letter cannot be taken back.",
            ),
            "case_update": Show(
                label="Update the case", reversible="The register can be changed again."
            ),
            "reserve_release": Show(
                label="Release €{amount:,.2f} of the reserve",
                reversible="The reserve can be set again.",
                money="amount",
            ),
        },
    ),
)
def review(state: Any, ctx: Context) -> Any:
    """Propose four writes, each decided separately."""
    plan = state.planned_payout
    claim = state.claim
    writes = [
        Write("payout", plan),
        Write("letter", state.planned_letter),
        Write(
            "case_update",
            state.planned_case,
            label=f"Close case {claim.claim_id} as settled",
        ),
    ]
    if claim.reserve > plan.amount:
        remaining = claim.reserve - plan.amount
        writes.append(Write("reserve_release", ReserveRelease(amount=remaining)))
    return writes


@graph.node(
    effect="external",
    idempotent=True,
    reads=["payout"],
    timeout=30,
    retry=Retry(attempts=4, backoff=0.5, on=(payments.PaymentUnavailable,)),
)
def pay(state: Any, ctx: Context) -> Any:
    """Pay what was approved. The key is the same however often this runs, so the
    endpoint pays once.
    """
    if state.payout is None:
        return {"notes": ["nothing paid"]}
    order = PaymentOrder(claim_id=ctx.input.claim_id, **state.payout.model_dump())
    receipt = payments.pay(order, key=ctx.idempotency_key)
    return {
        "payment": receipt,
        "notes": [f"paid {money(receipt.amount)}, payment {receipt.payment}"],
    }


# A refused connection has sent nothing, so its outcome need not be settled by people.
@graph.node(
    effect="external", reads=["letter"], timeout=30, not_done=(ConnectionRefusedError,)
)
def send_letter(state: Any, ctx: Context) -> Any:
    """Send what was approved. A second letter cannot be taken back, so a crash in here
    leaves the outcome to people.
    """
    letter = state.letter
    if letter is None:
        return {"notes": ["no letter sent"]}
    # Whoever has to say whether it went out can look for this in the outbox.
    message_id = f"<{ctx.idempotency_key[:32]}@claims.example.com>"
    headers = {"Message-ID": message_id}
    EmailMessage(
        letter.subject, letter.body, "claims@example.com", [letter.to], headers=headers
    ).send()
    return {"letter_sent": message_id, "notes": [f"letter sent to {letter.to}"]}


@graph.node(
    effect="write",
    atomic=True,
    reads=["claim", "case_update", "reserve_release", "payment"],
)
def update_case(state: Any, ctx: Context) -> Any:
    """Record in the register what was approved."""
    if state.case_update is None and state.reserve_release is None:
        return {"notes": ["register unchanged"]}
    changes = cases.record(
        state.claim,
        update=state.case_update,
        release=state.reserve_release.amount if state.reserve_release else NOTHING,
        paid=state.payment.amount if state.payment else NOTHING,
    )
    return {"case_changes": changes}


@graph.node()
def hand_back(state: Any, ctx: Context) -> Any:
    """Hand the claim back to its handler: everything was rejected, and nothing is done."""
    return {"outcome": "handed back", "notes": ["the review rejected every proposal"]}


@graph.node()
def refuse(state: Any, ctx: Context) -> Any:
    """Refuse the claim: nothing is payable."""
    why = assessment.why_refused(state.claim, state.assessment, state.screening)
    return {"outcome": "refused", "notes": [f"refused: {why}"]}


@graph.node()
def close(state: Any, ctx: Context) -> Any:
    """Note how the claim ended."""
    # `refuse` and `hand_back` have said how it ended.
    if state.outcome != "open":
        return None
    whole = (
        state.payment is not None
        and bool(state.letter_sent)
        and state.case_update is not None
    )
    return {"outcome": "settled" if whole else "partly settled"}


def enough_photos(state: Any) -> str:
    """Ask once, and only where photographs are missing."""
    few = len(state.photos) < assessment.ENOUGH_PHOTOS
    return "ask" if few and not state.photo_requests else "enough"


def route(state: Any) -> str:
    """Choose the next node by amount and score."""
    if assessment.why_refused(state.claim, state.assessment, state.screening):
        return "refuse"
    return (
        "small" if assessment.is_small(state.assessment, state.screening) else "large"
    )


graph.edge(START, "read_claim")
graph.edge("read_claim", "assess")
graph.branch("assess", enough_photos, {"ask": "request_photos", "enough": "screen"})
graph.edge("request_photos", "assess")
graph.branch(
    "screen",
    route,
    {"small": "small_claim", "large": "second_look", "refuse": "refuse"},
)
for looked in ("small_claim", "second_look"):
    for staged in ("stage_payment", "draft_letter", "stage_case"):
        graph.edge(looked, staged)
for staged in ("stage_payment", "draft_letter", "stage_case"):
    graph.edge(staged, "review")
graph.edge("review", "pay", when=("approved", "partial"))
graph.edge("review", "hand_back", when="rejected")
graph.edge("pay", "send_letter")
graph.edge("send_letter", "update_case")
graph.edge("update_case", "close")
graph.edge("hand_back", "close")
graph.edge("refuse", "close")
graph.edge("close", END)
