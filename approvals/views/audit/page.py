"""The audit log: who did what to which run, and what was refused. Nothing can be changed here."""

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

from approvals import audit, permissions
from approvals.audit import LineFilter
from approvals.audit_words import KINDS, accounts_in, kind_name, sentence_of, with_full_names
from approvals.views.page import error_page, render
from checkpoints.models import AuditLine
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN

PAGE = 50
HIGHEST = 2**63 - 1
FIELDS = ("who", "run", "graph", "kind", "from", "to")


class NoFilter(ValueError):
    """A filter says what it cannot mean. The text names the field."""


@login_required
@require_safe
def audit_page(request: HttpRequest) -> HttpResponse:
    """One page of the lines that this person may see, newest first. Five statements at most, whatever
    is filtered."""
    try:
        wanted = read_filter(request)
    except NoFilter as error:
        return error_page(request, "This filter cannot be read", str(error), status=400)
    lines = audit.with_runs(audit.filtered(audit.visible_lines(request.user), wanted), request.user)
    found = list(_before(lines, request.GET.get("before", ""))[: PAGE + 1])
    last = found[PAGE - 1] if len(found) > PAGE else None
    reads_all = permissions.may(request.user, "view_audit")
    rows = show_lines(found[:PAGE])
    for line in rows:
        line.fault = fault_of(line, PLAIN)
    context = {
        "rows": rows,
        "given": {name: request.GET.get(name, "") for name in FIELDS},
        "kinds": [(kind, name) for kind, (name, _) in KINDS.items()],
        "narrowed": any(request.GET.get(name) for name in FIELDS),
        "older": _query(request, before=f"{last.at.isoformat()}~{last.id}") if last else "",
        "newest": _query(request) if request.GET.get("before") else "",
        "zone": timezone.get_current_timezone_name(),
        "chain": audit.chain_state() if reads_all else None,
        "reads_all": reads_all,
        "sees_runs": permissions.may(request.user, "view_run"),
        "scope": _scope(request.user, reads_all),
        "may_export": reads_all and permissions.may(request.user, "export_run"),
        "filters": _query(request),
    }
    return render(request, "approvals/audit.html", context, section="audit")


def _scope(user: Any, reads_all: bool) -> str:
    if reads_all:
        return ""
    if permissions.may(user, "view_run"):
        return "You see what was done to runs. The whole log is for people with the right to read it."
    return "You see what you did yourself. The whole log is for people with the right to read it."


def show_lines(found: Sequence[Any]) -> list[Any]:
    """Return the lines with their words and the reasons that people gave. Three queries at most."""
    reasons = audit.comments(found)
    full_names = full_names_in(found)
    for line in found:
        line.text = sentence_of(line.kind, with_full_names(line.facts, full_names))
        line.title = kind_name(line.kind)
        line.run_name = audit.run_name_of(line)
        line.comment = reasons.get(line.id, "")
    return list(found)


def full_names_in(lines: Sequence[Any]) -> dict[str, str]:
    """Return the full names of the accounts that lines mention, by user name. One query, or none."""
    accounts: set[str] = set()
    for line in lines:
        accounts |= accounts_in(line.facts)
    if not accounts:
        return {}
    users = get_user_model()
    people = users._default_manager.filter(**{f"{users.USERNAME_FIELD}__in": accounts})
    return {person.get_username(): person.get_full_name() for person in people}


def read_filter(request: HttpRequest) -> LineFilter:
    """What the address narrows the log to. Raises `NoFilter`."""
    given = {name: request.GET.get(name, "").strip() for name in FIELDS}
    since, until = _moment("from", given["from"]), _moment("to", given["to"], whole_day=True)
    return LineFilter(given["who"], given["run"], given["graph"], given["kind"], since, until)


def _moment(name: str, text: str, *, whole_day: bool = False) -> datetime | None:
    """A time, or a day in the reader's time zone: its beginning; the beginning of the next one where the `whole_day`
    is meant.
    """
    if not text:
        return None
    try:
        at, day = parse_datetime(text), parse_date(text)
        if day is not None and len(text) <= 10:
            at = datetime(day.year, day.month, day.day)
            at = at + timedelta(days=1) if whole_day else at
        if at is not None:
            found = timezone.make_aware(at) if timezone.is_naive(at) else at
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise NoFilter(f"“{name}” is a day, as in 2026-11-22, or a time, as in 2026-11-22T14:00.")


def _before(lines: "QuerySet[AuditLine]", cursor: str) -> "QuerySet[AuditLine]":
    """The lines after the last one of a page; all where the cursor cannot be read."""
    moment, _, number = cursor.partition("~")
    try:
        at = parse_datetime(moment)
        at = at.astimezone(UTC) if at is not None and timezone.is_aware(at) else None
    except (ValueError, OverflowError):
        at = None
    plain = number.isascii() and number.isdigit() and len(number) <= 19 and int(number) <= HIGHEST
    if at is None or not plain:
        return lines
    return lines.filter(Q(at__lt=at) | Q(at=at, id__lt=int(number)), at__lte=at)


def _query(request: HttpRequest, **more: str) -> str:
    kept = {name: request.GET.get(name, "") for name in FIELDS} | more
    return urlencode({name: value for name, value in kept.items() if value})
