"""What a claim is worth and how it is to be treated. Pure functions over values; the nodes of the graph call them."""

from datetime import timedelta
from decimal import Decimal

from orchestrator.demo.claims.values import Assessment, ClaimFile, Letter, Payout, Screening

SMALL = Decimal("500.00")
"""Up to here, and where nothing is odd, a claim is paid without asking anybody."""
ODD, REFUSED = Decimal("0.30"), Decimal("0.80")
"""From these scores on a claim is looked at by a person, or refused."""
ENOUGH_PHOTOS = 2
_NOTHING = Decimal("0.00")
_CENT = Decimal("0.01")


def money(amount: Decimal) -> str:
    """As letters and labels write it: €4,512.50."""
    return f"€{amount:,.2f}"


def assess(claim: ClaimFile, *, claimed: Decimal, photos: int) -> Assessment:
    """The damage is what is estimated, at most what is claimed and insured; the excess comes off it."""
    estimated = sum((damage.estimate for damage in claim.damages), _NOTHING)
    damage = min(estimated, claimed, claim.policy.limit).quantize(_CENT)
    payable = max(damage - claim.policy.excess, _NOTHING)
    confidence = Decimal("0.90") if photos >= ENOUGH_PHOTOS else Decimal("0.55")
    return Assessment(damage=damage, excess=claim.policy.excess, payable=payable, photos=photos, confidence=confidence)


def screen(claim: ClaimFile, *, photos: int) -> Screening:
    """A score from plain rules, so that the same claim always gets the same one."""
    rules = [
        (claim.account != claim.policy.account, "0.35", "the account is not the one on the policy"),
        (claim.happened_on - claim.policy.since < timedelta(days=14), "0.25", "the policy was less than 14 days old"),
        (claim.earlier_claims >= 3, "0.20", f"{claim.earlier_claims} earlier claims"),
        (claim.reported_on - claim.happened_on > timedelta(days=90), "0.15", "reported after more than 90 days"),
        (photos == 0, "0.10", "no photographs"),
    ]
    found = [(Decimal(points), reason) for applies, points, reason in rules if applies]
    score = min(sum((points for points, _ in found), Decimal("0.02")), Decimal("0.99"))
    return Screening(score=score, reasons=[reason for _, reason in found])


def why_refused(claim: ClaimFile, assessment: Assessment, screening: Screening) -> str:
    """The reason why nothing is paid at all; empty where there is none."""
    if not claim.policy.since <= claim.happened_on <= claim.policy.until:
        return f"policy {claim.policy.number} did not cover {claim.happened_on}"
    if assessment.payable <= 0:
        return f"the damage of {money(assessment.damage)} is within the excess of {money(assessment.excess)}"
    if screening.score >= REFUSED:
        return f"the fraud score is {screening.score}: {', '.join(screening.reasons)}"
    return ""


def is_small(assessment: Assessment, screening: Screening) -> bool:
    """Whether nobody needs to look."""
    return assessment.payable <= SMALL and screening.score < ODD


def payout(claim: ClaimFile, assessment: Assessment) -> Payout:
    """The payment of what is payable."""
    return Payout(payee=claim.policyholder, account=claim.account, amount=assessment.payable, reference=claim.claim_id)


def letter(claim: ClaimFile, assessment: Assessment) -> Letter:
    """The letter that announces the payment."""
    excess = f"After your excess of {money(assessment.excess)} we" if assessment.excess else "We"
    body = (
        f"Dear {claim.policyholder},\n\n"
        f"We have assessed the damage of {claim.happened_on:%d %B %Y} ({claim.event}) at {money(assessment.damage)}. "
        f"{excess} will pay {money(assessment.payable)} to the account ending in {claim.account[-4:]}.\n\n"
        "If you see anything differently, please write to us within four weeks.\n\n"
        "Yours sincerely,\nClaims department"
    )
    return Letter(to=claim.email, subject=f"Your claim {claim.claim_id}", body=body)
