"""Memory in the database: reading traces, and deleting one.

Attempts read through a `Shelf`, commits read the values of channels (and write through
`landings`), the admin deletes. A trace belongs to encrypted graphs or to the others,
never to both.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import (
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.db.models import Q
from django.utils import timezone

from checkpoints.audit import lines as audit_log
from checkpoints.memory import search as memory_search
from checkpoints.models import MemoryTrace
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.graphs.trace import Trace, channel_of, ranked, words_in
from orchestrator.engine.step.memory import Answer, KeyStanding
from orchestrator.engine.step.output import Recorded, WriteValue

T = TypeVar("T")
Address = tuple[str, str]

CANDIDATES = 50
"""The most traces that a search ranks, unless its limit is higher."""
PAUSES = (0.1, 0.5, 2.0)
"""Seconds before each further attempt of a read whose connection broke."""
COLUMNS = (
    "content",
    "strength",
    "version",
    "deleted",
    "encrypted",
    "run",
    "node",
    "superstep",
    "at",
    "text",
    "seal",
    "seal_key",
)
"""The columns that a new version of a trace sets."""


def find(addresses: Collection[Address]) -> dict[Address, MemoryTrace]:
    """Return the rows of these addresses, even of forgotten traces. One query, none for
    no addresses.
    """
    if not addresses:
        return {}
    at_addresses = Q()
    for namespace, key in addresses:
        at_addresses |= Q(namespace=namespace, key=key)
    rows = MemoryTrace.objects.filter(at_addresses)
    return {(row.namespace, row.key): row for row in rows}


def require_sound(row: MemoryTrace) -> None:
    """Raise `TamperedRow` or `WrongKey` if a trace does not match its seal. Memory
    belongs to the installation, so each row itself records whether it is encrypted.
    """
    sealed_rows.verify_row(row, Protection(row.encrypted))


def trace_of(row: MemoryTrace, protection: Protection) -> Trace:
    """Return the trace of a row that is not forgotten. Raises `TamperedRow`, and
    `CountersignError` as `refuse_other` does.
    """
    refuse_other(row, protection)
    require_sound(row)
    content = sealed_columns.read_value(row, "content")
    return Trace(
        row.namespace,
        row.key,
        content,
        row.strength,
        row.version,
        row.run,
        row.node,
        row.superstep,
        row.at,
    )


def values(
    addresses: Iterable[Address], protection: Protection
) -> dict[str, dict[str, Any]]:
    """Return the values of the channels of these addresses: {channel: {value,
    version}}. One query, none for no addresses.
    """
    distinct = set(addresses)
    rows = find(distinct)
    return {
        channel_of(namespace, key): _value(rows.get((namespace, key)), protection)
        for namespace, key in distinct
    }


def _value(row: MemoryTrace | None, protection: Protection) -> dict[str, Any]:
    if row is None:
        return {"value": None, "version": 0}
    value = None if row.deleted else trace_of(row, protection).value
    return {"value": value, "version": row.version}


def refuse_other(row: MemoryTrace, protection: Protection) -> None:
    """Raise `CountersignError` if a trace would cross between encrypted graphs and
    others.
    """
    if row.encrypted == protection.encrypted:
        return
    owner = "an encrypted graph" if row.encrypted else "a graph that is not encrypted"
    raise CountersignError(
        "memory_of_another_cover",
        f"memory: {row.namespace}/{row.key} belongs to {owner}; use another namespace",
        namespace=row.namespace,
        key=row.key,
    )


@dataclass(slots=True)
class DatabaseShelf:
    """Memory as it is now, for the runs of encrypted graphs, or for those of the
    others.
    """

    protection: Protection
    refused: CountersignError | None = None
    recorded: Recorded | None = None

    def get(self, namespace: str, key: str) -> Answer:
        return off_the_loop(lambda: self._get(namespace, key))

    def _get(self, namespace: str, key: str) -> Answer:
        row = find([(namespace, key)]).get((namespace, key))
        if row is None or row.deleted:
            return Answer(version=row.version if row else 0)
        return Answer((trace_of(row, self.protection),), row.version)

    def search(self, text: str, namespace: str, limit: int) -> Answer:
        if self.protection.encrypted:
            raise CountersignError(
                "search_refused",
                "memory: search is refused in an encrypted graph, for an index would "
                "hold its words; use get",
                namespace=namespace,
            )
        return off_the_loop(lambda: self._search(words_in(text), namespace, limit))

    def _search(self, words: Sequence[str], namespace: str, limit: int) -> Answer:
        ids = memory_search.candidates(words, namespace, max(limit, CANDIDATES))
        rows = MemoryTrace.objects.filter(id__in=ids, deleted=False, encrypted=False)
        traces = [trace_of(row, self.protection) for row in rows]
        return Answer(tuple(ranked(traces, words, limit)))

    def standing(self, namespace: str, key: str) -> KeyStanding:
        row = off_the_loop(lambda: find([(namespace, key)]).get((namespace, key)))
        if row is None or row.deleted:
            return KeyStanding(row.version if row else 0)
        refuse_other(row, self.protection)
        return KeyStanding(row.version, there=True)

    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        return writes


def off_the_loop(work: Callable[[], T]) -> T:
    """Do database work of an attempt. If an event loop runs in its thread, the work is
    done in a separate thread.

    A connection that broke is opened again, a few times, because that is no fault of
    the node; but not within a transaction.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _with_retries(work)
    # Django refuses database work in a thread whose event loop runs.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_work_and_close, work).result()


def _work_and_close(work: Callable[[], T]) -> T:
    try:
        return _with_retries(work)
    finally:
        # Connections belong to their thread, which ends here.
        connections.close_all()


def _with_retries(work: Callable[[], T]) -> T:
    for pause in PAUSES:
        try:
            return work()
        except (OperationalError, InterfaceError):
            # The transaction's work so far is lost with the connection.
            if connection.in_atomic_block:
                raise
            connection.close()
            time.sleep(pause)
    return work()


def delete_trace(row: MemoryTrace, *, by: Any, version: int | None = None) -> bool:
    """Forget a trace: its content goes, its version stays and counts on. Leaves an
    audit line. Returns False if it was forgotten before, or, if a `version` is given,
    has another one by now. Raises `TamperedRow` and `WrongKey` if it does not match its
    seal, because a new seal would cover that up.
    """
    rows = MemoryTrace.objects.select_for_update().filter(id=row.id, deleted=False)
    if version is not None:
        rows = rows.filter(version=version)
    with transaction.atomic():
        trace = rows.first()
        if trace is None:
            return False
        require_sound(trace)
        trace.content = b""
        trace.text = ""
        trace.strength = 0.0
        trace.deleted = True
        # Counts on, so that a write made on the version before does not land.
        trace.version += 1
        trace.at = timezone.now()
        # No run, but a person made this version.
        trace.run = None
        trace.node = ""
        trace.superstep = None
        sealed_rows.seal_and_encrypt([trace], Protection(trace.encrypted))
        trace.save(update_fields=COLUMNS)
        audit_log.record(
            "memory_forgotten",
            actor=by,
            namespace=trace.namespace,
            key=trace.key,
            version=trace.version,
        )
    return True
