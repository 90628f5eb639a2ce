"""The case register, to which the claim graph's writing node writes in its transaction."""

from decimal import Decimal

from django.db.models import F
from django.db.models.functions import Greatest

from orchestrator.demo.claims.models import ClaimCase
from orchestrator.demo.claims.values import CaseUpdate, ClaimFile


def record(
    claim: ClaimFile, *, update: CaseUpdate | None, release: Decimal, paid: Decimal
) -> int:
    """Update the claim's row and return the number of its changes. Without `update`
    status and payment stay as they are, because whoever rejected the update did not
    want them recorded.
    """
    case, _ = ClaimCase.objects.get_or_create(
        claim_id=claim.claim_id,
        defaults={
            "policyholder": claim.policyholder,
            "reserve": claim.reserve,
        },
    )
    booked = Decimal(0)
    columns: dict[str, str] = {}
    if update:
        booked = paid
        columns = {"status": update.status, "note": update.note}
    # Counted in the database, so that no update of another run is lost.
    ClaimCase.objects.filter(pk=case.pk).update(
        **columns,
        paid=F("paid") + booked,
        reserve=Greatest(F("reserve") - booked - release, Decimal(0)),
        changes=F("changes") + 1,
    )
    case.refresh_from_db()
    return case.changes
