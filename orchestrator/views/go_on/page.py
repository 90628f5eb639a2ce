"""The page for going on from a checkpoint: three ways, one plan. It can be checked any
number of times, and is carried out once.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
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
from checkpoints.models import Checkpoint, Run
from checkpoints.models.run_line import Travel
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator import runs
from orchestrator.engine.errors import (
    REFUSALS,
    CountersignError,
    Erased,
    IncompatibleGraph,
    InvalidValue,
    PayloadTooLarge,
    TamperedRow,
    UnknownThing,
    WrongKey,
    WrongStatus,
)
from orchestrator.travel.departure import Departure, departure_at
from orchestrator.views.go_on.draft import GoOnDraft, draft_of
from orchestrator.views.go_on.other_starts import (
    OtherStart,
    broken_start,
    gone_start,
    is_mismatch,
    mismatched_start,
)
from orchestrator.views.go_on.patch_form import Problem
from orchestrator.views.made_once import (
    at_address,
    id_to_make,
    led_to_token,
    token_to_show,
)

CANNOT = "You cannot go on from this checkpoint here"
REFUSED_DRAFTS = (
    Erased,
    UnknownThing,
    IncompatibleGraph,
    WrongStatus,
    InvalidValue,
    PayloadTooLarge,
)
"""Refusals of a draft at a checkpoint that can be opened."""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
@opens_payloads
def go_on_page(request: HttpRequest, checkpoint: str) -> HttpResponse:
    """Show the page; check a posted draft, or carry it out.

    If nothing can go on from this checkpoint, show what can be done instead.
    """
    broken: CountersignError | None = None
    try:
        row = timeline.open_checkpoint(_id_of_checkpoint(checkpoint))
    except UnknownThing as error:
        return _removed_page(request, error)
    except (TamperedRow, WrongKey) as error:
        # Read without proof, for the page that names the damage and other places to
        # begin.
        row = timeline.get_checkpoint(checkpoint)
        broken = error

    _require_visible(request.user, row)
    may_steer = may_post(request, row.run, "steer_run", refusal="refused_travel")
    if broken is not None:
        return _instead(request, broken_start(row, broken))

    if request.method != "POST" and may_steer:
        # The page needs a valid token, so that posting it twice makes one run.
        answer = led_to_token(request, line=row.run.line)
        if answer is not None:
            return answer

    posted = _posted_fields(request)
    try:
        draft = _draft(request, row, posted)
    except REFUSED_DRAFTS as error:
        return _refused_page(request, row, error)
    if request.method != "POST" or not may_steer:
        return _opened(request, draft, may_steer)
    return _answer_post(request, draft, posted)


def _posted_fields(request: HttpRequest) -> dict[str, str]:
    return request.POST.dict() if request.method == "POST" else {}


def _answer_post(
    request: HttpRequest, draft: GoOnDraft, posted: Mapping[str, str]
) -> HttpResponse:
    """Carry a posted draft out, if its button does so and nothing is wrong with it;
    otherwise show it, checked.
    """
    is_sent = _does(posted, draft)
    if is_sent and draft.sound:
        return _act(request, draft, posted)
    return _shown(request, draft, True, status=422 if is_sent else 200)


def _refused_page(
    request: HttpRequest, row: Checkpoint, error: CountersignError
) -> HttpResponse:
    if isinstance(error, Erased):
        return error_page(
            request, "Nothing can begin here", f"{error.message}.", status=410
        )
    if isinstance(error, UnknownThing) or is_mismatch(error, row):
        return _instead(request, mismatched_start(row, error))
    text = f"{error.message}. Nothing was changed."
    return error_page(request, CANNOT, text, status=409)


def _require_visible(user: Any, row: Checkpoint) -> None:
    may_see = permissions.may(user, "view_run") or permissions.may_see_run(
        user, row.run
    )
    if not may_see:
        raise Http404(f"there is no checkpoint {row.id}")


def _id_of_checkpoint(id_or_alias: str) -> UUID:
    """Return the id that an address names. An id costs no query.

    Raises `UnknownThing`.
    """
    try:
        return UUID(id_or_alias)
    except ValueError:
        return timeline.get_checkpoint(id_or_alias).id


def _removed_page(request: HttpRequest, error: UnknownThing) -> HttpResponse:
    """Show what can be done instead if the checkpoint was removed after the page was
    opened; its form and address carry the run and the number.
    """
    query = request.POST if request.method == "POST" else request.GET
    ref = query.get("run", "")
    seq = read_number(query.get("seq", ""))
    if not ref or seq is None:
        raise Http404(error.message) from error

    run = visible_run(request.user, ref)
    # Called for its audit line alone: nothing can be done here, even with the right.
    may_post(request, run, "steer_run", refusal="refused_travel")
    # A number that the run has not reached, or whose row is here, was not removed.
    if seq > run.head_seq or _is_kept(run, seq):
        raise Http404(error.message) from error
    return _instead(request, gone_start(run, seq), status=410)


def _is_kept(run: Run, seq: int) -> bool:
    return Checkpoint.objects.filter(run=run.id, seq=seq, kept=True).exists()


def _instead(
    request: HttpRequest, other_start: OtherStart, *, status: int = 409
) -> HttpResponse:
    how = request.POST.get("how") or request.GET.get("how", "")
    if how not in Travel.values:
        how = str(Travel.FORK)
    context = {
        "page": other_start,
        "cannot": CANNOT,
        "how": how,
    }
    return render(
        request,
        "orchestrator/go_on_instead.html",
        context,
        section="runs",
        status=status,
    )


def _draft(request: HttpRequest, row: Checkpoint, posted: dict[str, str]) -> GoOnDraft:
    point = departure_at(row)
    how = posted.get("how") or request.GET.get("how", "")
    typed_at = posted.get("moved", "")
    if not typed_at or typed_at == str(row.id):
        return draft_of(point, request.user, posted, how=how)

    moved_from = _departure_typed_at(typed_at, row)
    if moved_from is not None:
        return draft_of(point, request.user, posted, how=how, moved_from=moved_from)
    draft = draft_of(point, request.user, {}, how=how)
    text = "The checkpoint at which it was typed can no longer be opened."
    draft.fallen.append(Problem("patch", text))
    return draft


def _departure_typed_at(id: str, row: Checkpoint) -> Departure | None:
    """Return the point of the same run at which the draft was typed, or None if it
    cannot be opened.
    """
    try:
        typed_at = timeline.open_checkpoint(UUID(id))
        if typed_at.run_id != row.run_id:
            return None
        return departure_at(typed_at)
    except (ValueError, CountersignError):
        return None


def _does(posted: Mapping[str, str], draft: GoOnDraft) -> bool:
    """Return whether the pressed button carries the draft out.

    It does not where its text was about another way than the one chosen.
    """
    if posted.get("shown", draft.how) != draft.how:
        return False
    if posted.get("do") == "paused":
        return draft.how == Travel.FORK
    return posted.get("do") == "go"


def _opened(request: HttpRequest, draft: GoOnDraft, may_steer: bool) -> HttpResponse:
    """Show the page as it is opened, at the address that a second press of its button
    needs; or refuse a post.
    """
    line = str(_line(request, draft))
    if may_steer and request.GET.get("line") != line:
        return at_address(request, line=line)
    status = 403 if request.method == "POST" else 200
    return _shown(request, draft, may_steer, status=status)


def _shown(
    request: HttpRequest, draft: GoOnDraft, may_steer: bool, *, status: int = 200
) -> HttpResponse:
    token = token_to_show(request)
    line = _line(request, draft)
    context = {
        "page": draft,
        "may": may_steer,
        "token": token,
        "line": line,
        # The addresses to which the form posts hold both as well: a script may make
        # one of them the page's own.
        "own": urlencode({"token": token, "line": line}),
        "requests": _requests_to_withdraw(draft),
    }
    return render(
        request, "orchestrator/go_on.html", context, section="runs", status=status
    )


def _line(request: HttpRequest, draft: GoOnDraft) -> int:
    """Return the line on which the page was opened if this page already rewound the
    run, otherwise the run's current line.
    """
    opened_on = read_number(request.GET.get("line", ""))
    if opened_on is not None and draft.rewound_before(request.user, opened_on):
        return opened_on
    return draft.run.line


def _requests_to_withdraw(draft: GoOnDraft) -> list[dict[str, Any]]:
    """Return the run's open requests, which only a rewind withdraws."""
    if draft.how != Travel.REWIND:
        return []
    return _open_requests(draft.run)


def _open_requests(run: Run) -> list[dict[str, Any]]:
    rows = ApprovalRequest.objects.filter(
        run=run.id, line=run.line, status=RequestStatus.OPEN
    ).order_by("id")
    requests: list[dict[str, Any]] = []
    for row in rows:
        # The run is loaded already: reading the title needs it.
        row.run = run
        title = str(read_or_reason(row, "title") or row.node)
        requests.append({"id": str(row.id), "title": title, "writes": row.writes})
    return requests


def _act(
    request: HttpRequest, draft: GoOnDraft, posted: Mapping[str, str]
) -> HttpResponse:
    """Carry the draft out and lead to the run; or ask for a confirmation, or show why
    it was refused.
    """
    if draft.how == Travel.REWIND:
        # Before anything is confirmed, because a page that was posted twice does
        # nothing more.
        if draft.rewound_before(request.user, _seen_line(posted)):
            text = "This page has already rewound the run. It was not rewound again."
            messages.info(request, text)
            return redirect("run", draft.run.id)
        requests = _open_requests(draft.run)
        if not _is_confirmed(draft, posted, requests):
            return _confirmation_page(request, draft, requests)
    try:
        run = _carry_out(request, draft, posted)
    except REFUSALS as error:
        draft.refuse(_as_error(error))
        return _shown(request, draft, True, status=409)
    return redirect("run", run.id)


def _is_confirmed(
    draft: GoOnDraft, posted: Mapping[str, str], requests: list[dict[str, Any]]
) -> bool:
    """Return whether a rewind needs no confirmation, or was confirmed by a person who
    saw every request that it withdraws.
    """
    if not requests and not draft.allowed:
        return True
    seen = posted.get("seen", "").split()
    unseen = {request["id"] for request in requests} - {*seen}
    return posted.get("sure") == "yes" and not unseen


def _confirmation_page(
    request: HttpRequest, draft: GoOnDraft, requests: list[dict[str, Any]]
) -> HttpResponse:
    # The earlier confirmation may have been about other requests.
    fields = [pair for pair in carried(request) if pair[0] not in ("sure", "seen")]
    context = {"page": draft, "requests": requests, "carried": fields}
    return render(request, "orchestrator/go_on_sure.html", context, section="runs")


def _seen_line(posted: Mapping[str, str]) -> int:
    # None would mean any line; the number of no line makes the verb refuse.
    return read_number(posted.get("line", "")) or -1


def _as_error(error: Any) -> CountersignError:
    refusal: CountersignError = error
    return refusal


def _carry_out(
    request: HttpRequest, draft: GoOnDraft, posted: Mapping[str, str]
) -> Run:
    by: Any = request.user
    arguments: dict[str, Any] = {
        "patch": draft.patch,
        "answers": draft.answers.by_node or None,
        "allow_effects": draft.allowed,
        "reason": draft.reason,
        "by": by,
    }
    if draft.how != Travel.REWIND:
        return _make_run(request, draft, arguments)
    return runs.rewind(
        draft.run.id,
        draft.point.checkpoint.id,
        **arguments,
        seen_line=_seen_line(posted),
    )


def _make_run(request: HttpRequest, draft: GoOnDraft, arguments: dict[str, Any]) -> Run:
    """Return the run that this page makes: the same one, however often it is posted."""
    id = id_to_make(request)
    earlier = Run.objects.filter(id=id).first()
    if earlier is not None:
        text = "This run already exists. What you changed on the page since then was not used."
        messages.info(request, text)
        return earlier
    try:
        return _fork_or_replay(request, draft, arguments, id)
    except IntegrityError:
        # The same page was posted twice at once.
        earlier = Run.objects.filter(id=id).first()
        if earlier is None:
            raise
        return earlier


def _fork_or_replay(
    request: HttpRequest, draft: GoOnDraft, arguments: dict[str, Any], id: UUID
) -> Run:
    if draft.how == Travel.REPLAY:
        return runs.replay(draft.at.id, reason=draft.reason, id=id, by=arguments["by"])
    return runs.fork(
        draft.at.id,
        **arguments,
        key=draft.key or None,
        start=request.POST.get("do") == "go",
        id=id,
    )
