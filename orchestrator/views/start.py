"""Starting a run: a form from the graph's input schema, or the input as JSON. Both
start the run as the API does, and what was typed in one is carried over to the other.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals import permissions
from approvals.display.drawn_change import (
    NOT_THERE,
    ONE_LINE,
    draw_change,
    sides_of,
)
from approvals.display.leaf import Leaf
from approvals.display.value_types import ValueType
from approvals.forms import reading
from approvals.forms.controls import Control
from approvals.views.page import needs_role, render, single_fields
from checkpoints import timeline, uploads
from checkpoints.core.diff import differences, written
from checkpoints.core.visible_json import json_text
from checkpoints.models import Run, Upload
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
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.notes import checked_metadata
from orchestrator.runs import StartRequest
from orchestrator.runs.metadata import read_pairs
from orchestrator.runs.start_for_user import require, start_for
from orchestrator.templatetags.console import size
from orchestrator.views import start_views
from orchestrator.views.graphs import current, first_line
from orchestrator.views.made_once import (
    id_to_make,
    led_to_token,
    new_token,
    token_of,
    token_to_show,
)

MOST_DIFFERENCES = 20
"""The most places of two inputs that are shown."""


@dataclass(frozen=True, slots=True)
class InputDifference:
    """A place where the input of a run and the one that was typed differ."""

    path: str
    before: Leaf
    now: Leaf


@dataclass(slots=True)
class StartForm:
    """The form as it is shown, with what was typed and what is wrong. `base` is the
    value over which its fields are drawn, as JSON; `stays`: another view was chosen,
    which would lose some of what was typed in this one.
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
        """Return whether nothing is wrong, so that a run can be started."""
        return not (
            self.problems
            or self.text_error
            or self.key_error
            or self.metadata_error
            or self.message
        )

    def read_problems(self) -> None:
        """List the errors of the controls, each with its label."""
        self.problems = []
        for control in reading.errors(self.root):
            self.problems.append((control.label, control.error))


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
@needs_role
def start_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show the form; posted, start the run, or show the form again with every error at
    its field.
    """
    compiled = current(name)
    may_start = permissions.may(request.user, "start_run")
    if request.method != "POST" and may_start:
        # The page needs a valid token, so that posting it twice starts one run.
        answer = led_to_token(request)
        if answer is not None:
            return answer

    form = StartForm(start_views.drawn_over(compiled.schemas["input"], ""))
    if request.method != "POST":
        return _shown(request, compiled, form)
    try:
        require(request.user, "start_run")
    except Forbidden:
        return _shown(request, compiled, form, status=403)
    _read(form, compiled, request)
    if request.POST.get("view") in start_views.VIEWS:
        _show_view(form, compiled, request)
        return _shown(request, compiled, form)
    if not form.sound:
        return _shown(request, compiled, form, status=422)
    return _start(request, compiled, form)


def _start(request: HttpRequest, compiled: Compiled, form: StartForm) -> HttpResponse:
    """Start the run and lead to it, or show why it was refused."""
    # In no transaction here: it would roll back the audit line of a refusal.
    try:
        run, is_new = start_for(_start_request(request, compiled, form))
    except REFUSALS as error:
        status = _refused(form, compiled, error)
        return _shown(request, compiled, form, status=status)
    if not is_new:
        text = "This run was started already."
        if form.key:
            text = "A run with this key and this input already exists."
        messages.info(request, f"{text} This is it.")
    return redirect("run", run.id)


def _start_request(
    request: HttpRequest,
    compiled: Compiled,
    form: StartForm,
) -> StartRequest:
    """Return the run to start: under its key; without one under the id of the page, so
    that a second press starts no second run. Raises `InvalidValue`.
    """
    start = StartRequest(
        compiled.name,
        form.value,
        form.key or None,
        by=request.user,
        metadata=form.metadata_value,
    )
    if token_of(request) and not form.key:
        return replace(start, id=id_to_make(request))
    return start


def _shown(
    request: HttpRequest,
    compiled: Compiled,
    form: StartForm,
    *,
    status: int = 200,
) -> HttpResponse:
    # Once this page has started a run, anything typed since is for another one, so the
    # button needs a new token.
    has_started_a_run = form.taken_by is not None and not form.key
    token = new_token(request) if has_started_a_run else token_to_show(request)
    context = {
        "compiled": compiled,
        "doc": first_line(compiled.graph.description),
        "form": form,
        "gates": [node for node in compiled.nodes.values() if node.gated],
        "may_start": permissions.may(request.user, "start_run"),
        "token": token,
    }
    return render(
        request, "orchestrator/start.html", context, section="graphs", status=status
    )


def _show_view(form: StartForm, compiled: Compiled, request: HttpRequest) -> None:
    """Switch the form to the chosen view, with what was typed in the other; or leave it
    in this one if some of that would be lost.
    """
    view = request.POST["view"]
    form.problems = []
    # A field that is still empty is no error of a person who only changes the view.
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

    def own_file(value: Any) -> Any:
        return _kept_reference(str(value.get("file", "")), by=user)

    schema = compiled.schemas["input"]
    base = json_text(form.value)
    try:
        root = start_views.drawn_over(schema, base)
        lost = start_views.lost_in_form(schema, form.value, file=own_file)
    except ValueError as error:
        # For example a number that is too large for a field.
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
    """Read everything that was posted into the form, with what is wrong."""
    form.key = request.POST.get("key", "").strip()
    form.mode = "json" if request.POST.get("mode") == "json" else "form"
    form.text = request.POST.get("json", "")
    form.metadata = request.POST.get("metadata", "")
    _read_base(form, compiled, request)
    _read_metadata(form)

    # The fields are read in both views: the files among them are carried over.
    uploaded, too_large = _uploads(form, request)
    posted: dict[str, Any] = {**request.POST.dict(), **uploaded}
    value = reading.read_form(form.root, posted)
    if form.mode == "json":
        _read_json(form)
        # The fields are not shown in this view, so nobody could correct them.
        for control in form.root.walk():
            control.error = ""
        return
    for control in form.root.walk():
        # A file was chosen, so its error is not that it is missing, as the form reads
        # without it.
        control.error = too_large.get(control.name, control.error)
    form.value = value
    form.read_problems()


def _read_base(form: StartForm, compiled: Compiled, request: HttpRequest) -> None:
    """Draw the fields over the value over which the posted page was drawn."""
    base = request.POST.get("base", "")
    try:
        form.root = start_views.drawn_over(compiled.schemas["input"], base)
        form.base = base or "{}"
    except ValueError:
        form.message = "What this page was drawn over cannot be read. Open it again."


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
    lines = [line for line in form.metadata.splitlines() if line.strip()]
    try:
        form.metadata_value = checked_metadata(read_pairs(lines))
    except InvalidValue as error:
        form.metadata_error = f"{error.message}."


def _uploads(
    form: StartForm, request: HttpRequest
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return references to the uploaded files, and the errors of those that are too
    large, both by the name of their control. A file of the last try counts if no new
    one was chosen.
    """
    references: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for control in form.root.walk():
        if control.kind != "file":
            continue
        file = request.FILES.get(control.name)
        if isinstance(file, UploadedFile):
            # Saved even if another field is wrong, so that it is not uploaded again.
            try:
                references[control.name] = uploads.save_upload(
                    file, name=file.name or "file", by=request.user
                )
            except PayloadTooLarge as error:
                errors[control.name] = _too_large(file, error)
            continue
        earlier = request.POST.get(f"{control.name}.kept", "")
        reference = _kept_reference(earlier, by=request.user)
        if reference is not None:
            references[control.name] = reference
    return references, errors


def _too_large(file: "UploadedFile[Any]", error: PayloadTooLarge) -> str:
    most = size(error.facts["most"])
    return f"{file.name} has {size(file.size)}; a file may have at most {most}."


def _kept_reference(ident: str, *, by: Any) -> Any:
    """Return a reference to a file that this person uploaded before; else None."""
    if not ident:
        return None
    try:
        upload_id = UUID(ident)
    except ValueError:
        return None
    # Another person's file is not found.
    upload = Upload.objects.filter(id=upload_id, by=by).first()
    if upload is None:
        return None
    return uploads.ref_of(upload)


def _refused(form: StartForm, compiled: Compiled, error: CountersignError) -> int:
    """Put a refusal where it belongs on the form; return the status of the answer."""
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
    """Name the run that has the key and the differences from it, if the person may see
    it: the error names no other.
    """
    cure = "Choose another key, or start it exactly as before."
    form.key_error = f"{form.key} already ran with another input. {cure}"
    run: Run | None = None
    if "run" in error.facts:
        run = Run.objects.filter(id=str(error.facts["run"])).first()
    if run is None:
        return

    form.taken_by = run
    if form.key and run.graph != compiled.name:
        form.key_error = (
            f"{form.key} is the key of a run of {run.graph}. Choose another key."
        )
        return
    if not form.key:
        form.key_error = ""
        form.message = (
            "This page started a run already, with another input."
            " Press Start run again to start one more."
        )
    # The refusal stands without them, if the input of the other run cannot be read.
    with suppress(*UNREADABLE):
        before = timeline.input_of(run)
        now = compiled.stage_input(form.value)
        form.differs = _differences(before, now, compiled)


def _differences(before: Any, now: Any, compiled: Compiled) -> list[InputDifference]:
    """Return the first places where two inputs differ, as a person reads them."""
    input_type = ValueType.of_schema(compiled.schemas["input"])
    shown: list[InputDifference] = []
    for place in islice(differences(before, now), MOST_DIFFERENCES):
        old, new = sides_of(place.kind, place.before, place.after)
        change = draw_change(
            old,
            new,
            declared=input_type.at(place.path),
            longest=ONE_LINE,
            missing=NOT_THERE,
        )
        path = written(place.path)
        shown.append(InputDifference(path, change.before, change.after))
    return shown


def _place(form: StartForm, error: CountersignError) -> None:
    """Put each problem of a refused input at its field; without one, on top."""
    problems = error.facts.get("errors")
    if not problems:
        path = str(error.facts.get("path", ""))
        problems = [{"path": path, "reason": error.message}]
    for problem in problems:
        is_placed = reading.place(form.root, problem["path"], problem["reason"])
        if not is_placed:
            form.message = error.message
    form.read_problems()
