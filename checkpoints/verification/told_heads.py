"""The heads of the audit log that were told outside the database: the table must hold each of them.

A database that was restored from a copy lacks the newest ones. A sealed line of the audit log says up to which head.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from checkpoints import audit_chain
from checkpoints.audit_chain import ChainHead
from checkpoints.models import AuditLine
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.verification.base import Fault
from orchestrator.engine.frozen import frozen

RESTORED = "database_restored"
"""The kind of the line that says that a database was restored: {number, hash} of the head that it then had, and
{told_number, told_hash} of the last one that was told before.
"""
PAGE = 500
TABLE = AuditLine._meta.db_table
FILE = "the file of AUDIT_HEAD_FILE"


@frozen
class Restoration:
    """Heads behind `number` that were told up to `told` are of lines that the copy did not hold."""

    number: int
    told: ChainHead


def told_heads() -> Iterator[Fault]:
    """Compare every head in the file that the settings name with the table, in flat memory: a query for 500 heads."""
    try:
        places = _last_places()
        restorations = [one for one in _restorations() if one.told in places]
        heads = enumerate(audit_chain.told_heads())
        before = ChainHead()
        while page := list(islice(heads, PAGE)):
            yield from _missing(page, restorations, places)
            for _, head in page:
                if head.number <= before.number and not any(before == one.told for one in restorations):
                    reason = f"{FILE} tells line {head.number} behind line {before.number}: the chain went back"
                    yield Fault("", "", TABLE, FILE, reason)
                before = head
    except (OSError, ValueError) as error:
        yield Fault("", "", TABLE, FILE, f"{FILE} cannot be read: {error}")


def _missing(
    page: Iterable[tuple[int, ChainHead]], restorations: list[Restoration], places: dict[ChainHead, int]
) -> Iterator[Fault]:
    numbers = [head.number for _, head in page]
    there = dict(AuditLine.objects.filter(number__in=numbers).values_list("number", "hash"))
    for place, head in page:
        if head.number == 0 or there.get(head.number) == head.hash:
            continue
        if any(place <= places[one.told] and head.number > one.number for one in restorations):
            continue
        what = f"{TABLE} {head.number}"
        reason = "is another line" if head.number in there else "is gone"
        yield Fault("", "", TABLE, what, f"{what} {reason}: it was told outside the database")


def _restorations() -> list[Restoration]:
    """Read what sealed lines say of restorations. A line that is not as it was sealed says nothing."""
    restorations = []
    for row in AuditLine.objects.filter(kind=RESTORED).order_by("id"):
        if fault_of(row, sealed_rows.PLAIN) is not None:
            continue
        match row.facts:
            case {"number": int(number), "told_number": int(told), "told_hash": str(hash_)}:
                restorations.append(Restoration(number, ChainHead(told, hash_)))
    return restorations


def _last_places() -> dict[ChainHead, int]:
    """Find where the file tells the heads that restorations name, the last time."""
    named = {one.told for one in _restorations()}
    if not named:
        return {}
    return {head: place for place, head in enumerate(audit_chain.told_heads()) if head in named}
