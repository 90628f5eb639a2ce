"""The inbox: what waits for me, what I signed that is not final, what was decided. Nothing is approved from here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Count, Prefetch, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from approvals import inbox
from approvals.gates.repeated_effects import NO_REPEATS, Repeats, repeated_effects
from approvals.models import ApprovalRequest, Decision, Draft, RequestStatus
from approvals.views.inbox_effects import EffectCount, effects_of
from approvals.views.page import read_number, render
from checkpoints.sealing import data_keys
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_columns import read_or_reason
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.held_patch import PATCH

PAGE = 50
FOLDERS = {"mine": "Waiting for you", "signed": "Signed, not final", "decided": "Decided"}
_SIGNED = ("request", "write", "verdict", "by", "by_name", "at", "by__first_name", "by__last_name", "by__username")


@dataclass(frozen=True, slots=True)
class Row:
    """One request as a row."""

    id: UUID
    run: Any
    title: str
    asked_of: str
    graph: str
    writes: int
    quorum: int
    signers: list[str]
    signed: int
    opened_at: Any
    deadline: Any
    open: bool
    state: str
    why_not: str
    fault: SealFault | None
    effects: list[EffectCount]
    of_patch: bool
    repeats: Repeats
    drafted: int

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
    number = max(1, read_number(request.GET.get("page", "")) or 1)
    # Read before the rows: what changes meanwhile changes the mark, and the page asks for it.
    mark = inbox.mark_of(request.user)
    found = list(_with_people(_matching(_folder(request.user, folder), words))[(number - 1) * PAGE : number * PAGE + 1])
    rows = _rows(found[:PAGE], request.user)
    context = {
        "folder": folder,
        "label": FOLDERS[folder],
        "folders": _counts(request.user, mark.waiting),
        "rows": rows,
        "columns": _columns(rows),
        "mark": mark,
        "more": number + 1 if len(found) > PAGE else None,
        "q": words,
        "zone": timezone.get_current_timezone_name(),
    }
    return render(request, "approvals/inbox.html", context, section="reviews")


@login_required
@require_safe
def inbox_rows(request: HttpRequest) -> HttpResponse:
    """The named rows alone, as far as this person may see their runs: for a list that is on the screen."""
    wanted = [text for text in request.GET.getlist("id")[:PAGE] if is_uuid(text)]
    found = _with_people(inbox.visible_requests(request.user).filter(id__in=wanted))
    return render(request, "approvals/_ask_rows.html", {"rows": _rows(list(found), request.user)}, section="reviews")


def is_uuid(text: str) -> bool:
    """Whether a text is an id."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _with_people(requests: "QuerySet[ApprovalRequest]") -> "QuerySet[ApprovalRequest]":
    """With reviewers and signers: a query for each, however many requests there are."""
    signed = Decision.objects.select_related("by").only(*_SIGNED).order_by("event_seq")
    return requests.prefetch_related("reviewers", Prefetch("decisions", signed, to_attr="signed"))


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


def _counts(user: Any, waiting: int) -> list[dict[str, Any]]:
    signed = _folder(user, "signed").order_by().count()
    counts = {"mine": waiting, "signed": signed, "decided": None}
    return [{"name": name, "label": label, "count": counts[name]} for name, label in FOLDERS.items()]


def _columns(rows: Sequence[Row]) -> str:
    """The classes that hide what says the same in every row: signatures where each needs one, and deadlines."""
    one_signature = all(row.quorum == 1 and not row.signers for row in rows)
    no_deadline = all(row.open and not row.deadline for row in rows)
    return " ".join(name for name, hidden in (("no-quor", one_signature), ("no-due", no_deadline)) if hidden)


def _rows(requests: list[ApprovalRequest], user: Any) -> list[Row]:
    data_keys.know_keys_of(requests)
    names = names_of(_accounts(r.principal for one in requests for r in one.reviewers.all()))
    effects, drafted = effects_of(requests), _drafted(requests, user)
    repeats = repeated_effects(request.run for request in requests if request.status == RequestStatus.OPEN)
    return [
        _row(
            request,
            user,
            names,
            effects[request.id],
            repeats.get(request.run_id, NO_REPEATS) if request.status == RequestStatus.OPEN else NO_REPEATS,
            drafted.get(request.run_id, 0),
        )
        for request in requests
    ]


def _drafted(requests: Sequence[ApprovalRequest], user: Any) -> dict[UUID, int]:
    """How many writes of each run this person has drafted a choice for. One query."""
    runs = {request.run_id for request in requests if request.status == RequestStatus.OPEN}
    rows = Draft.objects.filter(by=user.pk, run__in=runs).order_by().values_list("run").annotate(count=Count("id"))
    return dict(rows) if runs else {}


def _row(
    request: ApprovalRequest,
    user: AbstractBaseUser | Any,
    names: Mapping[str, str],
    effects: list[EffectCount],
    repeats: Repeats,
    drafted: int,
) -> Row:
    # Under four eyes an edit counts as nobody's signature.
    eyed = request.policy.get("four_eyes")
    signed = [d for d in request.signed if d.by_id and not (eyed and d.verdict == "edit")]  # type: ignore[attr-defined]
    signers = {d.by_id: name_of(d.by) for d in signed}
    is_open = request.status == RequestStatus.OPEN
    began = user.pk in (request.run.started_by_id, request.run.on_behalf_of_id)
    own = is_open and eyed and began
    return Row(
        id=request.id,
        run=request.run,
        title=str(read_or_reason(request, "title") or request.node),
        asked_of=asked_of([r.principal for r in request.reviewers.all()], user, names),
        graph=request.graph,
        writes=request.writes,
        quorum=request.quorum,
        signers=list(signers.values()),
        signed=len({d.write for d in signed}),
        opened_at=request.opened_at,
        deadline=request.deadline,
        open=is_open,
        state=_state(request, list(signers.values())),
        why_not="somebody else must sign" if own else "",
        fault=fault_of(request, protection_of(request.run)),
        effects=effects,
        of_patch=request.node == PATCH,
        repeats=repeats,
        drafted=drafted,
    )


def _state(request: ApprovalRequest, signers: list[str]) -> str:
    """What became of a request: how it was settled, by whom and when."""
    if not request.outcome:
        return str(request.get_status_display())
    by = f" by {', '.join(signers)}" if signers else ""
    return f"{request.outcome}{by}{f' at {time_of(request.settled_at)}' if request.settled_at else ''}"


def time_of(at: datetime) -> str:
    """A time in a sentence; with its day where that is not today."""
    local = timezone.localtime(at)
    today = local.date() == timezone.localdate()
    return f"{local:%H:%M}" if today else f"{local:%H:%M} on {local.day} {local:%B}"


def name_of_node(node: str) -> str:
    """What pages call a node: its name, or a patch, which has none."""
    return "a patch" if node == PATCH else node


def name_of(person: Any) -> str:
    """A person's name as on every page."""
    return str(person.get_full_name() or person.get_username())


def names_of(accounts: Iterable[str]) -> dict[str, str]:
    """Account -> the person's name. An account that is gone keeps its own. One query, none where nobody is named."""
    wanted = {account for account in accounts if account}
    model = get_user_model()
    field = f"{model.USERNAME_FIELD}__in"
    found = model._default_manager.filter(**{field: wanted}) if wanted else ()
    return {**{account: account for account in wanted}, **{p.get_username(): name_of(p) for p in found}}


def _accounts(principals: Iterable[str]) -> list[str]:
    return [principal.removeprefix("user:") for principal in principals if principal.startswith("user:")]


def asked_of(principals: Iterable[str], user: Any, names: Mapping[str, str] | None = None) -> str:
    """The reviewers in words: you, names of groups and people. `names` as `names_of` gives them, where the caller has
    them already.
    """
    listed, me = list(principals), user.get_username()
    known = names_of(a for a in _accounts(listed) if a != me) if names is None else names
    words = []
    for principal in listed:
        kind, _, name = principal.partition(":")
        if kind == "user":
            words.append("you" if name == me else known.get(name, name))
        else:
            words.append(f"holders of {name}" if kind == "perm" else name.replace("_", " "))
    return ", ".join(sorted(words, key=lambda w: w != "you"))
