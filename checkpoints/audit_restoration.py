"""Continues the audit log after a copy of the database was restored, or after lines of
its chain were removed: it goes on after the last line that exists, and a sealed line
records that forever. Nothing that is missing is repaired by that, but the line shows up
to which head lines were lost.
"""

from typing import Any

from django.db import transaction

from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.audit.chain import ChainHead


def let_chain_go_on(*, reason: str, by: Any) -> ChainHead:
    """Write the line `database_restored`, chain it, and publish the new head outside
    the database. Return that head.

    The line holds {number, hash} of the head that the table had, {told_number,
    told_hash} of the last one that was published outside, and the reason. Raises
    `TamperedRow` if the file of heads cannot be read, and `WrongKey`.
    """
    with transaction.atomic():
        stored = audit_chain.chain_head()
        # Without a file of heads nothing is known to be lost.
        published = audit_chain.last_told_head() or stored
        facts: dict[str, Any] = {
            "number": stored.number,
            "hash": stored.hash,
            "told_number": published.number,
            "told_hash": published.hash,
        }
        audit_log.record("database_restored", actor=by, reason=reason, **facts)
        head = audit_chain.chain_anew()
    # After the commit: a published head that the table lacks would stop the chain.
    audit_chain.tell_head(head)
    return head
