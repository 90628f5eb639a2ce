"""Reads: the audit log as people see it. Whose lines, narrowed by what, and what stands behind a line: the decisions
and the line of the run's log. Pages and API call it; it never changes anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import OuterRef, Q, QuerySet, Subquery

from approvals import permissions
from approvals.models import Decision
from checkpoints.core.ids import unknown_thing
from checkpoints.models import AuditLine, Run, RunEvent
from checkpoints.models.audit_line import NEWEST, ROUTINE
from checkpoints.sealing import data_keys
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import PLAIN, Protection
from orchestrator.engine.errors import UNREADABLE

VERIFIED = "runs_verified"
DECIDED = ("signed", "not_needed")
"""Kinds of lines behind which decisions stand."""
MOST_LINES = 2**63 - 1
"""What the column holds that numbers the lines of a log."""
MOST_REASONS = 3
"""Different reasons of one signing that a list shows."""


@dataclass(frozen=True, slots=True)
class LineFilter:
    """What a list of lines is narrowed to. `run` is an id or a key; `since` is in, `until` is not."""

    who: str = ""
    run: str = ""
    graph: str = ""
    kind: str = ""
    since: datetime | None = None
    until: datetime | None = None


def visible_lines(user: Any) -> "QuerySet[AuditLine]":
    """All lines for who may read the audit log; else those about runs for who sees all runs; else one's own."""
    if not user.is_active or not user.is_authenticated:
        return AuditLine.objects.none()
    if permissions.may(user, "view_audit"):
        return AuditLine.objects.all()
    if permissions.may(user, "view_run"):
        return AuditLine.objects.filter(run__isnull=False)
    return AuditLine.objects.filter(actor=user)


def filtered(lines: "QuerySet[AuditLine]", wanted: LineFilter, *, routine: bool = False) -> "QuerySet[AuditLine]":
    """The lines that are wanted, newest first. Each filter has an index that is in this order. What a job writes every
    minute is left out, unless its kind is asked for or `routine` lines are wanted too.
    """
    if wanted.kind or not routine:
        lines = lines.filter(kind=wanted.kind) if wanted.kind else lines.filter(~Q(kind=ROUTINE))
    if wanted.who:
        users = get_user_model()
        found = users._default_manager.filter(**{users.USERNAME_FIELD: wanted.who})
        # Looked up first: a planner that does not know the person takes him for an average one.
        lines = lines.filter(actor__in=[*found.values_list("pk", flat=True)])
    if wanted.run:
        lines = lines.filter(run=_run_id(wanted.run))
    if wanted.graph:
        lines = lines.filter(graph=wanted.graph)
    if wanted.since is not None:
        lines = lines.filter(at__gte=wanted.since)
    if wanted.until is not None:
        lines = lines.filter(at__lt=wanted.until)
    return lines.order_by(*NEWEST)


def _run_id(ref: str) -> Any:
    try:
        return UUID(ref)
    except ValueError:
        return Subquery(Run.objects.filter(key=ref).order_by().values("id")[:1])


def with_runs(lines: "QuerySet[AuditLine]", user: Any) -> "QuerySet[AuditLine]":
    """The same lines, each with key, label and protection of its run where this user may see it; and who acted."""
    run = permissions.visible_among(user, Run.objects.filter(id=OuterRef("run"))).order_by()
    columns = {"run_key": "key", "run_label": "label", "run_encrypted": "encrypted", "run_hash_key": "hash_key"}
    return lines.select_related("actor").annotate(
        **{name: Subquery(run.values(column)[:1]) for name, column in columns.items()}
    )


@dataclass(frozen=True, slots=True)
class RunName:
    """The label and the key by which a line names its run."""

    label: str
    key: str


def run_name_of(line: Any) -> RunName | None:
    """Return the name of a line's run; None where this person may not see it, or there is none."""
    if line.run_key is None:
        return None
    return RunName(line.run_label or "", line.run_key)


@dataclass(slots=True)
class Evidence:
    """What stands behind a line: its decisions, and the line of the run's log that tells of it, None where that was
    removed. `protection` is that of their run.
    """

    decisions: Sequence[Decision] = ()
    event: RunEvent | None = None
    protection: Protection = field(default_factory=Protection)


def find_line(user: Any, number: int) -> AuditLine:
    """One line by its id, with its run. Raises `UnknownThing` also where this user may not see it, or its run."""
    line = with_runs(visible_lines(user).filter(id=number), user).first()
    if line is None or not _sees_run(user, line):
        raise unknown_thing("audit line", number)
    return line


def _sees_run(user: Any, line: AuditLine) -> bool:
    """A run that is gone is there for who sees all runs."""
    if line.run is None or line.run_key is not None:  # type: ignore[attr-defined]
        return True
    return permissions.may(user, "view_run")


def evidence_of(line: AuditLine) -> Evidence:
    """What stands behind a line of `find_line`. Two queries at most."""
    if line.run is None:
        return Evidence()
    found = Evidence(protection=protection_behind(line))
    if line.kind in DECIDED:
        found.decisions = list(_decisions_of(line))
    elif (seq := number_in(line, "seq")) is not None:
        found.event = RunEvent.objects.filter(run=line.run, seq=seq).first()
    return found


def protection_behind(line: AuditLine) -> Protection:
    """How the rows of a line's run are protected: as its row says; where that is gone, as the line does."""
    run: Any = line
    if run.run_key is not None:
        return Protection(run.run_encrypted, run.run_hash_key)
    key = str(noted(line).get("hash_key", ""))
    return Protection(bool(key), key)


def _decisions_of(line: Any) -> "QuerySet[Decision]":
    if (receipt := _receipt_of(line)) is not None:
        return Decision.objects.filter(receipt=receipt).order_by("event_seq", "position")
    seq = number_in(line, "seq") or 0
    last = number_in(line, "last") or seq
    found = Decision.objects.filter(run=line.run, event_seq__range=(seq, last), verdict="not_needed")
    return found.order_by("event_seq", "position")


def noted(line: AuditLine) -> Mapping[str, Any]:
    """What a line says; nothing where somebody gave it another form than lines have."""
    return line.facts if isinstance(line.facts, dict) else {}


def number_in(line: AuditLine, name: str) -> int | None:
    """The number of a line of a log that a line says under this name."""
    found = noted(line).get(name)
    return found if type(found) is int and 0 <= found <= MOST_LINES else None


def _receipt_of(line: AuditLine) -> UUID | None:
    try:
        return UUID(noted(line)["receipt"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def comments(lines: Iterable[AuditLine]) -> dict[int, str]:
    """The reasons that people gave, by id of the line. Of lines whose run this user may see; two queries at most, and
    one for keys.

    Of decisions they stand in their rows, of other acts in the run's log, so nothing is told once it was erased there.
    Of holds, pins and erasures, which say that it stays, in the line.
    """
    shown: list[Any] = [line for line in lines if getattr(line, "run_key", None) is not None]
    signed = {receipt: line for line in shown if (receipt := _receipt_of(line)) is not None}
    told = [line for line in shown if line.kind not in DECIDED]
    acts = {(line.run, seq): line for line in told if (seq := number_in(line, "seq")) is not None}
    reasons = Decision.objects.filter(receipt__in=signed).exclude(reason=b"").order_by("event_seq")
    rows = list(reasons.only("id", "run", "receipt", "reason")) if signed else []
    events = list(_events(acts))
    data_keys.know_keys_of([*rows, *events])
    said: dict[int, list[str]] = {}
    for row in rows:
        said.setdefault(signed[row.receipt_id].id, []).append(_text(row, "reason"))
    found = {line.id: str(reason) for line in shown if (reason := noted(line).get("reason"))}
    found |= {number: _joined(given) for number, given in said.items()}
    for event in events:
        reason = _reason(event)
        found |= {acts[event.run_id, event.seq].id: reason} if reason else {}
    return found


def _events(acts: Mapping[tuple[Any, int], AuditLine]) -> Iterable[RunEvent]:
    wanted = Q(pk__in=[])
    for run, seq in acts:
        wanted |= Q(run=run, seq=seq)
    return RunEvent.objects.filter(wanted).only("id", "run", "seq", "payload") if acts else ()


def _reason(event: RunEvent) -> str:
    try:
        facts = read_value(event, "payload") or {}
    except UNREADABLE as error:
        return f"[{error.code}]"
    return str(facts.get("reason") or "") if isinstance(facts, dict) else ""


def _text(row: Any, column: str) -> str:
    try:
        return str(read_value(row, column) or "")
    except UNREADABLE as error:
        return f"[{error.code}]"


def _joined(reasons: Sequence[str]) -> str:
    different = list(dict.fromkeys(reason for reason in reasons if reason))
    more = f" and {len(different) - MOST_REASONS} more" if len(different) > MOST_REASONS else ""
    return " · ".join(different[:MOST_REASONS]) + more


@dataclass(frozen=True, slots=True)
class ChainState:
    """How far the chain of the audit log was verified, when, and how many places were not as they were written."""

    number: int
    at: datetime
    faults: int


def chain_state() -> ChainState | None:
    """What the newest verification of all runs found of the chain; None where there was none, or its line does not
    prove to be what was written. One query.
    """
    lines = AuditLine.objects.filter(kind=VERIFIED, facts__has_key="chain").order_by(*NEWEST)
    line = lines.first()
    if line is None or fault_of(line, PLAIN) is not None:
        return None
    return ChainState(line.facts["chain"]["number"], line.at, line.facts["chain"]["faults"])
