"""Rows of encrypted runs made by hand, keys for tests, and SQL that goes round
everything.
"""

import base64
from typing import Any
from uuid import UUID, uuid4

from django.db import connection

from approvals.models import Decision
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import Protection
from tests.support import rows

OLD = b"o" * 32
NEW = b"n" * 32
ONE_KEY = {"ENCRYPTION_KEYS": {"old": base64.b64encode(OLD).decode()}}
TWO_KEYS = {"ENCRYPTION_KEYS": {"old": OLD, "new": NEW}}
COVER = Protection(encrypted=True, hash_key="old")


def run_sql(statement: str, *params: Any) -> int:
    """Do a statement that no code of ours would do. Gives how many rows it changed."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return int(cursor.rowcount)


def an_encrypted_run(**columns: Any) -> Run:
    """The row of an encrypted run, sealed and encrypted."""
    run = rows.a_run(encrypted=True, hash_key="old", **columns)
    sealed_rows.seal_and_encrypt([run], COVER)
    run.save()
    return run


def encrypted_writes(run: Run, count: int) -> list[PendingWrite]:
    """Pending writes of a run, each with a value of its own."""
    collected = []
    for n in range(count):
        row = PendingWrite(
            write=uuid4(),
            revision=1,
            run=run,
            line=1,
            node="propose",
            visit=1,
            index=n,
            position=0,
            channel="letter",
            value=pack_json(f"secret {n}"),
            base=pack_json({}),
            shown=pack_json({"label": "l"}),
            bound_hash="b" * 64,
            policy_hash="p" * 64,
            hash="h" * 64,
            superstep=1,
            staged_at=rows.START,
        )
        collected.append(row)
    sealed_rows.seal_and_encrypt(collected, COVER)
    return PendingWrite.objects.bulk_create(collected)


def an_encrypted_decision(run: Run, by: Any) -> Decision:
    """A decision of that person, on nothing in particular."""
    request = rows.a_request(run, "user:rita")
    row = Decision(
        id=uuid4(),
        request=request,
        run=run.id,
        line=1,
        task="propose:1:0",
        write=UUID(int=7),
        position=0,
        channel="letter",
        revision=1,
        seen_hash="h" * 64,
        verdict="approve",
        old_value=pack_json(None),
        proposed_value=pack_json("secret"),
        final_value=pack_json("secret"),
        reason=pack_json("as agreed"),
        by=by,
        by_name=by.username,
        at=rows.START,
        event_seq=1,
    )
    sealed_rows.seal_and_encrypt([row], COVER)
    row.save(force_insert=True)
    return row
