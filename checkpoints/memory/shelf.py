"""Memory in the database: reading traces, and having one forgotten.

Attempts read through a `Shelf`, commits ask what channels hold (and land by `landing`), the admin forgets. A trace
belongs to encrypted graphs or to the others, never to both.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError, connection, connections, transaction
from django.db.models import Q
from django.utils import timezone

from checkpoints import audit_log
from checkpoints.memory import search as memory_search
from checkpoints.models import MemoryTrace
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.memory import Answer, Standing
from orchestrator.engine.output import WriteValue
from orchestrator.engine.trace import Trace, channel_of, ranked, words_in

T = TypeVar("T")
Address = tuple[str, str]

CANDIDATES = 50
"""Traces that a search looks at more closely, if it wants no more."""
PAUSES = (0.1, 0.5, 2.0)
"""Seconds before a read is tried again whose connection broke."""
COLUMNS = (
    "content", "strength", "version", "deleted", "encrypted", "run", "node", "superstep", "at", "text", "seal",
    "seal_key",
)  # fmt: skip
"""What a new version of a trace sets."""


def find(addresses: Collection[Address]) -> dict[Address, MemoryTrace]:
    """The rows of these addresses, forgotten ones too. One query, none for none."""
    wanted = Q()
    for namespace, key in addresses:
        wanted |= Q(namespace=namespace, key=key)
    return {(row.namespace, row.key): row for row in MemoryTrace.objects.filter(wanted)} if addresses else {}


def require_sound(row: MemoryTrace) -> None:
    """Raise `TamperedRow` or `WrongKey` where a trace is not as it was sealed. Memory belongs to the installation: its
    rows say themselves whether they are encrypted.
    """
    sealed_rows.verify_row(row, Protection(row.encrypted))


def trace_of(row: MemoryTrace, protection: Protection) -> Trace:
    """The trace of a row that is not forgotten. Raises `TamperedRow`, and by name where it has another cover."""
    refuse_other(row, protection)
    require_sound(row)
    content = sealed_columns.read_value(row, "content")
    return Trace(row.namespace, row.key, content, row.strength, row.version, row.run, row.node, row.superstep, row.at)


def values(addresses: Iterable[Address], protection: Protection) -> dict[str, dict[str, Any]]:
    """What the channels of these addresses hold: {channel: {value, version}}. One query, none for none."""
    asked = set(addresses)
    rows = find(asked)
    return {channel_of(*address): _held(rows.get(address), protection) for address in asked}


def _held(row: MemoryTrace | None, protection: Protection) -> dict[str, Any]:
    value = trace_of(row, protection).value if row and not row.deleted else None
    return {"value": value, "version": row.version if row else 0}


def refuse_other(row: MemoryTrace, protection: Protection) -> None:
    """Raise where a trace would cross between encrypted graphs and others."""
    if row.encrypted == protection.encrypted:
        return
    whose = "an encrypted graph" if row.encrypted else "a graph that is not encrypted"
    message = f"memory: {row.namespace}/{row.key} belongs to {whose}; use another namespace"
    raise CountersignError("memory_of_another_cover", message, namespace=row.namespace, key=row.key)


@dataclass(slots=True)
class Shelf:
    """Memory as it is now, for the runs of one cover."""

    protection: Protection
    refused: CountersignError | None = None

    def get(self, namespace: str, key: str) -> Answer:
        return off_the_loop(lambda: self._get(namespace, key))

    def _get(self, namespace: str, key: str) -> Answer:
        row = find([(namespace, key)]).get((namespace, key))
        if row is None or row.deleted:
            return Answer(version=row.version if row else 0)
        return Answer((trace_of(row, self.protection),), row.version)

    def search(self, text: str, namespace: str, limit: int) -> Answer:
        if self.protection.encrypted:
            message = "memory: search is refused in an encrypted graph, for an index would hold its words; use get"
            raise CountersignError("search_refused", message, namespace=namespace)
        return off_the_loop(lambda: self._search(words_in(text), namespace, limit))

    def _search(self, words: Sequence[str], namespace: str, limit: int) -> Answer:
        ids = memory_search.candidates(words, namespace, max(limit, CANDIDATES))
        rows = MemoryTrace.objects.filter(id__in=ids, deleted=False, encrypted=False)
        return Answer(tuple(ranked((trace_of(row, self.protection) for row in rows), words, limit)))

    def standing(self, namespace: str, key: str) -> Standing:
        row = off_the_loop(lambda: find([(namespace, key)]).get((namespace, key)))
        if row is None or row.deleted:
            return Standing(row.version if row else 0)
        refuse_other(row, self.protection)
        return Standing(row.version, there=True)

    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        return writes


def off_the_loop(work: Callable[[], T]) -> T:
    """Do database work of an attempt, also where an event loop runs in its thread: then in a thread of its own.

    A connection that broke is opened anew, some times, for it says nothing of the node; but not within a transaction.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _patiently(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_and_close, work).result()


def _and_close(work: Callable[[], T]) -> T:
    try:
        return _patiently(work)
    finally:
        connections.close_all()


def _patiently(work: Callable[[], T]) -> T:
    for pause in PAUSES:
        try:
            return work()
        except (OperationalError, InterfaceError):
            if connection.in_atomic_block:
                raise
            connection.close()
            time.sleep(pause)
    return work()


def delete_trace(row: MemoryTrace, *, by: Any, version: int | None = None) -> bool:
    """Have a trace forgotten: its content goes, its version stays and counts on. Leaves an audit line. False: it was
    forgotten before, or, where a `version` is given, has another one by now. Raises `TamperedRow` and `WrongKey` where
    it is not as it was sealed: a new seal would cover that up.
    """
    rows = MemoryTrace.objects.select_for_update().filter(id=row.id, deleted=False)
    with transaction.atomic():
        found = (rows if version is None else rows.filter(version=version)).first()
        if found is None:
            return False
        require_sound(found)
        found.content, found.text, found.strength, found.deleted = b"", "", 0.0, True
        found.version, found.at = found.version + 1, timezone.now()
        found.run, found.node, found.superstep = None, "", None
        sealed_rows.seal_and_encrypt([found], Protection(found.encrypted))
        found.save(update_fields=COLUMNS)
        audit_log.record("memory_forgotten", actor=by, namespace=found.namespace, key=found.key, version=found.version)
    return True
