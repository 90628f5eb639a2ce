"""The imported rows of a run as a CSV file."""

import csv
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.views.decorators.http import require_safe

from approvals.permissions import may_see_run
from checkpoints import timeline
from checkpoints.models import Run
from orchestrator.demo.imports.models import ImportedRow


class _Line:
    """csv.writer writes here; what it writes is what it returns."""

    def write(self, text: str) -> str:
        return text


@require_safe
@login_required
def imported(request: HttpRequest, run: UUID) -> StreamingHttpResponse:
    """All rows that a run has imported, with their numbers. 404 where there are none, or the run may not be seen."""
    found = Run.objects.filter(id=run).first()
    rows = ImportedRow.objects.filter(run=run)
    first = rows.first() if found and may_see_run(request.user, found) else None
    if first is None:
        raise Http404(f"run {run} has imported nothing")
    headers, lines = {"Content-Disposition": f'attachment; filename="{run}.csv"'}, _lines(rows, _columns(run, first))
    return StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8", headers=headers)


def _columns(run: UUID, first: ImportedRow) -> list[str]:
    """In the order of the file: not every database keeps the order within a JSON value."""
    checked = timeline.head_state(run)["scratch"].get("checked") or {}
    return [name for name in checked.get("header", first.values) if name in first.values]


def _lines(rows: Any, columns: list[str]) -> Iterator[str]:
    writer = csv.writer(_Line())
    yield writer.writerow(["row", *columns, "corrected"])
    for row in rows.iterator(chunk_size=1000):
        yield writer.writerow([row.row, *(row.values[name] for name in columns), "yes" if row.corrected else "no"])
