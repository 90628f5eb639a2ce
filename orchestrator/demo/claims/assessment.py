"""The assessment of a claim: its worth, its risk, and the payment. Pure functions over
values; the nodes of the graph call them.
"""

from datetime import timedelta
from decimal import Decimal

from orchestrator.demo.claims.values import (
    Assessment,
    ClaimFile,
    Letter,
    Payout,
    Screening,
)

SMALL = Decimal("500.00")
"""Up to this amount a claim without oddities is paid without a review."""
ODD = Decimal("0.30")
REFUSED = Decimal("0.80")
"""From these scores on a claim is reviewed, or refused."""
ENOUGH_PHOTOS = 2
_NOTHING = Decimal("0.00")
_CENT = Decimal("0.01")


def money(amount: Decimal) -> str:
    """Return an amount as letters and labels write it: €4,512.50."""
    return f"€{amount:,.2f}"


def assess(claim: ClaimFile, *, claimed: Decimal, photos: int) -> Assessment:
    """Return the assessment of a claim. The damage is the estimate, but at most what is
    claimed and insured; the excess is deducted from it.
    """
    estimated = sum((damage.estimate for damage in claim.damages), _NOTHING)
    damage = min(estimated, claimed, claim.policy.limit).quantize(_CENT)
    payable = max(damage - claim.policy.excess, _NOTHING)
    confidence = Decimal("0.90") if photos >= ENOUGH_PHOTOS else Decimal("0.55")
    return Assessment(
        damage=damage,
        excess=claim.policy.excess,
        payable=payable,
        photos=photos,
        confidence=confidence,
    )


def screen(claim: ClaimFile, *, photos: int) -> Screening:
    """Return a score from plain rules, so that the same claim always gets the same."""
    rules = [
        (
            claim.account != claim.policy.account,
            "0.35",
            "the account is not the one on the policy",
        ),
        (
            claim.happened_on - claim.policy.since < timedelta(days=14),
            "0.25",
            "the policy was less than 14 days old",
        ),
        (claim.earlier_claims >= 3, "0.20", f"{claim.earlier_claims} earlier claims"),
        (
            claim.reported_on - claim.happened_on > timedelta(days=90),
            "0.15",
            "reported after more than 90 days",
        ),
        (photos == 0, "0.10", "no photographs"),
    ]
    score = Decimal("0.02")
    reasons = []
    for applies, points, reason in rules:
        if applies:
            score += Decimal(points)
            reasons.append(reason)
    return Screening(score=min(score, Decimal("0.99")), reasons=reasons)


def why_refused(claim: ClaimFile, assessment: Assessment, screening: Screening) -> str:
    """Return the reason why nothing is paid at all; empty if there is none."""
    if not claim.policy.since <= claim.happened_on <= claim.policy.until:
        return f"policy {claim.policy.number} did not cover {claim.happened_on}"
    if assessment.payable <= 0:
        return (
            f"the damage of {money(assessment.damage)} "
            f"is within the excess of {money(assessment.excess)}"
        )
    if screening.score >= REFUSED:
        return f"the fraud score is {screening.score}: {', '.join(screening.reasons)}"
    return ""


def is_small(assessment: Assessment, screening: Screening) -> bool:
    """Return whether the claim needs no review."""
    return assessment.payable <= SMALL and screening.score < ODD


def payout(claim: ClaimFile, assessment: Assessment) -> Payout:
    """Return the payment of what is payable."""
    return Payout(
        payee=claim.policyholder,
        account=claim.account,
        amount=assessment.payable,
        reference=claim.claim_id,
    )


def letter(claim: ClaimFile, assessment: Assessment) -> Letter:
    """Return the letter that announces the payment."""
    we = "We"
    if assessment.excess:
        we = f"After your excess of {money(assessment.excess)} we"
    body = (
        f"Dear {claim.policyholder},\n\n"
        f"We have assessed the damage of {claim.happened_on:%d %B %Y} ({claim.event}) "
        f"at {money(assessment.damage)}. "
        f"{we} will pay {money(assessment.payable)} "
        f"to the account ending in {claim.account[-4:]}.\n\n"
        "If you disagree with any of this, please write to us within four weeks.\n\n"
        "Yours sincerely,\nClaims department"
    )
    return Letter(to=claim.email, subject=f"Your claim {claim.claim_id}", body=body)
