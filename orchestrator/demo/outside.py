"""Pages of the outside world of the demo: cases, payments with every call, letters,
imports. They change nothing.
"""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Max, Q
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from approvals.permissions import visible_among
from checkpoints.models import Run
from orchestrator.demo.claims.models import ClaimCase, Payment, PaymentCall
from orchestrator.demo.imports.models import ImportedRow

SHOWN = 50


@require_safe
@login_required
def outside(request: HttpRequest) -> HttpResponse:
    """Return what the departments would see in their other systems, newest first."""
    facts = {
        "cases": ClaimCase.objects.all()[:SHOWN],
        "payments": Payment.objects.all()[:SHOWN],
        "calls": PaymentCall.objects.all()[:SHOWN],
        "letters": list(_letters())[:SHOWN],
        "imports": _imports(request.user),
    }
    return render(request, "demo_claims/outside.html", facts)


@require_safe
@login_required
def letter(request: HttpRequest, name: str) -> FileResponse:
    """Return one letter as it was sent. 404 for any name that is not in the outbox."""
    path = _letters().get(name)
    if path is None:
        raise Http404(f"there is no letter {name}")
    return FileResponse(
        path.open("rb"),
        content_type="text/plain; charset=utf-8",
        filename=name,
    )


def _letters() -> dict[str, Path]:
    """Return the files of the outbox by name, newest first."""
    # Their names begin with the time at which they were sent.
    paths = Path(settings.EMAIL_FILE_PATH).glob("*.eml")
    return {path.name: path for path in sorted(paths, reverse=True)}


def _imports(user: Any) -> list[dict[str, Any]]:
    corrected = Count("id", filter=Q(corrected=True))
    rows = (
        ImportedRow.objects.order_by()
        .values("run")
        .annotate(rows=Count("id"), corrected=corrected, at=Max("at"))
    )
    newest = list(rows.order_by("-at")[:SHOWN])
    # Rows of an import name their run, which not every user may see.
    of_rows = Run.objects.filter(id__in=[counts["run"] for counts in newest])
    keys = dict(visible_among(user, of_rows).values_list("id", "key"))
    imports: list[dict[str, Any]] = []
    for counts in newest:
        if counts["run"] in keys:
            imports.append({**counts, "key": keys[counts["run"]]})
    return imports
