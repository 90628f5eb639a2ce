"""One value of the state at a checkpoint: as text that a page loads when it is opened,
and as a file.
"""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from approvals.permissions import visible_checkpoint
from approvals.views.page import opens_payloads
from checkpoints import timeline
from checkpoints.core.state_paths import ABSENT, parsed_path, value_in
from checkpoints.core.visible_json import escaped, indented
from checkpoints.models import Checkpoint
from orchestrator.engine.errors import InvalidValue, UnknownThing
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json

FILE = "file"


@login_required
@require_safe
@opens_payloads
def state_value(request: HttpRequest, checkpoint: str) -> HttpResponse:
    """Return the value at `path` in the state at a checkpoint: indented JSON as text, or
    with `as=file` its canonical bytes as a download. 404 if there is none.
    """
    point = _visible(request, checkpoint)
    path = request.GET.get("path", "")
    value = _value_at(point, path)
    if request.GET.get("as") == FILE:
        return _download(value, name=f"{point.run.key} {point.seq} {path}.json")
    # Characters that nobody would see are written by number, as everywhere.
    text = escaped(indented(value))
    return HttpResponse(
        text,
        content_type="text/plain; charset=utf-8",
        headers={"Cache-Control": "private, no-store"},
    )


def _visible(request: HttpRequest, checkpoint: str) -> Checkpoint:
    """Return a checkpoint whose run this person may see; 404 for every other."""
    try:
        return visible_checkpoint(request.user, checkpoint)
    except UnknownThing as error:
        raise Http404(error.message) from error


def _value_at(point: Checkpoint, path: str) -> Json:
    try:
        where = parsed_path(path)
    except InvalidValue as error:
        raise Http404(error.message) from error
    value = value_in(timeline.state_at(point.id), where)
    if value is ABSENT:
        raise Http404(f"there is no {path} at checkpoint {point.seq}")
    return value


def _download(value: Json, *, name: str) -> HttpResponse:
    return HttpResponse(
        canonical.encode(value),
        content_type="application/json",
        headers={
            "Content-Disposition": content_disposition_header(True, name) or "",
            "Cache-Control": "private, no-store",
        },
    )
