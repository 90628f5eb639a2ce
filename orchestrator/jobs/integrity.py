"""Verification and rotation as jobs: the selected runs in batches, with progress, and
an audit line at the end. Each slice of a job checks the rights of the person who
requested it again.

The commands `verify_runs` and `rotate_keys` and the table of kinds in
`orchestrator.jobs` call it.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Model, QuerySet
from django.utils.dateparse import parse_datetime

from approvals import verification
from checkpoints import key_rotation
from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.conf import keyring
from checkpoints.key_rotation import Rotated
from checkpoints.ledger import locked_run
from checkpoints.models import (
    AuditLine,
    GraphVersion,
    LegalHold,
    MemoryLanding,
    MemoryTrace,
    Run,
)
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.sealing.seal_fault import SealFault
from checkpoints.verification import (
    NO_TAMPERING,
    TAMPERED,
    Fault,
    audit,
    not_verified,
    verify_run,
    without_raising,
)
from checkpoints.verification.graph_versions import version_faults
from checkpoints.verification.kept_by_people import kept_in_installation
from checkpoints.verification.memory import memory_of_nobody, versions_landed_twice
from orchestrator.engine.errors import Forbidden, TamperedRow, UnknownThing, WrongKey
from orchestrator.models import ApiToken, BulkFork
from orchestrator.runs.start_for_user import require
from orchestrator.tokens import token_faults
from orchestrator.travel.bulk_fork import bulk_fork_faults

BATCH = 20
"""The most runs between two steps of a job."""
MOST_NAMED = 100
"""The most bad runs that a job's row and the audit line name; all are counted."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The runs to verify: those of these ids, or all; of one graph; started since.
    `mark` stops bad ones.
    """

    runs: tuple[str, ...] = ()
    graph: str = ""
    since: str = ""
    mark: bool = False

    def rows(self) -> "QuerySet[Run]":
        rows = Run.objects.all()
        if self.runs:
            rows = rows.filter(id__in=self.runs)
        if self.graph:
            rows = rows.filter(graph=self.graph)
        if self.since:
            rows = rows.filter(created_at__gte=parse_datetime(self.since))
        return rows

    def is_everything(self) -> bool:
        """Return whether no run is left out."""
        return not self.runs and not self.graph and not self.since


@dataclass(slots=True)
class Verified:
    """The progress of a verification. `bad` holds the first fault of each bad run, and
    how many it has; `chain` the number of the audit log's last line and how many faults
    its chain had, once all of it was read.
    """

    checked: int = 0
    failed: int = 0
    last: str = ""
    bad: list[dict[str, Any]] = field(default_factory=list)
    chain: dict[str, int] | None = None


def require_rights(by: Any, selection: Wanted) -> None:
    """Raise `Forbidden` if a person may not verify all of these runs, or not mark them,
    and leave an audit line. The caller has checked that the person may see the runs
    that are named; `by` None is the system.
    """
    if by is not None and not selection.runs:
        require(by, "view_run")
    if by is not None and selection.mark:
        require(by, "steer_run")


def verify_runs(selection: Wanted, result: Verified, *, by: Any) -> Iterator[Verified]:
    """Verify run after run, in order of their ids, on from `result.last`; yield the
    result after each. If all runs are selected, verify the audit log too, and that each
    run which is anchored in it exists. A run that is marked leaves an audit line with
    `by`.
    """
    while True:
        rows = selection.rows().order_by("id")
        if result.last:
            rows = rows.filter(id__gt=UUID(result.last))
        ids = list(rows.values_list("id", flat=True)[:BATCH])
        if not ids:
            break
        for run_id in ids:
            _verify(selection, run_id, result, by)
            yield result
    if selection.is_everything():
        yield from _verify_installation(result)


def _verify_installation(result: Verified) -> Iterator[Verified]:
    """Verify the rows that belong to the installation. An interrupted job begins this
    part again, and reports nothing twice.
    """
    # The number is read before the chain, so that the line it names was verified.
    number = audit_chain.chain_head().number
    faults = 0
    for fault in without_raising(audit(), AuditLine._meta.db_table):
        if fault is not None:
            faults += 1
            _note(result, fault)
        yield result
    result.chain = {"number": number, "faults": faults}
    for fault in _faults_of_installation():
        _note(result, fault)
        yield result


def _faults_of_installation() -> Iterator[Fault]:
    """Yield the faults of each table; an examiner that raises ends no other."""
    examiners: list[tuple[type[Model], Iterator[Fault]]] = [
        (LegalHold, kept_in_installation()),
        (MemoryTrace, memory_of_nobody()),
        (MemoryLanding, versions_landed_twice()),
        (GraphVersion, version_faults()),
        (ApiToken, map(_of_installation, token_faults())),
        (BulkFork, map(_of_installation, bulk_fork_faults())),
    ]
    for model in verification.OF_INSTALLATION:
        faults = verification.faults_of_seals(model)
        examiners.append((model, map(_of_installation, faults)))
    for model, examined in examiners:
        yield from without_raising(examined, model._meta.db_table)


def _of_installation(fault: SealFault) -> Fault:
    table, _, _ = fault.row.partition(" ")
    return Fault("", "", table, fault.row, fault.reason, fault.code)


def _note(result: Verified, fault: Fault) -> None:
    """Add a fault to the result, unless its row or its run is there already."""
    for entry in result.bad:
        if fault.what == entry["row"]:
            return
        if fault.run and fault.run == entry["run"]:
            return
    result.failed += 1
    if len(result.bad) < MOST_NAMED:
        result.bad.append(as_json([fault]))


def _verify(selection: Wanted, run: UUID, result: Verified, by: Any) -> None:
    """Verify one run and add what is wrong with it to the result."""
    result.last = str(run)
    try:
        faults = verify_run(run)
    except UnknownThing:
        # The run was removed since the ids were read.
        return
    except Exception as error:
        # The other runs are verified all the same.
        faults = [not_verified(error, f"{Run._meta.db_table} {run}", run=str(run))]
    result.checked += 1
    if not faults:
        return
    result.failed += 1
    if selection.mark:
        _mark_if_tampered(run, faults, by)
    if len(result.bad) < MOST_NAMED:
        result.bad.append(as_json(faults))


def _mark_if_tampered(run: UUID, faults: list[Fault], by: Any) -> None:
    """Mark a run if the first of its faults that an examiner found is that a row
    differs.
    """
    for fault in faults:
        # An examiner that failed found nothing, a list is no record, and whoever stops a
        # job forges none: what else was found counts.
        if fault.code in NO_TAMPERING:
            continue
        # Under other codes, such as a missing key, it is not known that a row differs.
        if fault.code in TAMPERED:
            _mark(run, fault, by)
        return


def _mark(run: UUID, fault: Fault, by: Any) -> None:
    error = TamperedRow(fault.reason, row=fault.what)
    with transaction.atomic():
        # The audit line goes with the mark, and only with the act that set it.
        if locked_run.mark_tampered(run, error):
            audit_log.record("run_marked", actor=by, run=run, row=fault.what)


def as_json(faults: list[Fault]) -> dict[str, Any]:
    """Return a bad run for machines: its first fault, and how many there are."""
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
    """Work on a job of the kind `verify_runs`. Facts: those of `Wanted`, and `by`."""
    facts = dict(lease.facts)
    by = _person(facts.pop("by", ""))
    runs = tuple(facts.pop("runs", ()))
    selection = Wanted(runs=runs, **facts)
    # The person may have lost the right since the job was requested.
    require_rights(by, selection)
    result = Verified(**(lease.place or {}))
    total = selection.rows().count()
    # A step for each run would write the job's row as often.
    last_reported = result.last
    for _ in verify_runs(selection, result, by=by):
        if result.checked % BATCH == 0:
            last_reported = result.last
            yield _checked(result, total)
    if result.last != last_reported:
        yield _checked(result, total)
    audit_log.record("runs_verified", actor=by, **_audit_facts(result))


def _audit_facts(result: Verified) -> dict[str, Any]:
    """Return the part of a result that the audit log keeps."""
    bad: list[dict[str, Any]] = []
    for entry in result.bad:
        bad.append({name: entry[name] for name in ("run", "checkpoint", "row")})
    facts: dict[str, Any] = {
        "checked": result.checked,
        "failed": result.failed,
        "bad": bad,
    }
    if result.chain:
        facts["chain"] = result.chain
    return facts


def _checked(result: Verified, total: int) -> Step:
    return Step(result.checked, total, f"{result.failed} bad", place=asdict(result))


def rotate_job(lease: JobLease) -> Iterator[Step]:
    """Work on a job of the kind `rotate_keys`. Facts: `by`, and `key`, the one that
    encrypts. Raises `WrongKey` if this process would encrypt under another one: it was
    started before the key was named, or after a newer one was.
    """
    by = _person(lease.facts.get("by", ""))
    if by is not None:
        require(by, "manage_retention")
    newest = keyring().encrypter
    key = lease.facts["key"]
    if newest != key:
        raise WrongKey(
            f"this process encrypts under the key {newest}, not under {key};"
            " restart it",
            key=key,
        )
    result = Rotated(**(lease.place or {}))
    total = result.done + sum(key_rotation.behind().values())
    for _ in key_rotation.rotate(result):
        note = "rows under the newest key"
        if result.failed:
            note = f"{result.failed} do not open"
        # Rows that were added meanwhile count too.
        most = max(total, result.done)
        yield Step(result.done, most, note, place=asdict(result))
    audit_log.record(
        "keys_rotated",
        actor=by,
        key=newest,
        rows=result.rows,
        failed=result.failed,
    )


def _person(name: str) -> Any:
    """Return the user who requested a job; None, the system, for an empty name. Raises
    `Forbidden` if no user has that name now.
    """
    if not name:
        return None
    users = get_user_model()
    named = users._default_manager.filter(**{users.USERNAME_FIELD: name})
    user = named.first()
    if user is None:
        raise Forbidden(f"there is no user {name} any more")
    return user
