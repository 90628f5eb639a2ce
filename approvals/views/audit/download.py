"""The audit log as a file: CSV for people, JSON lines for programs. Written page by page as it is read, so memory stays
flat whatever its length; each export leaves a line of its own.
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

from approvals import audit, permissions
from approvals.audit import LineFilter
from approvals.downloads import csv_cell, served_chunks
from approvals.views.audit.page import NoFilter, read_filter, show_lines
from approvals.views.page import error_page
from checkpoints import audit_log

FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson; charset=utf-8"}
BATCH = 500
"""Lines that are read, and sent, at once."""
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
    """The lines that the filters of the page leave, newest first; without a filter all, so that the chain is whole.
    For who may read the whole log and export.
    """
    if format not in FORMATS or not permissions.may(request.user, "view_audit"):
        raise Http404("there is no such export")
    if not permissions.may(request.user, "export_run"):
        audit_log.record("refused_export", actor=request.user)
        text = "You may read the audit log, but not take it along: that needs the right to export."
        return error_page(request, "You may not export the audit log", text, status=403)
    try:
        wanted = read_filter(request)
    except NoFilter as error:
        return error_page(request, "This filter cannot be read", str(error), status=400)
    _note(request, format, wanted)
    chunks = {"csv": csv_chunks, "jsonl": json_chunks}[format](_batches(request.user, wanted))
    answer = StreamingHttpResponse(served_chunks(request, chunks), content_type=FORMATS[format])
    name = f"audit-{timezone.now():%Y%m%dT%H%M%SZ}.{format}"
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    answer.headers["Cache-Control"] = "private, no-store"
    answer.headers["X-Accel-Buffering"] = "no"
    return answer


def _note(request: HttpRequest, format: str, wanted: LineFilter) -> None:
    """The line of this export, before its first byte leaves: also where it is broken off."""
    given = {name: request.GET[name] for name in ("who", "run", "graph", "kind", "from", "to") if request.GET.get(name)}
    facts: dict[str, Any] = {"format": format, **({"only": given} if given else {})}
    audit_log.record("audit_exported", actor=request.user, **facts)


def _batches(user: Any, wanted: LineFilter) -> Iterator[list[Any]]:
    """All lines that are wanted, a page at a time, each found from the last one of the page before."""
    lines = audit.with_runs(audit.filtered(audit.visible_lines(user), wanted, routine=True), user)
    after = lines
    while found := list(after[:BATCH]):
        yield show_lines(found)
        last = found[-1]
        after = lines.filter(Q(at__lt=last.at) | Q(at=last.at, id__lt=last.id), at__lte=last.at)


def csv_chunks(batches: Iterable[list[Any]]) -> Iterator[bytes]:
    """The lines as CSV, a chunk a batch. A cell that a spreadsheet would take for a formula gets an apostrophe."""
    yield _csv([COLUMNS])
    for batch in batches:
        yield _csv([[_cell(value) for value in _values(line).values()] for line in batch])


def _csv(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> str:
    return csv_cell(value if isinstance(value, str) else "" if value is None else _json(value))


def json_chunks(batches: Iterable[list[Any]]) -> Iterator[bytes]:
    """The lines as JSON, one a line, a chunk a batch."""
    for batch in batches:
        yield "".join(f"{_json(_values(line))}\n" for line in batch).encode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _values(line: Any) -> dict[str, Any]:
    """What is written of a line. Each hash is over that of the line before, the number and the seal, under the key that
    sealed the line.
    """
    row = {"number": line.number, "id": line.id, "at": line.at.isoformat(), "by": line.actor_name, "kind": line.kind}
    row |= {"did": line.text, "graph": line.graph, "run": str(line.run) if line.run else "", "run_key": line.run_key}
    row |= {"comment": line.comment, "facts": line.facts, "seal_key": line.seal_key}
    return row | {"seal": bytes(line.seal or b"").hex(), "hash": line.hash}
