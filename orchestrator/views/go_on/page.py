"""Going on from a checkpoint: three ways, one plan. Checked as often as somebody likes; done once."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core import signing
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals import permissions
from approvals.models import ApprovalRequest, RequestStatus
from approvals.views.page import (
    carried,
    error_page,
    may_post,
    opens_payloads,
    read_number,
    render,
    single_fields,
    visible_run,
)
from checkpoints import timeline
from checkpoints.core.ids import uuid7
from checkpoints.models import Checkpoint, Run
from checkpoints.models.run_line import Travel
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator import runs
from orchestrator.engine.errors import (
    REFUSALS,
    CountersignError,
    IncompatibleGraph,
    InvalidValue,
    PayloadTooLarge,
    TamperedRow,
    UnknownThing,
    WrongKey,
    WrongStatus,
)
from orchestrator.runs.departure import departure_at
from orchestrator.views.go_on.draft import GoOnDraft, draft_of
from orchestrator.views.go_on.other_starts import OtherStart, broken_start, gone_start, is_mismatch, mismatched_start
from orchestrator.views.go_on.patch_form import Problem

CANNOT = "This checkpoint cannot be gone on from here"
SALT = "countersign.go_on"
"""What the token of a page is signed for. It names the run that a fork becomes, so that one page makes one fork."""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
@opens_payloads
def go_on_page(request: HttpRequest, checkpoint: str) -> HttpResponse:
    """The page; posted, it is checked, or done. Where nothing can go on from there, what can be done instead."""
    broken: CountersignError | None = None
    try:
        row = timeline.open_checkpoint(_id_of_checkpoint(checkpoint))
    except UnknownThing as error:
        return _gone(request, error)
    except (TamperedRow, WrongKey) as error:
        row, broken = timeline.get_checkpoint(checkpoint), error
    _require_visible(request.user, row)
    may = may_post(request, row.run, "steer_run", refusal="refused_travel")
    if broken is not None:
        return _instead(request, broken_start(row, broken))
    posted = request.POST.dict() if request.method == "POST" else {}
    try:
        draft = _draft(request, row, posted)
    except UnknownThing as error:
        return _instead(request, mismatched_start(row, error))
    except (IncompatibleGraph, WrongStatus, InvalidValue, PayloadTooLarge) as error:
        if is_mismatch(error, row):
            return _instead(request, mismatched_start(row, error))
        text = f"{error.message}. Nothing was changed."
        return error_page(request, CANNOT, text, status=409)
    if request.method != "POST" or not may:
        return _shown(request, draft, may, status=403 if request.method == "POST" else 200)
    asked = _does(posted, draft)
    if not asked or not draft.sound:
        return _shown(request, draft, may, status=422 if asked else 200)
    return _act(request, draft, posted)


def _require_visible(user: Any, row: Checkpoint) -> None:
    if not (permissions.may(user, "view_run") or permissions.may_see_run(user, row.run)):
        raise Http404(f"there is no checkpoint {row.id}")


def _id_of_checkpoint(id_or_alias: str) -> UUID:
    """The id that an address names. An id costs no query. Raises `UnknownThing`."""
    try:
        return UUID(id_or_alias)
    except ValueError:
        return timeline.get_checkpoint(id_or_alias).id


def _gone(request: HttpRequest, error: UnknownThing) -> HttpResponse:
    """Where the checkpoint was removed since the page was opened, which said its run and number."""
    given = request.POST if request.method == "POST" else request.GET
    ref, seq = given.get("run", ""), read_number(given.get("seq", ""))
    if not ref or seq is None:
        raise Http404(error.message) from error
    run = visible_run(request.user, ref)
    may_post(request, run, "steer_run", refusal="refused_travel")
    if seq > run.head_seq or Checkpoint.objects.filter(run=run.id, seq=seq, kept=True).exists():
        raise Http404(error.message) from error
    return _instead(request, gone_start(run, seq), status=410)


def _instead(request: HttpRequest, found: OtherStart, *, status: int = 409) -> HttpResponse:
    how = request.POST.get("how") or request.GET.get("how", "")
    context = {"page": found, "cannot": CANNOT, "how": how if how in Travel.values else str(Travel.FORK)}
    return render(request, "orchestrator/go_on_instead.html", context, section="runs", status=status)


def _draft(request: HttpRequest, row: Checkpoint, posted: dict[str, str]) -> GoOnDraft:
    point, how = departure_at(row), posted.get("how") or request.GET.get("how", "")
    old = posted.get("moved", "")
    if not old or old == str(row.id):
        return draft_of(point, request.user, posted, how=how)
    try:
        typed_at = timeline.open_checkpoint(UUID(old))
        moved_from = departure_at(typed_at) if typed_at.run_id == row.run_id else None
    except (ValueError, CountersignError):
        moved_from = None
    if moved_from is None:
        draft = draft_of(point, request.user, {}, how=how)
        draft.fallen.append(Problem("patch", "The checkpoint at which it was typed cannot be opened any more."))
        return draft
    return draft_of(point, request.user, posted, how=how, moved_from=moved_from)


def _does(posted: Mapping[str, str], draft: GoOnDraft) -> bool:
    """Whether the button that was pressed does something; not where it spoke of another way than the one chosen."""
    if posted.get("shown", draft.how) != draft.how:
        return False
    return posted.get("do") == "go" or (posted.get("do") == "paused" and draft.how == Travel.FORK)


def _shown(request: HttpRequest, draft: GoOnDraft, may: bool, *, status: int = 200) -> HttpResponse:
    token = request.POST.get("token") or signing.dumps([str(uuid7()), request.user.pk], salt=SALT)
    context = {"page": draft, "may": may, "token": token, "requests": []}
    if draft.how == Travel.REWIND:
        context["requests"] = _open_requests(draft.run)
    return render(request, "orchestrator/go_on.html", context, section="runs", status=status)


def _open_requests(run: Run) -> list[dict[str, Any]]:
    """What the run asks now, which a rewind withdraws."""
    found = ApprovalRequest.objects.filter(run=run.id, line=run.line, status=RequestStatus.OPEN).order_by("id")
    rows = list(found)
    for one in rows:
        one.run = run
    return [
        {"id": str(one.id), "title": str(read_or_reason(one, "title") or one.node), "writes": one.writes}
        for one in rows
    ]


def _act(request: HttpRequest, draft: GoOnDraft, posted: Mapping[str, str]) -> HttpResponse:
    if draft.how == Travel.REWIND:
        requests = _open_requests(draft.run)
        unseen = {one["id"] for one in requests} - {*posted.get("seen", "").split()}
        if (requests or draft.allowed) and (posted.get("sure") != "yes" or unseen):
            kept = [(name, value) for name, value in carried(request) if name not in ("sure", "seen")]
            context = {"page": draft, "requests": requests, "carried": kept}
            return render(request, "orchestrator/go_on_sure.html", context, section="runs")
    try:
        run = _done(request, draft, posted)
    except REFUSALS as error:
        draft.refuse(_as_error(error))
        return _shown(request, draft, True, status=409)
    return redirect("run", run.id)


def _as_error(error: Any) -> CountersignError:
    found: CountersignError = error
    return found


def _done(request: HttpRequest, draft: GoOnDraft, posted: Mapping[str, str]) -> Run:
    by: Any = request.user
    given: dict[str, Any] = {
        "patch": draft.patch,
        "answers": draft.answers.given or None,
        "allow_effects": draft.allowed,
        "reason": draft.reason,
        "by": by,
    }
    if draft.how == Travel.REWIND:
        line = read_number(posted.get("line", "")) or -1
        if draft.rewound_before(by, line):
            return draft.run
        return runs.rewind(draft.run.id, draft.point.checkpoint.id, **given, seen_line=line)
    return _made(request, draft, given)


def _made(request: HttpRequest, draft: GoOnDraft, given: dict[str, Any]) -> Run:
    """The run that this page makes: the same one, however often the page is posted."""
    id, at, by = _id_of(request), draft.at.id, given["by"]
    if (made := Run.objects.filter(id=id).first()) is not None:
        messages.info(request, "This run was made already, once. What you changed on the page since was not used.")
        return made
    try:
        if draft.how == Travel.REPLAY:
            return runs.replay(at, reason=draft.reason, id=id, by=by)
        return runs.fork(at, **given, key=draft.key or None, start=request.POST.get("do") == "go", id=id)
    except IntegrityError:
        if (made := Run.objects.filter(id=id).first()) is None:
            raise
        return made  # the same page was posted twice at once


def _id_of(request: HttpRequest) -> UUID:
    try:
        text, person = signing.loads(request.POST.get("token", ""), salt=SALT)
    except (signing.BadSignature, ValueError) as error:
        raise InvalidValue("this page is not from here; open it again", path="token") from error
    if person != request.user.pk:
        raise InvalidValue("this page was opened by somebody else; open it again", path="token")
    return UUID(text)
