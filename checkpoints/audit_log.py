"""The audit log of the installation: what people did and were refused, and what was done to the installation itself.

Lines are only added, and outlive the runs that they are about. A line says who did what to which run, never a value: of
a decision the row itself is kept, of another act the line of the run's log.
"""

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.utils import timezone

from checkpoints.conf import conf
from checkpoints.models import AuditLine, Run
from checkpoints.sealing import sealed_rows
from orchestrator.engine import canonical

log = structlog.get_logger(__name__)

BATCH = 500
"""Lines that are numbered in one transaction."""


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Where the chain of the audit log stands: number and hash of its last line."""

    number: int = 0
    hash: str = ""


def record(
    kind: str, *, actor: Any, run: UUID | None = None, graph: str = "", request: UUID | None = None, **facts: Any
) -> AuditLine:
    """Add a line, in the caller's transaction if there is one. `actor` None means the system. The graph is looked up
    where a run is given without it.

    A refusal must be recorded after the block that it rolls back has been left, else the line goes with it; an act in
    the transaction that does it. `facts` are ids and names as JSON, never a value that a person decides on.
    """
    name = actor.get_username() if actor is not None else ""
    graph = graph or (_graph_of(run) if run is not None else "")
    row = AuditLine(at=timezone.now(), actor=actor, actor_name=name, kind=kind, graph=graph, run=run, facts=facts)
    row.request = request
    sealed_rows.seal(row, sealed_rows.PLAIN)
    row.save(force_insert=True)
    return row


def record_act(kind: str, run: Any, *, actor: Any, seq: int, **facts: Any) -> AuditLine:
    """Add the line of an act on a locked run (its row, or the lease on it), in the act's own transaction: `seq` is the
    number of the line of the run's log that tells of it, where its reason stands too.
    """
    # Decisions outlive their run's row, and can be opened and proven only by who knows how they are protected.
    facts |= {"hash_key": run.hash_key} if run.encrypted else {}
    return record(kind, actor=actor, run=run.id, graph=run.graph, seq=seq, **facts)


def _graph_of(run: UUID) -> str:
    return Run.objects.filter(id=run).values_list("graph", flat=True).first() or ""


def chain_lines() -> int:
    """Number the lines that have no number yet, in the order in which they were written, and chain each to the one
    before. Gives how many; the job that calls it is one of a kind. The new head is told outside the database.
    """
    done = 0
    while chained := _chain_batch():
        done += chained
    if done:
        tell_head(chain_head())
    return done


def _chain_batch() -> int:
    with transaction.atomic():
        head = chain_head(lock=True)
        rows = list(AuditLine.objects.filter(number=None).order_by("id")[:BATCH])
        for row in rows:
            row.number = head.number + 1
            row.hash = line_hash(head.hash, row)
            head = ChainHead(row.number, row.hash)
        AuditLine.objects.bulk_update(rows, ["number", "hash"])
    return len(rows)


def chain_head(*, lock: bool = False) -> ChainHead:
    """Where the chain stands now. With `lock` nobody else numbers lines until the transaction ends."""
    lines = AuditLine.objects.select_for_update() if lock else AuditLine.objects.all()
    last = lines.filter(number__isnull=False).order_by("-number").first()
    return ChainHead(last.number or 0, last.hash) if last else ChainHead()


def line_hash(previous: str, row: AuditLine) -> str:
    """The hash over that of the line before, this one's number and its seal, keyed with the key that sealed the line:
    whoever has the database alone cannot make it. Raises `WrongKey`.
    """
    data = canonical.framed("countersign audit 1", previous, row.number, bytes(row.seal or b""))
    return sealed_rows.mac_of(row.seal_key, data, lambda: sealed_rows.name_of(row)).hex()


def tell_head(head: ChainHead) -> None:
    """Say in the process's log, and in the file that the settings name, where the chain stands: no database user
    reaches either. A file that cannot be written is an error in the log, and the next head is written again.
    """
    facts = {"at": timezone.now().isoformat(), "number": head.number, "hash": head.hash}
    log.info("audit_chain_head", **facts)
    if conf().audit_head_file:
        try:
            with Path(conf().audit_head_file).open("a", encoding="utf-8") as file:
                file.write(json.dumps(facts) + "\n")
        except OSError as error:
            log.error("audit_head_not_written", file=conf().audit_head_file, error=str(error))


def told_head() -> ChainHead | None:
    """The last head in the file that the settings name; None where there is none. Raises `OSError`, `ValueError`."""
    name = conf().audit_head_file
    if not name or not Path(name).exists():
        return None
    with Path(name).open(encoding="utf-8") as file:
        last = deque(file, maxlen=1)
    facts = json.loads(last[0]) if last else None
    return ChainHead(facts["number"], facts["hash"]) if facts else None
