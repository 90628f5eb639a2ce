"""The audit log after a copy of the database was put back, or after somebody took from its chain: it goes on behind
what is there, and a sealed line says so for ever. Nothing that is missing is made good by that: whoever reads the line
knows up to which head lines were lost.
"""

from typing import Any

from django.db import transaction

from checkpoints import audit_chain, audit_log
from checkpoints.audit_chain import ChainHead


def let_chain_go_on(*, reason: str, by: Any) -> ChainHead:
    """Write the line `database_restored`, chain it, and tell the new head outside the database. Return that head.

    The line holds {number, hash} of the head that the table had, {told_number, told_hash} of the last one that was told
    outside, and the reason. Raises `TamperedRow` where the file of heads cannot be read, and `WrongKey`.
    """
    with transaction.atomic():
        there = audit_chain.chain_head()
        told = audit_chain.last_told_head() or there
        facts: dict[str, Any] = {"number": there.number, "hash": there.hash}
        facts |= {"told_number": told.number, "told_hash": told.hash}
        audit_log.record("database_restored", actor=by, reason=reason, **facts)
        head = audit_chain.chain_anew()
    audit_chain.tell_head(head)
    return head
