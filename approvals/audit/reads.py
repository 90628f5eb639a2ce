"""Reads of the audit log for pages and API: the lines that a person may see, filtered,
and the evidence behind a line, which is decisions, a comment or an event of the run's log.
Never changes anything.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import OuterRef, Q, QuerySet, Subquery

from approvals import permissions
from approvals.models import Decision, RequestComment
from approvals.people.comments import LINE as COMMENTED
from checkpoints.core.ids import unknown_thing
from checkpoints.models import AuditLine, Run, RunEvent
from checkpoints.models.audit_line import NEWEST, ROUTINE
from checkpoints.sealing import data_keys
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import PLAIN, Protection
from orchestrator.engine.errors import UNREADABLE

VERIFIED = "runs_verified"
DECIDED = ("signed", "not_needed", "deadline_passed", "veto_asked", "policy_asked")
"""Kinds of lines whose evidence is decisions."""
MOST_LINES = 2**63 - 1
"""The highest number of an event that the column can hold."""
MOST_REASONS = 3
"""The most different reasons of one signing that a list shows."""


@dataclass(frozen=True, slots=True)
class LineFilter:
    """The conditions of a list of lines. `run` is an id or a key; `since` is included,
    `until` is not.
    """

    who: str = ""
    run: str = ""
    graph: str = ""
    kind: str = ""
    since: datetime | None = None
    until: datetime | None = None


def visible_lines(user: Any) -> "QuerySet[AuditLine]":
    """Return the lines that this user may see: all with `view_audit`, else those about
    runs with `view_run`, else his own.
    """
    if not user.is_active or not user.is_authenticated:
        return AuditLine.objects.none()
    if permissions.may(user, "view_audit"):
        return AuditLine.objects.all()
    if permissions.may(user, "view_run"):
        # Lines about accounts, keys and rights belong to no run.
        return AuditLine.objects.filter(run__isnull=False)
    return AuditLine.objects.filter(actor=user)


def filtered(
    lines: "QuerySet[AuditLine]", conditions: LineFilter, *, routine: bool = False
) -> "QuerySet[AuditLine]":
    """Return the lines that meet the conditions, newest first. Each condition has an
    index in this order. Lines that a job writes every minute are left out, unless their
    kind is a condition or `routine` lines are included.
    """
    if conditions.kind:
        lines = lines.filter(kind=conditions.kind)
    elif not routine:
        lines = lines.filter(~Q(kind=ROUTINE))
    if conditions.who:
        # Looked up first: without knowing the person, the query planner assumes one
        # with an average number of lines.
        lines = lines.filter(actor__in=_ids_of_users(conditions.who))
    if conditions.run:
        lines = lines.filter(run=_run_id(conditions.run))
    if conditions.graph:
        lines = lines.filter(graph=conditions.graph)
    if conditions.since is not None:
        lines = lines.filter(at__gte=conditions.since)
    if conditions.until is not None:
        lines = lines.filter(at__lt=conditions.until)
    return lines.order_by(*NEWEST)


def _ids_of_users(name: str) -> list[Any]:
    users = get_user_model()
    named = users._default_manager.filter(**{users.USERNAME_FIELD: name})
    return list(named.values_list("pk", flat=True))


def _run_id(ref: str) -> Any:
    try:
        return UUID(ref)
    except ValueError:
        return Subquery(Run.objects.filter(key=ref).order_by().values("id")[:1])


def with_runs(lines: "QuerySet[AuditLine]", user: Any) -> "QuerySet[AuditLine]":
    """Return the same lines, each with its actor, and with key, label and protection of
    its run where this user may see it.
    """
    visible = permissions.visible_among(user, Run.objects.filter(id=OuterRef("run")))
    run = visible.order_by()
    return lines.select_related("actor").annotate(
        run_key=Subquery(run.values("key")[:1]),
        run_label=Subquery(run.values("label")[:1]),
        run_encrypted=Subquery(run.values("encrypted")[:1]),
        run_hash_key=Subquery(run.values("hash_key")[:1]),
    )


@dataclass(frozen=True, slots=True)
class RunName:
    """The label and the key with which a line names its run."""

    label: str
    key: str


def run_name_of(line: Any) -> RunName | None:
    """Return the name of a line's run; None if this user may not see it, or the line is
    about no run.
    """
    if line.run_key is None:
        return None
    return RunName(line.run_label or "", line.run_key)


@dataclass(slots=True)
class LineEvidence:
    """The evidence behind a line: its decisions, its comment, or the event of the run's
    log that records the same act, None if that was removed. `protection` is that of
    their run.
    """

    decisions: Sequence[Decision] = ()
    comment: RequestComment | None = None
    event: RunEvent | None = None
    protection: Protection = field(default_factory=Protection)


def find_line(user: Any, number: int) -> AuditLine:
    """Return one line by its id, with its run. Raises `UnknownThing`, including where
    this user may not see it, or its run.
    """
    line = with_runs(visible_lines(user).filter(id=number), user).first()
    if line is None or not _sees_run(user, line):
        raise unknown_thing("audit line", number)
    return line


def _sees_run(user: Any, line: AuditLine) -> bool:
    if line.run is None or line.run_key is not None:  # type: ignore[attr-defined]
        return True
    # The run may be gone. Then those who see all runs still see the line.
    return permissions.may(user, "view_run")


def evidence_of(line: AuditLine) -> LineEvidence:
    """Return the evidence behind a line of `find_line`. Two queries at most."""
    if line.run is None:
        return LineEvidence()
    evidence = LineEvidence(protection=protection_behind(line))
    if line.kind in DECIDED:
        evidence.decisions = list(_decisions_of(line))
        return evidence
    comment = _comment_of(line)
    if comment is not None:
        evidence.comment = RequestComment.objects.filter(id=comment).first()
    seq = number_in(line, "seq")
    if seq is not None:
        evidence.event = RunEvent.objects.filter(run=line.run, seq=seq).first()
    return evidence


def protection_behind(line: AuditLine) -> Protection:
    """Return how the rows of a line's run are protected: as the run's row says, or,
    where that is gone, as the line does.
    """
    run: Any = line
    if run.run_key is not None:
        return Protection(run.run_encrypted, run.run_hash_key)
    hash_key = str(noted(line).get("hash_key", ""))
    return Protection(bool(hash_key), hash_key)


def _decisions_of(line: Any) -> "QuerySet[Decision]":
    receipt = _receipt_of(line)
    if receipt is not None:
        decisions = Decision.objects.filter(receipt=receipt)
        return decisions.order_by("event_seq", "position")
    # Decisions that nobody signed have no receipt, but follow one another in the log.
    first = number_in(line, "seq") or 0
    last = number_in(line, "last") or first
    decisions = Decision.objects.filter(
        run=line.run, event_seq__range=(first, last), receipt__isnull=True
    )
    return decisions.order_by("event_seq", "position")


def noted(line: AuditLine) -> Mapping[str, Any]:
    """Return the facts of a line; none if they do not have the form of a line's
    facts.
    """
    return line.facts if isinstance(line.facts, dict) else {}


def number_in(line: AuditLine, name: str) -> int | None:
    """Return the number of an event that a line has under this name, if it is one."""
    number = noted(line).get(name)
    # By its exact type, because a bool is an int too.
    if type(number) is int and 0 <= number <= MOST_LINES:
        return number
    return None


def _receipt_of(line: AuditLine) -> UUID | None:
    try:
        return UUID(noted(line)["receipt"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def comments(lines: Iterable[AuditLine]) -> dict[int, str]:
    """Return the reasons that people gave and the comments that they wrote, by id of the
    line, of lines whose run this user may see. Three queries at most, and one for keys.

    The reasons of decisions are in their rows and those of other acts in the run's log,
    so that one that was erased there is not shown. Those of holds, pins and erasures,
    which state that they are kept, are in the line.
    """
    visible = [line for line in lines if getattr(line, "run_key", None) is not None]
    line_of_receipt = _lines_by_receipt(visible)
    line_of_event = _lines_by_event(visible)
    decisions = _decisions_with_reasons(line_of_receipt)
    events = _events_at(line_of_event)
    line_of_comment = _lines_by_comment(visible)
    written = _comments_with_text(line_of_comment)
    # The keys of all rows at once, or each row would cost a query.
    data_keys.know_keys_of([*decisions, *events, *written])

    comment_of: dict[int, str] = {}
    for line in visible:
        reason = noted(line).get("reason")
        if reason:
            comment_of[line.id] = str(reason)
    for row in written:
        comment_of[line_of_comment[row.id].id] = text_of_comment(row)
    reasons_by_line: dict[int, list[str]] = {}
    for decision in decisions:
        line = line_of_receipt[decision.receipt_id]
        reasons_by_line.setdefault(line.id, []).append(_reason_of_decision(decision))
    for number, reasons in reasons_by_line.items():
        comment_of[number] = _joined(reasons)
    for event in events:
        reason = _reason_of_event(event)
        if reason:
            comment_of[line_of_event[event.run_id, event.seq].id] = reason
    return comment_of


def _lines_by_receipt(lines: Iterable[AuditLine]) -> dict[Any, AuditLine]:
    by_receipt: dict[Any, AuditLine] = {}
    for line in lines:
        receipt = _receipt_of(line)
        if receipt is not None:
            by_receipt[receipt] = line
    return by_receipt


def _lines_by_event(lines: Iterable[AuditLine]) -> dict[tuple[Any, int], AuditLine]:
    by_event: dict[tuple[Any, int], AuditLine] = {}
    for line in lines:
        if line.kind in DECIDED:
            continue
        seq = number_in(line, "seq")
        if seq is not None:
            by_event[line.run, seq] = line
    return by_event


def _lines_by_comment(lines: Iterable[AuditLine]) -> dict[UUID, AuditLine]:
    by_comment: dict[UUID, AuditLine] = {}
    for line in lines:
        comment = _comment_of(line)
        if comment is not None:
            by_comment[comment] = line
    return by_comment


def _comment_of(line: AuditLine) -> UUID | None:
    """Return the comment that a line says was written; None if it says no such thing."""
    if line.kind != COMMENTED:
        return None
    try:
        return UUID(noted(line)["comment"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _comments_with_text(comments: Collection[UUID]) -> list[RequestComment]:
    if not comments:
        return []
    rows = RequestComment.objects.filter(id__in=comments)
    return list(rows.only("id", "run", "text"))


def _decisions_with_reasons(receipts: Collection[UUID]) -> list[Decision]:
    if not receipts:
        return []
    # Without the three values of each decision, which may be large.
    decisions = Decision.objects.filter(receipt__in=receipts).exclude(reason=b"")
    return list(decisions.order_by("event_seq").only("id", "run", "receipt", "reason"))


def _events_at(places: Collection[tuple[Any, int]]) -> list[RunEvent]:
    """Return the events of these runs with these numbers."""
    if not places:
        return []
    at_places = Q(pk__in=[])
    for run, seq in places:
        at_places |= Q(run=run, seq=seq)
    events = RunEvent.objects.filter(at_places)
    return list(events.only("id", "run", "seq", "payload"))


def _reason_of_event(event: RunEvent) -> str:
    try:
        facts = read_value(event, "payload") or {}
    except UNREADABLE as error:
        return f"[{error.code}]"
    if not isinstance(facts, dict):
        return ""
    return str(facts.get("reason") or "")


def _reason_of_decision(decision: Decision) -> str:
    try:
        return str(read_value(decision, "reason") or "")
    except UNREADABLE as error:
        return f"[{error.code}]"


def text_of_comment(row: RequestComment) -> str:
    """Return the text of a comment, or in brackets why it cannot be read."""
    try:
        return str(read_value(row, "text") or "")
    except UNREADABLE as error:
        return f"[{error.code}]"


def _joined(reasons: Sequence[str]) -> str:
    different = list(dict.fromkeys(reason for reason in reasons if reason))
    shown = " · ".join(different[:MOST_REASONS])
    if len(different) <= MOST_REASONS:
        return shown
    return f"{shown} and {len(different) - MOST_REASONS} more"


@dataclass(frozen=True, slots=True)
class ChainState:
    """The newest verification of the audit log's chain: up to which number, when, and
    how many lines were not as they were written.
    """

    number: int
    at: datetime
    faults: int


def chain_state() -> ChainState | None:
    """Return the result of the newest verification of all runs for the chain; None if
    there was none, or its line does not verify. One query.
    """
    lines = AuditLine.objects.filter(kind=VERIFIED, facts__has_key="chain")
    line = lines.order_by(*NEWEST).first()
    if line is None or fault_of(line, PLAIN) is not None:
        return None
    chain = line.facts["chain"]
    return ChainState(chain["number"], line.at, chain["faults"])
