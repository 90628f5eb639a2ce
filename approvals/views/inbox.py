"""The inbox: what waits for me, what I signed that is not final, what was decided. Nothing is approved from here."""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Prefetch, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from approvals import inbox
from approvals.models import ApprovalRequest, Decision, RequestStatus
from approvals.views.page import render
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_columns import read_or_reason
from checkpoints.sealing.sealed_rows import protection_of

PAGE = 50
FOLDERS = {"mine": "Waiting for you", "signed": "Signed, not final", "decided": "Decided"}
_SIGNED = ("request", "by", "by_name", "by__first_name", "by__last_name", "by__username")


@dataclass(frozen=True, slots=True)
class Row:
    """One request as a row."""

    run: Any
    title: str
    asked_of: str
    graph: str
    writes: int
    quorum: int
    signers: list[str]
    opened_at: Any
    deadline: Any
    open: bool
    state: str
    why_not: str
    fault: SealFault | None

    @property
    def slots(self) -> range:
        return range(max(0, self.quorum - len(self.signers)))


@login_required
@require_safe
def inbox_page(request: HttpRequest) -> HttpResponse:
    """One folder, by pages of fifty."""
    folder = request.GET.get("folder", "mine")
    folder = folder if folder in FOLDERS else "mine"
    words = request.GET.get("q", "").strip()[:200]
    number = max(1, int(request.GET["page"])) if request.GET.get("page", "").isdecimal() else 1
    requests = _matching(_folder(request.user, folder), words)
    signed = Decision.objects.select_related("by").only(*_SIGNED).order_by("event_seq")
    requests = requests.prefetch_related("reviewers", Prefetch("decisions", signed, to_attr="signed"))
    found = list(requests[(number - 1) * PAGE : number * PAGE + 1])
    context = {
        "folder": folder,
        "label": FOLDERS[folder],
        "folders": _counts(request.user),
        "rows": [_row(one, request.user) for one in found[:PAGE]],
        "more": number + 1 if len(found) > PAGE else None,
        "q": words,
        "zone": timezone.get_current_timezone_name(),
        "empty_text": "Reviews asked of you or your groups appear here by themselves.",
    }
    return render(request, "approvals/inbox.html", context, section="reviews")


def _folder(user: Any, folder: str) -> "QuerySet[ApprovalRequest]":
    if folder == "mine":
        return inbox.waiting_for(user)
    is_open = Q(status=RequestStatus.OPEN)
    return inbox.signed_by(user).filter(is_open if folder == "signed" else ~is_open)


def _matching(requests: "QuerySet[ApprovalRequest]", words: str) -> "QuerySet[ApprovalRequest]":
    if not words:
        return requests
    here = Q(run__key__icontains=words) | Q(run__label__icontains=words)
    return requests.filter(here | Q(graph__icontains=words) | Q(node__icontains=words))


def _counts(user: Any) -> list[dict[str, Any]]:
    signed = _folder(user, "signed").order_by().count()
    counts = {"mine": inbox.waiting_for(user).order_by().count(), "signed": signed, "decided": None}
    return [{"name": name, "label": label, "count": counts[name]} for name, label in FOLDERS.items()]


def _row(request: ApprovalRequest, user: AbstractBaseUser | Any) -> Row:
    signers = {d.by_id: name_of(d.by) for d in request.signed if d.by_id}  # type: ignore[attr-defined]
    is_open = request.status == RequestStatus.OPEN
    began = user.pk in (request.run.started_by_id, request.run.on_behalf_of_id)
    own = is_open and request.policy.get("four_eyes") and began
    return Row(
        run=request.run,
        title=str(read_or_reason(request, "title") or request.node),
        asked_of=asked_of([r.principal for r in request.reviewers.all()], user),
        graph=request.graph,
        writes=request.writes,
        quorum=request.quorum,
        signers=list(signers.values()),
        opened_at=request.opened_at,
        deadline=request.deadline,
        open=is_open,
        state=request.outcome or str(request.get_status_display()),
        why_not="somebody else must sign" if own else "",
        fault=fault_of(request, protection_of(request.run)),
    )


def name_of(person: Any) -> str:
    """A person's name as on every page."""
    return str(person.get_full_name() or person.get_username())


def asked_of(principals: list[str], user: Any) -> str:
    """The reviewers in words: you, names of groups and people."""
    words = []
    for principal in principals:
        kind, _, name = principal.partition(":")
        mine = kind == "user" and name == user.get_username()
        words.append("you" if mine else f"holders of {name}" if kind == "perm" else name.replace("_", " "))
    return ", ".join(sorted(words, key=lambda w: w != "you"))
