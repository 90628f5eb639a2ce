"""The inbox: requests that wait for a person, those that the person signed and that are
not final, and those that were decided. Nothing is approved from here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Count, Max, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from approvals import folders, inbox, permissions
from approvals.gates.approved_calls import CALL_KIND
from approvals.gates.renewals import AUTHORITY_KIND
from approvals.gates.repeated_effects import NO_REPEATS, Repeats, repeated_effects
from approvals.models import (
    BY_DEADLINE,
    BY_VETO,
    NO_AUTO,
    VETO,
    VETO_ANSWERS,
    ApprovalRequest,
    Decision,
    Draft,
    RequestStatus,
    SavedFilter,
)
from approvals.people.claims import shown_claim
from approvals.results.effect_results import (
    EffectResult,
    effect_results,
    read_reasons,
)
from approvals.views import inbox_search
from approvals.views.inbox_effects import TASK, EffectCount, channels_of, effects_of
from approvals.views.page import (
    read_moment,
    read_page,
    read_position,
    refuses_unreadable_filters,
    render,
)
from approvals.visible_requests import NEWEST_FIRST, of_visible_runs
from checkpoints.core.status import CLOSED_TO_DECISIONS, Status
from checkpoints.db.together import read_together
from checkpoints.models import PendingWrite
from checkpoints.queue import workers
from checkpoints.sealing import data_keys
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_columns import read_or_reason
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.step.held_patch import PATCH

PAGE = 50
FOLDERS = {
    "mine": "Waiting for you",
    "drafts": "Your drafts",
    "back": "Came back",
    "signed": "Signed, not final",
    "decided": "Decided",
    "expired": "Expired",
}
EMPTY = {
    "mine": "Reviews asked of you or your groups are listed here.",
    "drafts": "Reviews in which you have chosen something and not signed it.",
    "back": "Reviews in which something that you signed has changed since. One that was "
    "re-opened is a new review, and is not among them.",
    "signed": "Reviews that you signed, and that wait for others.",
    "decided": "Reviews that you signed are listed here once they are decided.",
    "expired": "Reviews asked of you or your groups that their deadline ended.",
}
"""What each folder holds, for where it is empty."""
_SIGNED = (
    "request",
    "receipt",
    "write",
    "revision",
    "verdict",
    "by",
    "by_name",
    "at",
    # If no person decided, the name is made from these.
    "checked",
    "delegator_name",
)


@dataclass(frozen=True, slots=True)
class InboxRow:
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
    at_deadline: str
    silence_approves: bool
    open: bool
    state: str
    why_not: str
    fault: SealFault | None
    effects: list[EffectCount]
    of_patch: bool
    of_call: bool
    of_authority: bool
    asked_again: bool
    results: list[EffectResult]
    repeats: Repeats
    drafted: int
    kept_open: str
    claimed: str
    is_own_claim: bool
    for_whom: str

    @property
    def is_overdue(self) -> bool:
        """Return whether it is still open though its deadline has come."""
        return self.open and bool(self.deadline) and self.deadline < timezone.now()

    @property
    def slots(self) -> range:
        return range(max(0, self.quorum - len(self.signers)))


@login_required
@require_safe
@refuses_unreadable_filters
@permissions.remembering_principals()
def inbox_page(request: HttpRequest) -> HttpResponse:
    """Show one folder, in pages of fifty."""
    folder, words, taken = _read_filter(request.GET)
    # Read before the rows: what changes meanwhile changes the mark, and the page asks
    # for it.
    principals = permissions.principals_of(request.user)
    beside = read_together(
        **inbox.mark_queries(request.user, principals),
        **folders.count_queries(request.user, principals),
        heartbeat=workers.latest_heartbeat(),
        saved=SavedFilter.objects.filter(user=request.user.pk),
    )
    mark = inbox.mark_in(beside)
    if words or taken:
        page = _page_of_search(request, folder, words, taken, principals)
    else:
        page = _page(request, folder, principals)
    rows = _rows(page.requests, request.user)
    context = {
        "folder": folder,
        "label": FOLDERS[folder],
        "empty": EMPTY[folder],
        "folders": _counts(mark, beside),
        "rows": rows,
        "columns": _columns(rows),
        "mark": mark,
        "more": page.onward,
        "searched": page.searched,
        "q": words,
        "taken": taken,
        "filters": _filters(folder, words, taken),
        "query": _query(folder, words, taken),
        "saved": beside["saved"],
        # The number waiting is that of the mark.
        "bar": inbox.bar_in(beside),
        "zone": timezone.get_current_timezone_name(),
    }
    return render(request, "approvals/inbox.html", context, section="reviews")


@dataclass(frozen=True, slots=True)
class _Page:
    """The requests of a page. `onward`: the query of the next one, empty at the end of
    the folder. `searched`: how many requests a search looked at that goes on there, else
    0.
    """

    requests: list[ApprovalRequest]
    onward: str
    searched: int = 0


def _page(request: HttpRequest, folder: str, principals: Sequence[str]) -> _Page:
    """Return a page of a folder. `principals` are the person's, as just read."""
    number = read_page(request)
    start = (number - 1) * PAGE
    # One request beyond the page shows whether there is a next page.
    end = start + PAGE + 1
    requests = _folder(request.user, folder, principals, first=end)
    page = list(requests[start:end])
    onward = ""
    if len(page) > PAGE:
        query: dict[str, str | int] = {"folder": folder, "page": number + 1}
        onward = urlencode(query)
    return _Page(page[:PAGE], onward)


def _filters(folder: str, words: str, taken: str) -> list[dict[str, Any]]:
    """Return the links to the same list, by whose claim is wanted."""
    links: list[dict[str, Any]] = []
    for name, label in inbox_search.TAKEN.items():
        query = _query(folder, words, name)
        links.append({"label": label, "query": query, "current": name == taken})
    return links


def _read_filter(fields: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the folder, the words and whose claim is wanted, as an address or a form
    says; what is no folder is what waits, and what is nobody's claim any.
    """
    folder = fields.get("folder", "mine")
    if folder not in FOLDERS:
        folder = "mine"
    words = fields.get("q", "").strip()[:200]
    taken = fields.get("taken", "")
    if taken not in inbox_search.TAKEN:
        taken = ""
    return folder, words, taken


def filter_query(fields: Mapping[str, str]) -> str:
    """Return the query of the address that shows what these fields ask for."""
    return _query(*_read_filter(fields))


def _query(folder: str, words: str, taken: str) -> str:
    query = {"folder": folder}
    if words:
        query["q"] = words
    if taken:
        query["taken"] = taken
    return urlencode(query)


def _page_of_search(
    request: HttpRequest,
    folder: str,
    words: str,
    taken: str,
    principals: Sequence[str],
) -> _Page:
    """Return the requests of a folder that have the words and are taken by whom it is
    asked for, of the stretch after the place that the address names. `principals` are
    the person's, as just read.
    """
    requests = _folder(
        request.user,
        folder,
        principals,
        first=inbox_search.number_read(),
        behind=_place(request.GET.get("after", "")),
    )
    condition = inbox_search.has_words(words)
    condition &= inbox_search.is_taken_by(taken, request.user)
    search = inbox_search.search(requests, condition, most=PAGE)
    page = list(search.requests)
    if search.end is None:
        return _Page(page, "")
    query = {"folder": folder, "q": words, "after": _place_text(search.end)}
    if taken:
        query["taken"] = taken
    return _Page(page, urlencode(query), search.searched)


def _place_text(place: inbox.InboxPlace) -> str:
    """Return a place as addresses have it: deadline, which may be empty, moment, id."""
    deadline = "" if place.deadline is None else place.deadline.isoformat()
    return f"{deadline}~{place.opened_at.isoformat()}~{place.request}"


def _place(text: str) -> inbox.InboxPlace | None:
    """Return the place that an address names, None without a text. Raises
    `InvalidValue`.
    """
    if not text:
        return None
    deadline_text, _, position = text.partition("~")
    deadline = read_moment(deadline_text) if deadline_text else None
    opened_at, request = read_position(position)
    is_wrong = bool(deadline_text) and deadline is None
    if is_wrong or opened_at is None or request is None:
        message = "“after” names no review; follow the links of the list"
        raise InvalidValue(message, path="after")
    return inbox.InboxPlace(deadline, opened_at, request)


@login_required
@require_safe
@permissions.remembering_principals()
def inbox_rows(request: HttpRequest) -> HttpResponse:
    """Show only the rows with the given ids, if this person may see their runs: a list
    on the screen renews them.
    """
    # Django raises an error for an id that is no UUID.
    ids = [text for text in request.GET.getlist("id")[:PAGE] if is_uuid(text)]
    named = ApprovalRequest.objects.filter(id__in=ids)
    visible = inbox.listed(of_visible_runs(request.user, named))
    requests = visible.order_by(*NEWEST_FIRST)
    return render(
        request,
        "approvals/_ask_rows.html",
        {"rows": _rows(list(requests), request.user)},
        section="reviews",
    )


def is_uuid(text: str) -> bool:
    """Return whether a text is a UUID."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _folder(
    user: Any,
    folder: str,
    principals: Sequence[str],
    *,
    first: int,
    behind: inbox.InboxPlace | None = None,
) -> "QuerySet[ApprovalRequest]":
    """Return the requests of a folder: at least the first ones, or those after a place.
    `principals` are the user's, as just read.
    """
    if folder == "mine":
        return inbox.waiting_for(user, first=first, behind=behind)
    if folder == "expired":
        return folders.expired_for(user, first=first, behind=behind)
    of_user: dict[str, Any] = {
        "first": first,
        "behind": behind,
        "principals": principals,
    }
    if folder == "drafts":
        return folders.drafted_by(user, **of_user)
    if folder == "back":
        return folders.came_back_to(user, **of_user)
    return inbox.signed_by(user, is_open=folder == "signed", **of_user)


def _counts(
    mark: inbox.Mark, beside: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    # What is decided and expired only grows.
    counts = {"mine": mark.waiting, "signed": mark.signed}
    if mark.is_capped:
        counts["mine"] += 1
    for folder in ("back", "drafts"):
        counts[folder] = beside[folder][0]
    links = []
    for name, label in FOLDERS.items():
        link: dict[str, Any] = {"name": name, "label": label, "count": None}
        if name in counts:
            link["count"] = min(counts[name], inbox.MANY)
            link["is_capped"] = counts[name] > inbox.MANY
        links.append(link)
    return links


def _columns(rows: Sequence[InboxRow]) -> str:
    """Return the classes that hide what is the same in every row: signatures if each
    request needs one, deadlines if there are none, and of several rows the graph and
    whom they ask.
    """
    classes = []
    if all(row.quorum == 1 and not row.signers for row in rows):
        classes.append("no-quor")
    if all(row.open and not row.deadline for row in rows):
        classes.append("no-due")
    if len(rows) > 1:
        classes += _same_in_all(rows)
    return " ".join(classes)


def _same_in_all(rows: Sequence[InboxRow]) -> list[str]:
    """Return the classes that hide the graph and whom rows ask, where it is one."""
    classes = []
    if len({row.graph for row in rows}) == 1:
        classes.append("no-graph")
    if len({row.asked_of for row in rows}) == 1:
        classes.append("no-asked")
    return classes


def _rows(requests: list[ApprovalRequest], user: Any) -> list[InboxRow]:
    """Return the rows of requests. The number of queries does not grow with them."""
    # One query for the keys of all encrypted titles, instead of one for each.
    data_keys.know_keys_of(requests)
    beside = _read_beside(requests, user)
    names = names_among(_named_accounts(requests), beside["people"])
    effects = effects_of(requests, channels=beside["channels"])
    newest = dict(beside["vetoed"])
    drafted = {tuple(task): count for *task, count in beside["drafted"]}
    open_runs = [request.run for request in _open(requests)]
    repeats_by_run = repeated_effects(open_runs)
    held = permissions.held_shown(user) if open_runs else permissions.HeldPrincipals()
    results = effect_results(requests)
    read_reasons(requests, results)

    rows = []
    for request in requests:
        # There is something to warn of only while people still decide.
        repeats = NO_REPEATS
        if request.status == RequestStatus.OPEN:
            repeats = repeats_by_run.get(request.run_id, NO_REPEATS)
        row = _row(
            request,
            user,
            names,
            effects[request.id],
            results[request.id],
            repeats,
            drafted.get(_task(request), 0),
            _kept_open(request, newest),
            held,
        )
        rows.append(row)
    return rows


def _open(requests: Iterable[ApprovalRequest]) -> list[ApprovalRequest]:
    return [request for request in requests if request.status == RequestStatus.OPEN]


def _principals(request: ApprovalRequest) -> list[str]:
    """Return the reviewers of a request, from what is sealed of it."""
    return request.reviewers_now


def _read_beside(
    requests: Sequence[ApprovalRequest], user: Any
) -> dict[str, list[Any]]:
    """Read what the rows of requests show of other tables, and set `signed` of each to
    its decisions with their people. One query, however many requests there are.
    """
    if not requests:
        return {"people": [], "channels": [], "drafted": [], "vetoed": []}
    decisions = Decision.objects.filter(
        request__in=[request.id for request in requests]
    )
    # For how many writes of each request this person has drafted a choice: what was
    # drafted on a line that was left counts for none.
    open_runs = {request.run_id for request in _open(requests)}
    drafts = Draft.objects.filter(by=user.pk, run__in=open_runs)
    drafted = PendingWrite.objects.filter(
        run__in=open_runs, write__in=drafts.values("write")
    )
    beside = read_together(
        decisions=decisions.only(*_SIGNED).order_by("event_seq"),
        **_people(_named_accounts(requests), decisions),
        channels=channels_of(requests),
        drafted=drafted.order_by()
        .values_list(*TASK)
        .annotate(count=Count("write", distinct=True)),
        vetoed=_newest_of_vetoed(decisions),
    )
    beside["people"] = [*beside["named"], *beside["signing"]]
    people = {person.pk: person for person in beside["people"]}
    signed: dict[UUID, list[Decision]] = {request.id: [] for request in requests}
    for decision in beside["decisions"]:
        # A decision of a policy or a deadline has no person.
        if decision.by_id in people:
            decision.by = people[decision.by_id]
        signed[decision.request_id].append(decision)
    for request in requests:
        request.signed = signed[request.id]  # type: ignore[attr-defined]
    return beside


def _newest_of_vetoed(
    decisions: "QuerySet[Decision]",
) -> "QuerySet[PendingWrite, tuple[UUID, int]]":
    """Return the newest revision of each write that a veto kept open in these decisions."""
    vetoed = decisions.filter(verdict=VETO).order_by().values("write")
    rows = PendingWrite.objects.filter(write__in=vetoed).order_by()
    return rows.values_list("write").annotate(newest=Max("revision"))


def _named_accounts(requests: Iterable[ApprovalRequest]) -> list[str]:
    """Return the accounts that are reviewers of these requests, or have taken one."""
    accounts: list[str] = []
    for request in requests:
        accounts += _accounts(_principals(request))
        taken = shown_claim(request)
        if taken is not None:
            accounts.append(taken.by_name)
    return accounts


def _people(
    accounts: Iterable[str], decisions: "QuerySet[Decision]"
) -> "dict[str, QuerySet[Any]]":
    """Return the queries of the people with these accounts, and of those who made these
    decisions. Each by itself, because PostgreSQL would look at every account for
    conditions that are joined by OR.
    """
    model = get_user_model()
    people = model._base_manager
    return {
        "named": people.filter(**{f"{model.USERNAME_FIELD}__in": set(accounts)}),
        "signing": people.filter(pk__in=decisions.order_by().values("by")),
    }


def _row(
    request: ApprovalRequest,
    user: AbstractBaseUser | Any,
    names: Mapping[str, str],
    effects: list[EffectCount],
    results: list[EffectResult],
    repeats: Repeats,
    drafted: int,
    kept_open: str,
    held: permissions.HeldPrincipals,
) -> InboxRow:
    signed = _signatures(request)
    by_person = {decision.by_id: name_of(decision.by) for decision in signed}
    people = list(by_person.values())
    by_policy = _signatures_of_policy(request)
    policies = dict.fromkeys(decision.signer_name for decision in by_policy)
    return InboxRow(
        id=request.id,
        run=request.run,
        title=str(read_or_reason(request, "title") or request.node),
        asked_of=asked_of(_principals(request), user, names),
        graph=request.graph,
        writes=request.writes,
        quorum=request.quorum,
        signers=[*people, *policies],
        signed=len({decision.write for decision in (*signed, *by_policy)}),
        opened_at=request.opened_at,
        deadline=request.deadline,
        at_deadline=at_deadline(request),
        silence_approves=silence_approves(request),
        open=request.status == RequestStatus.OPEN,
        state=_state(request, people),
        why_not=_why_not(request, user),
        fault=fault_of(request, protection_of(request.run)),
        effects=effects,
        of_patch=request.node == PATCH,
        of_call=request.kind == CALL_KIND,
        of_authority=request.kind == AUTHORITY_KIND,
        asked_again=request.visit > 1 or request.ordinal > 0,
        results=results,
        repeats=repeats,
        drafted=drafted,
        kept_open=kept_open,
        claimed=_claimed(request, user, names),
        is_own_claim=_is_own_claim(request, user),
        for_whom=_for_whom(request, held),
    )


def _task(request: ApprovalRequest) -> tuple[Any, ...]:
    return tuple(getattr(request, column) for column in TASK)


def _kept_open(request: ApprovalRequest, newest: Mapping[UUID, int]) -> str:
    """Return that a veto keeps a request open whatever was signed; empty if none does.
    `newest` are the revisions of writes about which a veto was asked.
    """
    if request.status != RequestStatus.OPEN:
        return ""
    last: dict[UUID, Decision] = {}
    for decision in request.signed:  # type: ignore[attr-defined]
        if decision.verdict in (VETO, "reject"):
            last[decision.write] = decision
    for write, decision in last.items():
        # A write with a newer revision is open because of it.
        is_current = decision.revision == newest.get(write)
        if decision.verdict == VETO and is_current:
            return "a veto keeps it open"
    return ""


def _for_whom(request: ApprovalRequest, held: permissions.HeldPrincipals) -> str:
    """Return the people for whom this person would decide an open request; empty where
    they decide by their own right, or not at all.
    """
    if request.status != RequestStatus.OPEN:
        return ""
    people = permissions.delegators(request, held)
    return " or ".join(name_of(person) for person in people)


def _claimed(request: ApprovalRequest, user: Any, names: Mapping[str, str]) -> str:
    """Return who has taken a request; empty if nobody has."""
    taken = shown_claim(request)
    if taken is None:
        return ""
    if taken.by_id != user.pk:
        return f"taken by {names.get(taken.by_name, taken.by_name)}"
    return "handed to you" if taken.assigned_name else "taken by you"


def _is_own_claim(request: ApprovalRequest, user: Any) -> bool:
    taken = shown_claim(request)
    return taken is not None and bool(taken.by_id == user.pk)


def _signatures(request: ApprovalRequest) -> list[Decision]:
    """Return the decisions of people that are signatures."""
    four_eyes = request.policy.get("four_eyes")
    signatures = []
    for decision in request.signed:  # type: ignore[attr-defined]
        # Under four eyes an edit counts as nobody's signature.
        is_proposal = four_eyes and decision.verdict == "edit"
        if decision.by_id and not is_proposal:
            signatures.append(decision)
    return signatures


def _signatures_of_policy(request: ApprovalRequest) -> list[Decision]:
    """Return the approvals of a gate's automatic policy that no person has beaten."""
    by_write: dict[UUID, Decision] = {}
    for decision in request.signed:  # type: ignore[attr-defined]
        if decision.by_policy and decision.verdict == "approve":
            by_write[decision.write] = decision
        elif decision.verdict in ("reject", "edit"):
            by_write.pop(decision.write, None)
    return list(by_write.values())


def _why_not(request: ApprovalRequest, user: Any) -> str:
    """Return why this person may not sign an open request of a run they started; empty
    if they may.
    """
    # Under four eyes nobody signs for a run that they started.
    starters = (request.run.started_by_id, request.run.on_behalf_of_id)
    if request.status != RequestStatus.OPEN or user.pk not in starters:
        return ""
    return "somebody else must sign" if request.policy.get("four_eyes") else ""


def _state(request: ApprovalRequest, signers: list[str]) -> str:
    """Return how a request was settled, by whom and when; its status before that."""
    is_expired = request.status == RequestStatus.EXPIRED
    if not request.outcome or is_expired:
        return str(request.get_status_display())
    sentence = request.outcome
    by = list(signers)
    by += _not_people(request.signed)  # type: ignore[attr-defined]
    if by:
        sentence += f" by {', '.join(by)}"
    if request.settled_at:
        sentence += f" at {time_of(request.settled_at)}"
    return str(sentence)


def _not_people(signed: Iterable[Decision]) -> list[str]:
    """Return the names of a deadline and of policies that have decided."""
    names: dict[str, None] = {}
    for decision in signed:
        signs = decision.by_policy and decision.verdict != NO_AUTO
        if signs or decision.by_deadline:
            names[decision.signer_name] = None
    return list(names)


_AT_DEADLINE = {
    "reject": "it is rejected",
    "approve": "the system approves it",
    "fail": "the run fails",
}


def at_deadline(request: ApprovalRequest) -> str:
    """Return what happens at the deadline of a request, as the end of a sentence; empty
    without one.
    """
    act = _AT_DEADLINE.get(request.policy.get("on_deadline", ""), "")
    if act and request.run.status in CLOSED_TO_DECISIONS:
        return "nothing happens before the run goes on"
    # It cannot fail twice.
    if (
        request.policy.get("on_deadline") == "fail"
        and request.run.status == Status.FAILED
    ):
        return "it is closed, and asked anew when the run is resumed"
    return act


def silence_approves(request: ApprovalRequest) -> bool:
    """Return whether the deadline of a request approves what is left open."""
    return bool(request.policy.get("on_deadline") == "approve")


def time_of(at: datetime) -> str:
    """Return a time for a sentence; with its day if that is not today."""
    local = timezone.localtime(at)
    if local.date() == timezone.localdate():
        return f"{local:%H:%M}"
    return f"{local:%H:%M} on {local.day} {local:%B}"


def name_of_node(node: str) -> str:
    """Return the name of a node on pages. The node of a patch has no name; it is called
    a patch.
    """
    return "a patch" if node == PATCH else node


def name_of(person: Any) -> str:
    """Return a person's name as on every page."""
    return str(person.get_full_name() or person.get_username())


def name_of_decider(decision: Decision) -> str:
    """Return the name of the person who decided, else "the deadline" or "the system"."""
    if decision.by is not None:
        return name_of(decision.by)
    if decision.verdict in VETO_ANSWERS:
        return BY_VETO
    if decision.by_policy:
        return decision.signer_name
    return BY_DEADLINE if decision.by_deadline else "the system"


def names_of(accounts: Iterable[str]) -> dict[str, str]:
    """Return the person's name for each account; the account itself if it no longer
    exists. One query, none without accounts.
    """
    names = {account: account for account in accounts if account}
    if not names:
        return {}
    model = get_user_model()
    people = model._default_manager.filter(
        **{f"{model.USERNAME_FIELD}__in": set(names)}
    )
    return names_among(names, people)


def names_among(accounts: Iterable[str], people: Iterable[Any]) -> dict[str, str]:
    """Return for each account the name of its person among these, else the account."""
    names = {account: account for account in accounts if account}
    for person in people:
        if person.get_username() in names:
            names[person.get_username()] = name_of(person)
    return names


def _accounts(principals: Iterable[str]) -> list[str]:
    accounts = []
    for principal in principals:
        if principal.startswith("user:"):
            accounts.append(principal.removeprefix("user:"))
    return accounts


def asked_of(
    principals: Iterable[str],
    user: Any,
    names: Mapping[str, str] | None = None,
) -> str:
    """Return the reviewers in words: you, names of groups and people. `names` is the
    result of `names_of`, where the caller has it already.
    """
    principals = list(principals)
    own_account = user.get_username()
    if names is None:
        accounts = _accounts(principals)
        names = names_of(account for account in accounts if account != own_account)
    words = []
    for principal in principals:
        kind, _, name = principal.partition(":")
        if kind == "user" and name == own_account:
            words.append("you")
        elif kind == "user":
            words.append(names.get(name, name))
        elif kind == "perm":
            words.append(f"holders of {name}")
        else:
            words.append(name.replace("_", " "))
    return ", ".join(sorted(words, key=_you_first))


def _you_first(word: str) -> bool:
    return word != "you"
