"""Starting a run: a form from the graph's input schema, or the input as JSON. Both go the way that the API goes, and
what was typed in one is carried over to the other.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals import permissions
from approvals.forms import reading
from approvals.forms.controls import Control
from approvals.views.page import needs_role, render, single_fields
from checkpoints import timeline, uploads
from checkpoints.core.diff import ADDED, REMOVED, differences, written
from checkpoints.core.visible_json import json_text
from checkpoints.models import Run, Upload
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import (
    REFUSALS,
    UNREADABLE,
    CountersignError,
    Forbidden,
    InvalidValue,
    KeyConflict,
    MissingSecrets,
    PayloadTooLarge,
    WrongKey,
)
from orchestrator.engine.notes import checked_metadata
from orchestrator.runs import StartRequest
from orchestrator.runs.metadata import read_pairs
from orchestrator.runs.start_for_user import start_for
from orchestrator.templatetags.console import size
from orchestrator.views import start_views
from orchestrator.views.go_on.value_texts import ValueType, plain_text
from orchestrator.views.graphs import current, first_line

MOST_DIFFERENCES = 20
"""Places of two inputs that are shown."""


@dataclass(frozen=True, slots=True)
class InputDifference:
    """A place where the input of a run and the one that was typed differ; None where there is no value."""

    path: str
    before: str | None
    now: str | None


@dataclass(slots=True)
class StartForm:
    """The form as it is shown, with what was typed and what is wrong. `base` is the value over which its fields are
    drawn, as JSON; `stays`: another view was chosen, which would lose some of what was typed in this one.
    """

    root: Control
    key: str = ""
    mode: str = "form"
    base: str = "{}"
    stays: bool = False
    text: str = "{}"
    text_error: str = ""
    key_error: str = ""
    metadata: str = ""
    metadata_error: str = ""
    metadata_value: dict[str, Any] | None = None
    message: str = ""
    problems: list[tuple[str, str]] = field(default_factory=list)
    value: Any = None
    taken_by: Run | None = None
    differs: list[InputDifference] = field(default_factory=list)

    @property
    def views(self) -> dict[str, str]:
        return start_views.VIEWS

    @property
    def sound(self) -> bool:
        return not (self.problems or self.text_error or self.key_error or self.metadata_error or self.message)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
@needs_role
def start_page(request: HttpRequest, name: str) -> HttpResponse:
    """The form; posted, the run, or the form again with every error at its field."""
    compiled = current(name)
    form = StartForm(start_views.drawn_over(compiled.schemas["input"], ""))
    if request.method != "POST":
        return _shown(request, compiled, form)
    if not permissions.may(request.user, "start_run"):
        return _shown(request, compiled, form, status=403)
    _read(form, compiled, request)
    if request.POST.get("view") in start_views.VIEWS:
        _show_view(form, compiled, request)
        return _shown(request, compiled, form)
    if not form.sound:
        return _shown(request, compiled, form, status=422)
    try:
        with transaction.atomic():
            key, metadata = form.key or None, form.metadata_value
            run, new = start_for(StartRequest(compiled.name, form.value, key, by=request.user, metadata=metadata))
    except REFUSALS as error:
        return _shown(request, compiled, form, status=_refused(form, compiled, error))
    if not new:
        messages.info(request, "A run with this key and this input was there already. This is it.")
    return redirect("run", run.id)


def _shown(request: HttpRequest, compiled: Compiled, form: StartForm, *, status: int = 200) -> HttpResponse:
    gates = [node for node in compiled.nodes.values() if node.gated]
    context = {
        "compiled": compiled,
        "doc": first_line(compiled.graph.description),
        "form": form,
        "gates": gates,
        "may_start": permissions.may(request.user, "start_run"),
    }
    return render(request, "orchestrator/start.html", context, section="graphs", status=status)


def _show_view(form: StartForm, compiled: Compiled, request: HttpRequest) -> None:
    """Turn the form to the view that was chosen, with what was typed in the other; or leave it, where that is lost."""
    view = request.POST["view"]
    form.problems = []
    for control in form.root.walk():
        if control.error in reading.MISSING.values():
            control.error = ""
    if form.message or view == form.mode:
        return
    if view == "json":
        _show_json(form)
    else:
        _show_fields(form, compiled, request.user)


def _show_json(form: StartForm) -> None:
    if start_views.unreadable(form.root):
        form.stays = True
        return
    form.mode = "json"
    form.text = start_views.as_json(form.value)


def _show_fields(form: StartForm, compiled: Compiled, user: Any) -> None:
    if form.text_error:
        form.stays = True
        return

    def file(value: Any) -> Any:
        upload = _kept(str(value.get("file", "")), by=user)
        return uploads.ref_of(upload) if upload else None

    schema = compiled.schemas["input"]
    base = json_text(form.value)
    try:
        root = start_views.drawn_over(schema, base)
        lost = start_views.lost_in_form(schema, form.value, file=file)
    except ValueError as error:
        # Such as a number that is too large to be one.
        form.text_error = f"The form cannot show this: {error}."
        form.stays = True
        return
    if lost:
        form.text_error = f"The form cannot show {lost} as it is here."
        form.stays = True
        return
    form.mode = "form"
    form.base = base
    form.root = root


def _read(form: StartForm, compiled: Compiled, request: HttpRequest) -> None:
    form.key = request.POST.get("key", "").strip()
    try:
        form.root = start_views.drawn_over(compiled.schemas["input"], request.POST.get("base", ""))
        form.base = request.POST.get("base", "") or "{}"
    except ValueError:
        form.message = "What this page was drawn over cannot be read. Open it again."
    form.mode = "json" if request.POST.get("mode") == "json" else "form"
    form.text = request.POST.get("json", "")
    form.metadata = request.POST.get("metadata", "")
    _read_metadata(form)
    given, too_large = _uploads(form, request)
    posted: dict[str, Any] = {**request.POST.dict(), **given}
    value = reading.read_form(form.root, posted)
    for control in form.root.walk():
        # A file was chosen: that it is missing, as the form then reads, is not what is wrong.
        control.error = too_large.get(control.name, control.error)
    if form.mode == "json":
        _read_json(form)
        for control in form.root.walk():
            control.error = ""
        return
    form.value = value
    form.problems = [(control.label, control.error) for control in reading.errors(form.root)]


def _read_json(form: StartForm) -> None:
    try:
        form.value = reading.parse_json(form.root, form.text)
    except ValueError as error:
        form.text_error = str(error)
        return
    if not isinstance(form.value, dict):
        form.text_error = "An input is an object: it begins with { and ends with }."


def _read_metadata(form: StartForm) -> None:
    """Read one name and value from each line that has something."""
    try:
        form.metadata_value = checked_metadata(read_pairs(line for line in form.metadata.splitlines() if line.strip()))
    except InvalidValue as error:
        form.metadata_error = f"{error.message}."


def _uploads(form: StartForm, request: HttpRequest) -> tuple[dict[str, Any], dict[str, str]]:
    """The uploaded files as references, and what is wrong with those that cannot be kept, both by name of control; one
    that was kept from the last try counts where no new one was chosen.
    """
    found: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for control in form.root.walk():
        if control.kind != "file":
            continue
        given = request.FILES.get(control.name)
        if isinstance(given, UploadedFile):
            try:
                found[control.name] = uploads.save_upload(given, name=given.name or "file", by=request.user)
            except PayloadTooLarge as error:
                refused[control.name] = _too_large(given, error)
        elif kept := _kept(request.POST.get(f"{control.name}.kept", ""), by=request.user):
            found[control.name] = uploads.ref_of(kept)
    return found, refused


def _too_large(given: "UploadedFile[Any]", error: PayloadTooLarge) -> str:
    return f"{given.name} has {size(given.size)}; a file may have at most {size(error.facts['most'])}."


def _kept(ident: str, *, by: Any) -> Upload | None:
    try:
        return Upload.objects.filter(id=UUID(ident), by=by).first() if ident else None
    except ValueError:
        return None


def _refused(form: StartForm, compiled: Compiled, error: CountersignError) -> int:
    """Put a refusal where it belongs on the form; gives the status of the answer."""
    if isinstance(error, KeyConflict):
        _name_conflict(form, compiled, error)
        return 409
    if isinstance(error, Forbidden):
        form.message = "You may not start runs."
        return 403
    if isinstance(error, WrongKey | MissingSecrets):
        form.message = error.message
        return 409
    if isinstance(error, InvalidValue) and error.facts.get("path") == "key":
        form.key_error = error.message
    elif form.mode == "json":
        form.text_error = error.message
    else:
        _place(form, error)
    return 422


def _name_conflict(form: StartForm, compiled: Compiled, error: KeyConflict) -> None:
    """Say which run has the key and what differs from it, where the person may see it: the error names no other."""
    cure = "Choose another key, or start it exactly as before."
    form.key_error = f"{form.key} already ran with another input. {cure}"
    run = Run.objects.filter(id=str(error.facts["run"])).first() if "run" in error.facts else None
    if run is None:
        return
    form.taken_by = run
    if run.graph != compiled.name:
        form.key_error = f"{form.key} is the key of a run of {run.graph}. Choose another key."
        return
    with suppress(*UNREADABLE):
        form.differs = _differences(timeline.input_of(run), compiled.stage_input(form.value), compiled)


def _differences(before: Any, now: Any, compiled: Compiled) -> list[InputDifference]:
    schema = compiled.schemas["input"]
    kind = ValueType(schema, schema.get("$defs", {}))
    return [
        InputDifference(
            written(place.path),
            None if place.kind == ADDED else plain_text(place.before, kind.at(place.path)),
            None if place.kind == REMOVED else plain_text(place.after, kind.at(place.path)),
        )
        for place in islice(differences(before, now), MOST_DIFFERENCES)
    ]


def _place(form: StartForm, error: CountersignError) -> None:
    found = error.facts.get("errors") or [{"path": str(error.facts.get("path", "")), "reason": error.message}]
    for one in found:
        if not reading.place(form.root, one["path"], one["reason"]):
            form.message = error.message
    form.problems = [(control.label, control.error) for control in reading.errors(form.root)]
