"""Compares the heads of the audit log that were published outside the database with its
table, which must hold each of them.

A database that was restored from a copy lacks the newest ones. A sealed line of the
audit log says up to which head.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from checkpoints.audit import chain as audit_chain
from checkpoints.audit.chain import ChainHead
from checkpoints.models import AuditLine
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.verification.base import Fault
from orchestrator.engine.frozen import frozen

RESTORED = "database_restored"
"""The kind of the line that records that a database was restored: {number, hash} of the
head that it then had, and {told_number, told_hash} of the last one published before.
"""
RENEWED = "seals_renewed"
"""The kind of the line that says that rows of an older release were resealed, which
changed the hash of every line: it has the same facts, and 0 for the number.
"""
PAGE = 500
TABLE = AuditLine._meta.db_table
FILE = "the file of AUDIT_HEAD_FILE"


@frozen
class Restoration:
    """A restoration of the database from a copy, which held the lines up to `number`.

    `published`: the last head that had been published. Heads between the two are of
    lines that the copy did not hold.
    """

    number: int
    published: ChainHead


def told_heads() -> Iterator[Fault]:
    """Yield the faults of every head in the file that the settings name, in constant
    memory: one query per 500 heads.
    """
    try:
        yield from _faults_of_heads()
    except (OSError, ValueError) as error:
        yield Fault("", "", TABLE, FILE, f"{FILE} cannot be read: {error}")


def _faults_of_heads() -> Iterator[Fault]:
    """Yield a fault for each head that the table lacks, and for each after which the
    numbers go back. Raises what reading the file raises.
    """
    places = _last_places()
    restorations = []
    for restoration in _restorations():
        # One of a head that was never published explains nothing.
        if restoration.published in places:
            restorations.append(restoration)
    heads_before_restorations = {restoration.published for restoration in restorations}

    heads = enumerate(audit_chain.told_heads())
    before = ChainHead()
    while True:
        page = list(islice(heads, PAGE))
        if not page:
            break
        yield from _missing_heads(page, restorations, places)
        for _, head in page:
            # After a restoration the chain goes on from the older head that the copy
            # held.
            goes_back = head.number <= before.number
            if goes_back and before not in heads_before_restorations:
                reason = (
                    f"{FILE} tells line {head.number} behind line {before.number}:"
                    " the chain went back"
                )
                yield Fault("", "", TABLE, FILE, reason)
            before = head


def _missing_heads(
    page: Iterable[tuple[int, ChainHead]],
    restorations: list[Restoration],
    places: dict[ChainHead, int],
) -> Iterator[Fault]:
    """Yield a fault for each of these heads that is not in the table and was not lost
    in a restoration. One query.
    """
    numbers = [head.number for _, head in page]
    lines = AuditLine.objects.filter(number__in=numbers)
    stored = dict(lines.values_list("number", "hash"))
    for place, head in page:
        # Number 0 is the head of an empty audit log.
        if head.number == 0 or stored.get(head.number) == head.hash:
            continue
        if _is_lost_in_restoration(head, place, restorations, places):
            continue
        what = f"{TABLE} {head.number}"
        reason = "is another line" if head.number in stored else "is gone"
        yield Fault(
            "", "", TABLE, what, f"{what} {reason}: it was told outside the database"
        )


def _is_lost_in_restoration(
    head: ChainHead,
    place: int,
    restorations: list[Restoration],
    places: dict[ChainHead, int],
) -> bool:
    """Return whether the head at this place of the file was published before a
    restoration, of a line that the copy did not hold.
    """
    return any(
        place <= places[restoration.published] and head.number > restoration.number
        for restoration in restorations
    )


def _restorations() -> list[Restoration]:
    """Return the restorations that the audit log records. A line that does not match
    its seal counts for nothing.
    """
    restorations = []
    for row in AuditLine.objects.filter(kind__in=(RESTORED, RENEWED)).order_by("id"):
        if fault_of(row, sealed_rows.PLAIN) is not None:
            continue
        match row.facts:
            case {
                "number": int(number),
                "told_number": int(told_number),
                "told_hash": str(told_hash),
            }:
                published = ChainHead(told_number, told_hash)
                restorations.append(Restoration(number, published))
    return restorations


def _last_places() -> dict[ChainHead, int]:
    """Return the last place in the file of each head that a restoration names."""
    named = {restoration.published for restoration in _restorations()}
    places: dict[ChainHead, int] = {}
    # Mostly there was no restoration, and the file is then read once only.
    if not named:
        return places
    for place, head in enumerate(audit_chain.told_heads()):
        if head in named:
            places[head] = place
    return places
