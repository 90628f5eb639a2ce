"""Pages that show the outside world of the demo: cases, payments with every call, letters. They change nothing."""

from pathlib import Path

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from orchestrator.demo.claims.models import ClaimCase, Payment, PaymentCall

SHOWN = 50


@require_safe
@login_required
def outside(request: HttpRequest) -> HttpResponse:
    """What a claims department would see in its other systems, newest first."""
    letters = sorted(Path(settings.EMAIL_FILE_PATH).glob("*.eml"), reverse=True)
    facts = {
        "cases": ClaimCase.objects.all()[:SHOWN],
        "payments": Payment.objects.all()[:SHOWN],
        "calls": PaymentCall.objects.all()[:SHOWN],
        "letters": [path.name for path in letters[:SHOWN]],
    }
    return render(request, "demo_claims/outside.html", facts)


@require_safe
@login_required
def letter(request: HttpRequest, name: str) -> FileResponse:
    """One letter, as it was sent. 404 for any name that is not in the outbox."""
    found = {path.name: path for path in Path(settings.EMAIL_FILE_PATH).glob("*.eml")}
    if name not in found:
        raise Http404(f"there is no letter {name}")
    return FileResponse(found[name].open("rb"), content_type="text/plain; charset=utf-8", filename=name)
