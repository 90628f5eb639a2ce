"""The imported rows of a run as a CSV file."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.views.decorators.http import require_safe

from approvals.downloads import csv_cell, served_chunks
from approvals.permissions import may_see_run
from checkpoints import timeline
from checkpoints.models import Run
from orchestrator.demo.imports.models import ImportedRow

BATCH = 1000
"""Rows that are read, and sent, at once."""


@require_safe
@login_required
def imported(request: HttpRequest, run: UUID) -> StreamingHttpResponse:
    """All rows that a run has imported, with their numbers. 404 where there are none, or the run may not be seen."""
    found = Run.objects.filter(id=run).first()
    rows = ImportedRow.objects.filter(run=run)
    first = rows.first() if found and may_see_run(request.user, found) else None
    if first is None:
        raise Http404(f"run {run} has imported nothing")
    headers = {"Content-Disposition": f'attachment; filename="{run}.csv"'}
    chunks = served_chunks(request, _chunks(rows, _columns(run, first)))
    return StreamingHttpResponse(chunks, content_type="text/csv; charset=utf-8", headers=headers)


def _columns(run: UUID, first: ImportedRow) -> list[str]:
    """In the order of the file: not every database keeps the order within a JSON value."""
    checked = timeline.head_state(run)["scratch"].get("checked") or {}
    return [name for name in checked.get("header", first.values) if name in first.values]


def _chunks(rows: Any, columns: list[str]) -> Iterator[bytes]:
    """The lines, so many at once, each found from the last one before: no query stays open between two chunks."""
    yield _csv([["row", *columns, "corrected"]])
    after = rows
    while found := list(after[:BATCH]):
        yield _csv(
            [row.row, *(row.values[name] for name in columns), "yes" if row.corrected else "no"] for row in found
        )
        after = rows.filter(row__gt=found[-1].row)


def _csv(lines: Iterable[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([csv_cell(str(value)) for value in line] for line in lines)
    return text.getvalue().encode()
