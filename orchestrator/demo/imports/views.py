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
"""The most rows that are read, and sent, at once."""


@require_safe
@login_required
def imported(request: HttpRequest, run: UUID) -> StreamingHttpResponse:
    """Return all rows that a run has imported, with their numbers. 404 if there are
    none, or the user may not see the run.
    """
    run_row = Run.objects.filter(id=run).first()
    rows = ImportedRow.objects.filter(run=run)
    first = None
    if run_row is not None and may_see_run(request.user, run_row):
        first = rows.first()
    if first is None:
        raise Http404(f"run {run} has imported nothing")
    headers = {"Content-Disposition": f'attachment; filename="{run}.csv"'}
    chunks = served_chunks(request, _chunks(rows, _columns(run, first)))
    return StreamingHttpResponse(
        chunks, content_type="text/csv; charset=utf-8", headers=headers
    )


def _columns(run: UUID, first: ImportedRow) -> list[str]:
    """Return the columns in the order of the file, because not every database keeps the
    order within a JSON value.
    """
    checked = timeline.head_state(run)["scratch"].get("checked") or {}
    return [
        name for name in checked.get("header", first.values) if name in first.values
    ]


def _chunks(rows: Any, columns: list[str]) -> Iterator[bytes]:
    """Yield the lines in chunks. Each chunk begins after the last row of the one
    before, so that no query stays open between two.
    """
    yield _csv([["row", *columns, "corrected"]])
    after = rows
    while batch := list(after[:BATCH]):
        lines: list[list[Any]] = []
        for row in batch:
            cells = [row.values[name] for name in columns]
            lines.append([row.row, *cells, "yes" if row.corrected else "no"])
        yield _csv(lines)
        after = rows.filter(row__gt=batch[-1].row)


def _csv(lines: Iterable[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(
        [csv_cell(str(value)) for value in line] for line in lines
    )
    return text.getvalue().encode()
