"""The pages of bundles: one exports a run to a file, the other imports the run of a
bundle from a trusted house.
"""

import tempfile
from typing import Any

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
from checkpoints import bundle
from checkpoints.audit import lines as audit_log
from checkpoints.conf import conf
from checkpoints.models import Run
from orchestrator.engine.errors import REFUSALS, CountersignError, UnknownThing

GIVEN_BY = "Whoever manages the accounts can give it to you."
"""The way to a right that is missing."""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()  # type: ignore[arg-type]  # it answers with a file
def export_page(request: HttpRequest, ref: str) -> HttpResponseBase:
    """Show a form; once posted, return the bundle of a run as a file. If the run does
    not verify, the page names the fault, and offers the run as it is.
    """
    run = visible_run(request.user, ref)
    if not may_post(request, run, "export_run", refusal="refused_right"):
        needed = "Exporting a run needs the right to export, which auditors have."
        raise PermissionDenied(f"{needed} {GIVEN_BY}")
    if request.method != "POST":
        return _export_form(request, {"run": run})
    as_is = request.POST.get("as_is") == "yes"
    # Written whole before anything is sent: an answer that has begun cannot be refused.
    file = tempfile.TemporaryFile()  # noqa: SIM115 the answer closes it
    try:
        bundle.export(run.id, file, by=request.user, as_is=as_is)
    except REFUSALS as error:
        # Nothing of a refused export is sent.
        file.close()
        return _export_form(request, {"run": run, "error": error}, status=409)
    return file_answer(
        request, file, name=f"run-{run.id}.jsonl", content_type="application/x-ndjson"
    )


def _export_form(
    request: HttpRequest,
    context: dict[str, Any],
    *,
    status: int = 200,
) -> HttpResponse:
    return render(
        request, "orchestrator/export.html", context, section="runs", status=status
    )


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
def import_page(request: HttpRequest) -> HttpResponse:
    """Show a form for a bundle; once posted, import its run, or show why not: then
    nothing is changed.
    """
    _require_right_to_import(request)
    if request.method != "POST":
        return _import_form(request)
    file = request.FILES.get("file")
    if file is None or file.size is None:
        return _import_form(request, "Choose a file.", status=422)
    most = conf().max_upload_bytes
    if file.size > most:
        message = f"The file is larger than {most:,} bytes."
        return _import_form(request, message, status=413)

    try:
        run, is_new = bundle.load_or_find(file, by=request.user)  # type: ignore[arg-type]
    except REFUSALS as error:
        # Another run, or this one as it went on elsewhere, may be here already.
        existing = _existing_run(request, error)
        message = f"{error.message}."
        return _import_form(request, message, status=422, there=existing)
    text = "This bundle was imported before; here is its run."
    if is_new:
        text = "The run was imported."
    messages.success(request, text)
    return redirect("run", run.id)


def _require_right_to_import(request: HttpRequest) -> None:
    """Raise `PermissionDenied` for a person without the right. Posting without it
    leaves an audit line.
    """
    if permissions.may(request.user, "import_run"):
        return
    if request.method == "POST":
        audit_log.record("refused_import", actor=request.user, code="forbidden")
    needed = "Importing a run needs the right to import, which stewards have."
    raise PermissionDenied(f"{needed} {GIVEN_BY}")


def _existing_run(request: HttpRequest, error: CountersignError) -> Run | None:
    """Return the run that prevents the import, if this person may see it."""
    if "run" not in error.facts:
        return None
    try:
        return permissions.visible_run(request.user, str(error.facts["run"]))
    except UnknownThing:
        return None


def _import_form(
    request: HttpRequest,
    message: str = "",
    *,
    status: int = 200,
    there: Run | None = None,
) -> HttpResponse:
    context = {"message": message, "there": there}
    return render(
        request, "orchestrator/import.html", context, section="runs", status=status
    )
