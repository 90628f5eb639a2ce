"""Verification and rotation as jobs: which runs, in batches, with progress, and an audit line at the end. Who asked for
one is asked for their rights again by each slice of it.

The commands `verify_runs` and `rotate_keys` and the table of kinds in `orchestrator.jobs` call it.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime

from checkpoints import audit_chain, audit_log, key_rotation
from checkpoints.conf import keyring
from checkpoints.key_rotation import Rotated
from checkpoints.ledger import locked_run
from checkpoints.models import Run
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.verification import TAMPERED, Fault, audit, verify_run
from checkpoints.verification.graph_versions import version_faults
from checkpoints.verification.kept_by_people import kept_in_installation
from checkpoints.verification.memory import memory_of_nobody
from orchestrator.engine.errors import Forbidden, TamperedRow, UnknownThing, WrongKey
from orchestrator.runs.bulk_fork import bulk_fork_faults
from orchestrator.runs.start_for_user import require
from orchestrator.tokens import token_faults

BATCH = 20
"""Runs between two steps of a job."""
MOST_NAMED = 100
"""Bad runs that a job's row and the audit line name; all are counted."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs to verify: those of these ids, or all; of one graph; started since. `mark` stops bad ones."""

    runs: tuple[str, ...] = ()
    graph: str = ""
    since: str = ""
    mark: bool = False

    def rows(self) -> "QuerySet[Run]":
        found = Run.objects.filter(id__in=self.runs) if self.runs else Run.objects.all()
        found = found.filter(graph=self.graph) if self.graph else found
        return found.filter(created_at__gte=parse_datetime(self.since)) if self.since else found


@dataclass(slots=True)
class Verified:
    """How far a verification has got. `bad` holds the first fault of each bad run, and how many it has; `chain` the
    number of the audit log's last line and how many faults its chain had, once all of it was read.
    """

    checked: int = 0
    failed: int = 0
    last: str = ""
    bad: list[dict[str, Any]] = field(default_factory=list)
    chain: dict[str, int] | None = None


def require_rights(by: Any, wanted: Wanted) -> None:
    """Raises `Forbidden` where a person may not verify all of these runs, or not mark them, and leaves an audit line.
    Runs that are named must have been seen by them; `by` None is the system.
    """
    if by is not None and not wanted.runs:
        require(by, "view_run")
    if by is not None and wanted.mark:
        require(by, "steer_run")


def verify_runs(wanted: Wanted, result: Verified, *, by: Any) -> Iterator[Verified]:
    """Verify run after run, in order of their ids, on from `result.last`; gives the result after each. Where all runs
    are wanted, the audit log too, and that each run which is anchored in it is there. A run that is marked leaves an
    audit line with `by`.
    """
    while True:
        rows = wanted.rows().order_by("id")
        rows = rows.filter(id__gt=UUID(result.last)) if result.last else rows
        ids = list(rows.values_list("id", flat=True)[:BATCH])
        if not ids:
            yield from _audited(wanted, result)
            return
        for one in ids:
            _one(wanted, one, result, by)
            yield result


def _audited(wanted: Wanted, result: Verified) -> Iterator[Verified]:
    """What belongs to the installation. A job that is interrupted begins this part anew, and names nothing twice."""
    if wanted.runs or wanted.graph or wanted.since:
        return
    number, faults = audit_chain.chain_head().number, 0
    for fault in audit():
        if fault is not None:
            faults += 1
            _note(result, fault)
        yield result
    result.chain = {"number": number, "faults": faults}
    for fault in _of_installation():
        _note(result, fault)
        yield result


def _of_installation() -> Iterator[Fault]:
    yield from kept_in_installation()
    yield from memory_of_nobody()
    yield from version_faults()
    for one in chain(token_faults(), bulk_fork_faults()):
        yield Fault("", "", one.row.partition(" ")[0], one.row, one.reason, one.code)


def _note(result: Verified, fault: Fault) -> None:
    if any(fault.what == one["row"] or (fault.run and fault.run == one["run"]) for one in result.bad):
        return
    result.failed += 1
    if len(result.bad) < MOST_NAMED:
        result.bad.append(as_json([fault]))


def _one(wanted: Wanted, run: UUID, result: Verified, by: Any) -> None:
    result.last = str(run)
    try:
        faults = verify_run(run)
    except UnknownThing:
        return  # removed since the ids were read
    result.checked += 1
    if not faults:
        return
    result.failed += 1
    if wanted.mark and faults[0].code in TAMPERED:
        _mark(run, faults[0], by)
    if len(result.bad) < MOST_NAMED:
        result.bad.append(as_json(faults))


def _mark(run: UUID, fault: Fault, by: Any) -> None:
    with transaction.atomic():
        if locked_run.mark_tampered(run, TamperedRow(fault.reason, row=fault.what)):
            audit_log.record("run_marked", actor=by, run=run, row=fault.what)


def as_json(faults: list[Fault]) -> dict[str, Any]:
    """A bad run for machines: its first fault, and how many there are."""
    first = faults[0]
    return {
        "run": first.run,
        "checkpoint": first.checkpoint or None,
        "reason": first.reason,
        "table": first.table,
        "row": first.what,
        "code": first.code,
        "faults": len(faults),
    }


def verify_job(lease: JobLease) -> Iterator[Step]:
    """The kind `verify_runs`. Facts: those of `Wanted`, and `by`."""
    facts = dict(lease.facts)
    by = _person(facts.pop("by", ""))
    wanted = Wanted(**{**facts, "runs": tuple(facts.get("runs", ()))})
    require_rights(by, wanted)
    result, total = Verified(**(lease.place or {})), wanted.rows().count()
    details = result.last
    for _ in verify_runs(wanted, result, by=by):
        if result.checked % BATCH == 0:
            details = result.last
            yield _checked(result, total)
    if result.last != details:
        yield _checked(result, total)
    named = [{name: one[name] for name in ("run", "checkpoint", "row")} for one in result.bad]
    facts = {"checked": result.checked, "failed": result.failed, "bad": named}
    facts |= {"chain": result.chain} if result.chain else {}
    audit_log.record("runs_verified", actor=by, **facts)


def _checked(result: Verified, total: int) -> Step:
    return Step(result.checked, total, f"{result.failed} bad", place=asdict(result))


def rotate_job(lease: JobLease) -> Iterator[Step]:
    """The kind `rotate_keys`. Facts: `by`, and `key`, the one that encrypts. Raises `WrongKey` where this process would
    encrypt under another one: it was started before the key was named, or after a newer one was.
    """
    by = _person(lease.facts.get("by", ""))
    if by is not None:
        require(by, "manage_retention")
    newest, wanted = keyring().encrypter, lease.facts["key"]
    if newest != wanted:
        raise WrongKey(f"this process encrypts under the key {newest}, not under {wanted}; restart it", key=wanted)
    result = Rotated(**(lease.place or {}))
    total = result.done + sum(key_rotation.behind().values())
    for _ in key_rotation.rotate(result):
        note = f"{result.failed} do not open" if result.failed else "rows under the newest key"
        yield Step(result.done, max(total, result.done), note, place=asdict(result))
    audit_log.record("keys_rotated", actor=by, key=newest, rows=result.rows, failed=result.failed)


def _person(name: str) -> Any:
    """Who asked for a job; None, the system, for an empty name. Raises `Forbidden` where nobody has the name now."""
    if not name:
        return None
    users = get_user_model()
    found = users._default_manager.filter(**{users.USERNAME_FIELD: name}).first()
    if found is None:
        raise Forbidden(f"there is no user {name} any more")
    return found
