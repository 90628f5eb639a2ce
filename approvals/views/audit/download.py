"""The audit log as a file: CSV for people, JSON lines for programs. It is written batch
by batch while it is read, so memory stays flat whatever its length; each export is
itself logged.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from approvals import permissions
from approvals.audit import reads as audit
from approvals.audit.reads import LineFilter
from approvals.downloads import csv_cell, served_chunks
from approvals.views.audit.page import FIELDS, NoFilter, read_filter, show_lines
from approvals.views.page import error_page
from checkpoints.audit import lines as audit_log

FORMATS = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson; charset=utf-8",
}
BATCH = 500
"""The most lines that are read, and sent, at a time."""
COLUMNS = (
    "number",
    "id",
    "at",
    "by",
    "kind",
    "did",
    "graph",
    "run",
    "run_key",
    "comment",
    "facts",
    "seal_key",
    "seal",
    "hash",
)


@login_required
@require_GET
def export_page(request: HttpRequest, format: str) -> HttpResponseBase:
    """Return the lines that match the page's filters, newest first; all without a
    filter, so that the chain is whole. For those who may read the whole log and export.
    """
    if format not in FORMATS or not permissions.may(request.user, "view_audit"):
        raise Http404("there is no such export")
    if not permissions.may(request.user, "export_run"):
        audit_log.record("refused_export", actor=request.user)
        text = (
            "You may read the audit log, but not take it along: that needs the right to"
            " export."
        )
        return error_page(request, "You may not export the audit log", text, status=403)
    try:
        line_filter = read_filter(request)
    except NoFilter as error:
        return error_page(request, "This filter cannot be read", str(error), status=400)
    # Logged before the first byte leaves: an export that breaks off counts too.
    _record_export(request, format)
    batches = _batches(request.user, line_filter)
    chunks = csv_chunks(batches) if format == "csv" else json_chunks(batches)
    answer = StreamingHttpResponse(
        served_chunks(request, chunks), content_type=FORMATS[format]
    )
    name = f"audit-{timezone.now():%Y%m%dT%H%M%SZ}.{format}"
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    answer.headers["Cache-Control"] = "private, no-store"
    # Else nginx would collect the chunks instead of passing each of them on.
    answer.headers["X-Accel-Buffering"] = "no"
    return answer


def _record_export(request: HttpRequest, format: str) -> None:
    filters = {name: request.GET[name] for name in FIELDS if request.GET.get(name)}
    facts: dict[str, Any] = {"format": format}
    if filters:
        facts["only"] = filters
    audit_log.record("audit_exported", actor=request.user, **facts)


def _batches(user: Any, line_filter: LineFilter) -> Iterator[list[Any]]:
    """Yield all lines that match, a batch at a time."""
    visible = audit.visible_lines(user)
    lines = audit.with_runs(audit.filtered(visible, line_filter, routine=True), user)
    remaining = lines
    while batch := list(remaining[:BATCH]):
        yield show_lines(batch)
        # A batch begins after the last line of the one before: an offset would get
        # slower with each batch, and repeat lines when new ones arrive.
        last = batch[-1]
        # The last condition follows from the others, but an OR alone bounds no range of
        # an index.
        remaining = lines.filter(
            Q(at__lt=last.at) | Q(at=last.at, id__lt=last.id), at__lte=last.at
        )


def csv_chunks(batches: Iterable[list[Any]]) -> Iterator[bytes]:
    """Yield the lines as CSV, a chunk for each batch. A cell that a spreadsheet would
    take for a formula gets an apostrophe.
    """
    yield _csv([COLUMNS])
    for batch in batches:
        yield _csv(_cells(line) for line in batch)


def _cells(line: Any) -> list[str]:
    return [_cell(value) for value in _values(line).values()]


def _csv(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> str:
    if value is None:
        return csv_cell("")
    return csv_cell(value if isinstance(value, str) else _json(value))


def json_chunks(batches: Iterable[list[Any]]) -> Iterator[bytes]:
    """Yield the lines as JSON, one a line, a chunk for each batch."""
    for batch in batches:
        yield "".join(f"{_json(_values(line))}\n" for line in batch).encode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _values(line: Any) -> dict[str, Any]:
    """Return the exported values of a line. Each hash is over that of the line before,
    the number and the seal, under the key that sealed the line.
    """
    return {
        "number": line.number,
        "id": line.id,
        "at": line.at.isoformat(),
        "by": line.actor_name,
        "kind": line.kind,
        "did": line.text,
        "graph": line.graph,
        "run": str(line.run) if line.run else "",
        "run_key": line.run_key,
        "comment": line.comment,
        "facts": line.facts,
        "seal_key": line.seal_key,
        "seal": bytes(line.seal or b"").hex(),
        "hash": line.hash,
    }
