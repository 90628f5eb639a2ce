"""The case register: what the claim graph's writing node does, inside its transaction."""

from decimal import Decimal

from django.db.models import F
from django.db.models.functions import Greatest

from orchestrator.demo.claims.models import ClaimCase
from orchestrator.demo.claims.values import CaseUpdate, ClaimFile


def record(claim: ClaimFile, *, update: CaseUpdate | None, release: Decimal, paid: Decimal) -> int:
    """Bring the claim's row up to date and give the number of its changes. Without `update` status and payment stay as
    they are: who rejected the update did not want them recorded.
    """
    new = {"policyholder": claim.policyholder, "reserve": claim.reserve}
    case, _made = ClaimCase.objects.get_or_create(claim_id=claim.claim_id, defaults=new)
    booked = paid if update else Decimal(0)
    changed = {"status": update.status, "note": update.note} if update else {}
    ClaimCase.objects.filter(pk=case.pk).update(
        **changed,
        paid=F("paid") + booked,
        reserve=Greatest(F("reserve") - booked - release, Decimal(0)),
        changes=F("changes") + 1,
    )
    case.refresh_from_db()
    return case.changes
