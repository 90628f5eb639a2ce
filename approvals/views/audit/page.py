"""The page of the audit log: who did what to which run, and what was refused. Nothing
can be changed here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from approvals import permissions
from approvals.audit import reads as audit
from approvals.audit.reads import LineFilter
from approvals.audit.words import (
    KINDS,
    accounts_in,
    kind_name,
    sentence_of,
    with_full_names,
)
from approvals.views.page import error_page, render
from checkpoints.conf import conf
from checkpoints.models import AuditLine
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.time_stamps import Stamp, latest_stamp

PAGE = 50
HIGHEST = 2**63 - 1
FIELDS = ("who", "run", "graph", "kind", "from", "to")


class NoFilter(ValueError):
    """A filter has a value that it cannot have. The text names the field."""


@login_required
@require_safe
def audit_page(request: HttpRequest) -> HttpResponse:
    """Show one page of the lines that this person may see, newest first. Five
    statements at most, whatever is filtered; one more where the log is stamped.
    """
    try:
        lines = audit.filtered(audit.visible_lines(request.user), read_filter(request))
        lines = audit.with_runs(lines, request.user)
        lines = _before(lines, request.GET.get("before", ""))
    except NoFilter as error:
        return error_page(request, "This filter cannot be read", str(error), status=400)
    # One line beyond the page shows whether there is an older page.
    page = list(lines[: PAGE + 1])
    older = ""
    if len(page) > PAGE:
        last = page[PAGE - 1]
        older = _query(request, before=f"{last.at.isoformat()}~{last.id}")
    newest = ""
    if request.GET.get("before"):
        newest = _query(request)
    reads_all = permissions.may(request.user, "view_audit")
    rows = show_lines(page[:PAGE])
    for line in rows:
        line.fault = fault_of(line, PLAIN)
    context = {
        "rows": rows,
        "given": {name: request.GET.get(name, "") for name in FIELDS},
        "kinds": [(kind, name) for kind, (name, _) in KINDS.items()],
        "narrowed": any(request.GET.get(name) for name in FIELDS),
        "older": older,
        "newest": newest,
        "zone": timezone.get_current_timezone_name(),
        "chain": audit.chain_state() if reads_all else None,
        "stamp": _stamp(reads_all=reads_all),
        "reads_all": reads_all,
        "sees_runs": permissions.may(request.user, "view_run"),
        "scope": _scope(request.user, reads_all),
        "may_export": reads_all and permissions.may(request.user, "export_run"),
        "filters": _query(request),
    }
    return render(request, "approvals/audit.html", context, section="audit")


def _stamp(*, reads_all: bool) -> Stamp | None:
    """Return the newest time stamp, where the log is stamped and this
    person reads all of it. One query.
    """
    if not reads_all or not conf().time_stamp_url:
        return None
    return latest_stamp()


def _scope(user: Any, reads_all: bool) -> str:
    if reads_all:
        return ""
    if permissions.may(user, "view_run"):
        return (
            "You see what was done to runs. The whole log is for people with the right"
            " to read it."
        )
    return (
        "You see what you did yourself. The whole log is for people with the right to"
        " read it."
    )


def show_lines(lines: Sequence[Any]) -> list[Any]:
    """Return the lines with their sentences and the reasons that people gave. Three
    queries at most.
    """
    # Read for all lines together.
    reasons = audit.comments(lines)
    full_names = full_names_in(lines)
    for line in lines:
        line.text = sentence_of(line.kind, with_full_names(line.facts, full_names))
        line.title = kind_name(line.kind)
        line.run_name = audit.run_name_of(line)
        line.comment = reasons.get(line.id, "")
    return list(lines)


def full_names_in(lines: Sequence[Any]) -> dict[str, str]:
    """Return the full names of the accounts that lines mention, by user name. One
    query, or none.
    """
    accounts: set[str] = set()
    for line in lines:
        accounts |= accounts_in(line.facts)
    if not accounts:
        return {}
    users = get_user_model()
    people = users._default_manager.filter(**{f"{users.USERNAME_FIELD}__in": accounts})
    return {person.get_username(): person.get_full_name() for person in people}


def read_filter(request: HttpRequest) -> LineFilter:
    """Return the filter that the address names. Raises `NoFilter`."""
    values = {name: request.GET.get(name, "").strip() for name in FIELDS}
    since = _moment("from", values["from"])
    until = _moment("to", values["to"], whole_day=True)
    return LineFilter(
        values["who"], values["run"], values["graph"], values["kind"], since, until
    )


def _moment(name: str, text: str, *, whole_day: bool = False) -> datetime | None:
    """Return a time. A day stands for its beginning in the reader's time zone, or for
    that of the next day if the `whole_day` is meant. Raises `NoFilter`.
    """
    if not text:
        return None
    try:
        at = parse_datetime(text)
        day = parse_date(text)
        # A whole date only: a time begins with one too.
        if day is not None and len(text) <= 10:
            at = datetime(day.year, day.month, day.day)
            if whole_day:
                at += timedelta(days=1)
        if at is not None:
            aware = timezone.make_aware(at) if timezone.is_naive(at) else at
            return aware.astimezone(UTC)
    except (ValueError, OverflowError):
        # Not in the calendar, or not in the range of times that Python has.
        pass
    raise NoFilter(
        f"“{name}” is a day, as in 2026-11-22, or a time, as in 2026-11-22T14:00."
    )


def _before(lines: "QuerySet[AuditLine]", cursor: str) -> "QuerySet[AuditLine]":
    """Return the lines that follow the last one of a page; without a cursor, all lines.
    Raises `NoFilter`.
    """
    if not cursor:
        return lines
    moment, _, number = cursor.partition("~")
    try:
        at = parse_datetime(moment)
        # The links of the list have times with a time zone.
        if at is not None:
            at = at.astimezone(UTC) if timezone.is_aware(at) else None
    except (ValueError, OverflowError):
        at = None
    if at is None or not _is_line_number(number):
        raise NoFilter("“before” names no line; follow the links of the list.")
    # The last condition follows from the others, but an OR alone bounds no range of an
    # index.
    return lines.filter(Q(at__lt=at) | Q(at=at, id__lt=int(number)), at__lte=at)


def _is_line_number(text: str) -> bool:
    # The length first: Python reads no number of thousands of digits.
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        return False
    return int(text) <= HIGHEST


def _query(request: HttpRequest, **additional: str) -> str:
    """Return the address's query with its filters, and with additional parameters."""
    parameters = {name: request.GET.get(name, "") for name in FIELDS} | additional
    return urlencode({name: value for name, value in parameters.items() if value})
