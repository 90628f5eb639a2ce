"""The refusal of verbs inside a transaction that the caller has open. Verbs that run
nodes check it before they claim anything.

An intent that the caller can roll back is none: the effect would stay, its record would
not, and it would be repeated under another key.
"""

from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from orchestrator.engine.errors import OpenTransaction


def refuse_open_transaction(verb: str) -> None:
    """Raise `OpenTransaction`, naming the verb, if a transaction is open on the default
    database.

    The transaction that Django's `TestCase` wraps around a test does not count, by the
    rule of `atomic(durable=True)`.
    """
    database: Any = connections[DEFAULT_DB_ALIAS]
    if database.in_atomic_block:
        is_open = not database.atomic_blocks[-1]._from_testcase
    else:
        # A caller who commits by hand is in a transaction without any atomic block.
        is_open = not database.get_autocommit()
    if is_open:
        raise OpenTransaction(
            f"{verb} was called inside a transaction, and what it does must not be "
            "rolled back with it: call it after the commit (transaction.on_commit), or "
            "outside the atomic block; with ATOMIC_REQUESTS, mark the view with "
            "transaction.non_atomic_requests",
            verb=verb,
        )
