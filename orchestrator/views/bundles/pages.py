"""Pages of bundles: a run is exported to a file, and a bundle of a trusted house is taken in."""

import tempfile

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals import permissions
from approvals.downloads import file_answer
from approvals.views.page import may_post, render, single_fields, visible_run
from checkpoints import audit_log, bundle
from checkpoints.conf import conf
from checkpoints.models import Run
from orchestrator.engine.errors import REFUSALS, CountersignError, UnknownThing


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()  # type: ignore[arg-type]  # it answers with a file
def export_page(request: HttpRequest, ref: str) -> HttpResponseBase:
    """A form; posted, it gives the bundle of a run, as a file. Where the run does not verify the page says so, and
    offers it as it is.
    """
    run = visible_run(request.user, ref)
    if not may_post(request, run, "export_run", refusal="refused_right"):
        raise PermissionDenied("You may not export runs.")
    if request.method != "POST":
        return render(request, "orchestrator/export.html", {"run": run}, section="runs")
    file = tempfile.TemporaryFile()  # noqa: SIM115 the answer closes it
    try:
        bundle.export(run.id, file, by=request.user, as_is=request.POST.get("as_is") == "yes")
    except REFUSALS as error:
        file.close()
        return render(request, "orchestrator/export.html", {"run": run, "error": error}, section="runs", status=409)
    return file_answer(request, file, name=f"run-{run.id}.jsonl", content_type="application/x-ndjson")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
def import_page(request: HttpRequest) -> HttpResponse:
    """A form for a bundle; posted, its run is taken in, or why not is said and nothing is changed."""
    if not permissions.may(request.user, "import_run"):
        if request.method == "POST":
            audit_log.record("refused_import", actor=request.user, code="forbidden")
        raise PermissionDenied("You may not import runs.")
    if request.method != "POST":
        return _form(request)
    file = request.FILES.get("file")
    if file is None or file.size is None:
        return _form(request, "Choose a file.", status=422)
    if file.size > conf().max_upload_bytes:
        return _form(request, f"The file is larger than {conf().max_upload_bytes:,} bytes.", status=413)
    try:
        run, new = bundle.load_or_find(file, by=request.user)  # type: ignore[arg-type]
    except REFUSALS as error:
        return _form(request, f"{error.message}.", status=422, there=_run_that_is_here(request, error))
    messages.success(request, "The run was taken in." if new else "This bundle was taken in before; here is its run.")
    return redirect("run", run.id)


def _run_that_is_here(request: HttpRequest, error: CountersignError) -> Run | None:
    """The run that stands in the way, if it is one that this person may see."""
    try:
        return permissions.visible_run(request.user, str(error.facts["run"])) if "run" in error.facts else None
    except UnknownThing:
        return None


def _form(request: HttpRequest, message: str = "", *, status: int = 200, there: Run | None = None) -> HttpResponse:
    context = {"message": message, "there": there}
    return render(request, "orchestrator/import.html", context, section="runs", status=status)
