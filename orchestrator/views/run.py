"""The run page: the position of a run, its checkpoints and their changes, and the next
step; and the view that resumes a stopped run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from approvals import inbox, permissions
from approvals.models import ApprovalRequest, Receipt, RequestStatus
from approvals.views.inbox import asked_of
from approvals.views.page import (
    may_post,
    opens_payloads,
    read_number,
    render,
    single_fields,
    visible_run,
)
from checkpoints import timeline
from checkpoints.core.status import CLOSED_TO_DECISIONS, ENDS, Status
from checkpoints.db.together import Count, read_together
from checkpoints.ledger import notes
from checkpoints.models import BundleImport, Checkpoint, Pin, Run, RunEvent
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import unreadable_reason
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.threads import is_thread
from orchestrator import runs
from orchestrator.display.diagram import paint
from orchestrator.display.threads import facts_of_thread
from orchestrator.engine import registry
from orchestrator.engine.errors import (
    REFUSALS,
    UNREADABLE,
    CountersignError,
    PayloadLost,
    TamperedRow,
)
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step import plan
from orchestrator.engine.step.frontier import Frontier, visit_of
from orchestrator.views import (
    run_details,
    run_gaps,
    run_lineage,
    run_lines,
    run_paths,
    run_timeline,
)
from orchestrator.views.cancel import can_be_cancelled, cancelled
from orchestrator.views.graphs import policy_in_words
from orchestrator.views.retention.pin import lasting_pins
from orchestrator.views.run_details import TABS, tabs_of
from orchestrator.views.run_problem import problem_of
from orchestrator.views.run_standings import RunStanding
from orchestrator.views.run_timeline import STOPPED, url

Facts = dict[str, Any]
Payload = Facts | None
"""The payload of a checkpoint; None if it cannot be opened."""

WINDOW = 60
"""The most checkpoints on one page."""
AROUND = 8
"""The most lines of the log on one page."""
RECEIPTS = 10
"""The most receipts that the page of a run names."""
ALLOW = "allow-"
"""The beginning of the name of a posted yes; the node follows."""


@dataclass(frozen=True, slots=True)
class Asks:
    """The open questions of a run: its held writes, whether this person is a reviewer,
    and the reviewers in words.
    """

    writes: int
    mine: bool
    of: str


@login_required
@require_safe
@opens_payloads
@permissions.remembering_principals()
def run_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Show the run at the checkpoint `at`; without it, at the newest."""
    run = visible_run(request.user, ref, with_input=True)
    number = request.GET.get("at", "")
    rows, newest = _window(run, number)
    at = _chosen(rows, number)
    tab = request.GET.get("tab", "")
    if tab not in TABS:
        tab = "changed"
    context = _context(request, run, rows, at, newest=newest, tab=tab)
    return render(
        request,
        "orchestrator/run.html",
        {"page": context, "bar": context["bar"]},
        section="runs",
    )


@login_required
@require_http_methods(["GET", "POST"])
@single_fields()
def resume_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Queue a run again that stopped, or that waits for a yes or for a start.

    `allow-<node>` is a yes. A person who had to sign in first arrives by GET, without
    the choice, and gets a message about it.
    """
    run = visible_run(request.user, ref)
    if request.method == "GET":
        unsent = (
            "Nothing was resumed: your choice did not arrive. Press the button again."
        )
        messages.warning(request, unsent, extra_tags="bad")
        return redirect("run", run.id)
    if not may_post(request, run, "steer_run", refusal="refused_resume"):
        raise PermissionDenied("You may not steer runs, so nothing was resumed.")
    fields = [name for name in request.POST if name.startswith(ALLOW)]
    allowed = [name.removeprefix(ALLOW) for name in fields]
    try:
        runs.resume(run.id, allow_effects=allowed, by=request.user)  # type: ignore[arg-type]
    except REFUSALS as error:
        messages.warning(request, f"Not resumed: {error.message}.", extra_tags="bad")
    return redirect("run", run.id)


def _window(run: Run, at: str) -> tuple[list[Checkpoint], Checkpoint]:
    """Return up to `WINDOW` checkpoints around the number `at`, newest first; and the
    newest of all.
    """
    rows = timeline.list_checkpoints(run.id, limit=WINDOW)
    if not rows:
        raise Http404("the run has no checkpoint")
    newest = rows[0]
    number = read_number(at)
    if number is not None and number < rows[-1].seq:
        # Around a number that was cleaned up there may be nothing for a whole window.
        number = run_gaps.nearest_kept(run, number) or 0
        rows = timeline.list_checkpoints(
            run.id, limit=WINDOW, before=number + WINDOW // 2
        )
    return rows, newest


def _chosen(rows: Sequence[Checkpoint], at: str) -> Checkpoint:
    """Return the checkpoint with the number `at`, the newest without one. Raises
    `Http404`.
    """
    if not at:
        return rows[0]
    number = read_number(at)
    following: list[Checkpoint] = []
    if number is not None:
        following = [row for row in rows if row.seq >= number]
    if not following:
        raise Http404(f"the run has no checkpoint {at[:20]}")
    # For a checkpoint that was cleaned up the next one that was kept is shown, and the
    # page points it out.
    return following[-1]


def _context(
    request: HttpRequest,
    run: Run,
    rows: list[Checkpoint],
    at: Checkpoint,
    *,
    newest: Checkpoint,
    tab: str,
) -> Facts:
    """Return everything that the page shows."""
    user = request.user
    # Only a few columns of a listed row's run were read, and no payload.
    compares = tab == "changed"
    read = timeline.read_step(run, at, with_before=compares)
    at = read or timeline.get_checkpoint(at.id)
    snapshot, refusal = _snapshot(at)
    past = at.seq != newest.seq
    way = run_lines.way_of(run)
    principals = permissions.principals_shown(user)
    others: dict[str, QuerySet[Any]] = {}
    if compares and snapshot is not None:
        others["setters"] = timeline.unlisted_setters(at, rows)
    is_first = run.origin_checkpoint is None and run.parent_run is None
    if is_first:
        others |= run_lineage.below_queries(user, run, principals)
    beside = _read_beside(run, rows, at, user, principals, others, past=past)
    if "setters" in others:
        timeline.keep_setters(at, [*rows, *beside["setters"]])
    for_person = _for_person(run, user, beside)
    path = request.GET.get("path", "")
    return {
        "run": run,
        "newest": newest,
        "past": past,
        "tab": tab,
        "now_url": url(run, at=None, tab=tab),
        "bar": inbox.bar_in(beside),
        "run_fault": timeline.fault_of_run(run, start=beside["start"]),
        **_graph_facts(run, at, snapshot, past=past),
        **_checkpoint_facts(run, at, refusal, way, beside),
        **_noted(run, at, beside),
        "may_pin": permissions.may(user, "manage_retention"),
        **_timeline(run, rows, at, beside, newest=newest, tab=tab, way=way),
        "has_role": permissions.has_role(user),
        **for_person,
        **_signed(beside),
        **_lineage(run, user, rows, principals, beside if is_first else None),
        "watched": run_paths.watched_path(user, run, at, path, tab=tab),
        **_events(run, at, past, beside),
        **_detail(request, run, at, snapshot, tab, past=past),
        # Last, for it withdraws what is offered for a sound run.
        **_ways_on(for_person, at),
    }


Beside = Mapping[str, list[Any]]
"""The rows of other tables that a page shows, by the names of `_read_beside`."""


def _read_beside(
    run: Run,
    rows: Sequence[Checkpoint],
    at: Checkpoint,
    user: Any,
    principals: Sequence[str],
    others: "Mapping[str, QuerySet[Any]]",
    *,
    past: bool,
) -> Beside:
    """Read the few rows of many tables that the page shows beside checkpoints, those of
    `others`, and what its bar says. One query. `principals` are the person's, as just
    read.
    """
    requests = ApprovalRequest.objects.filter(run=run)
    events = timeline.events(run.id, after=_before_events(run, at, past))[:AROUND]
    pins = lasting_pins(at)
    receipts = _receipts(run, user)
    beside = read_together(
        start=timeline.start_of_log(run),
        events=events,
        asked=_open_requests(run),
        was_asked=Count(requests[:1]),
        pins=pins,
        receipts=receipts,
        **_people(events, pins, receipts),
        metadata=notes.metadata_rows(run, [notes.OF_RUN, at.seq]),
        sums=notes.sums_of_run(run.id),
        figures=notes.figure_rows(run, at.seq),
        earlier=run_gaps.kept_before(run, rows[-1].seq),
        **others,
        **inbox.bar_queries(principals),
    )
    beside["people"] = [*beside["actors"], *beside["pinning"], *beside["signing"]]
    people = {person.pk: person for person in beside["people"]}
    for row in (*beside["pins"], *beside["receipts"]):
        # The account is kept as it is where its row was not read.
        if row.by_id in people:
            row.by = people[row.by_id]
    return beside


def _people(
    events: "QuerySet[RunEvent]",
    pins: "QuerySet[Pin]",
    receipts: "QuerySet[Receipt]",
) -> "dict[str, QuerySet[Any]]":
    """Return the queries of the actors of these events, and of the people of these pins
    and receipts. Each by itself, because PostgreSQL would look at every account for
    conditions that are joined by OR.
    """
    model = get_user_model()
    people = model._base_manager
    named = {f"{model.USERNAME_FIELD}__in": events.values("actor")}
    return {
        "actors": people.filter(**named),
        "pinning": people.filter(pk__in=pins.values("by")),
        "signing": people.filter(pk__in=receipts.values("by")),
    }


def _receipts(run: Run, user: Any) -> "QuerySet[Receipt]":
    """Return the first receipts of a run that this person may read."""
    receipts = Receipt.objects.filter(run=run)
    if not permissions.may(user, "view_audit"):
        receipts = receipts.filter(by=user)
    return receipts.order_by("at").defer("lines", "seal")[:RECEIPTS]


def _graph_facts(run: Run, at: Checkpoint, snapshot: Payload, *, past: bool) -> Facts:
    """Return the nodes that come next, the picture, and how the run's version stands to
    the registered ones.
    """
    compiled = registry.find_graph(run.fingerprint)
    # The checkpoint may have been made by another version than the run is on now.
    compiled_at = registry.find_graph(at.fingerprint)
    todo: list[str] = []
    if snapshot and not past:
        todo = _todo(compiled, run, snapshot)
    picture: paint.Picture | None = None
    if snapshot and compiled_at:
        picture = _picture(compiled_at, run, at, snapshot, past=past)
    policy = "unknown here"
    is_current = False
    if compiled is not None:
        policy = policy_in_words(compiled)
        is_current = registry.current(compiled.name) is compiled
    return {
        "todo": todo,
        "picture": picture,
        "policy": policy,
        "same_version": is_current,
        "registered": any(graph.name == run.graph for graph in registry.all()),
    }


def _checkpoint_facts(
    run: Run,
    at: Checkpoint,
    refusal: str,
    way: run_lines.Way,
    beside: Beside,
) -> Facts:
    """Return the facts about the chosen checkpoint itself."""
    fault = fault_of(at, protection_of(run))
    nodes = [entry["node"] for entry in at.nodes]
    return {
        "at": at,
        "refused": refusal,
        "fault": fault,
        "broken": bool(refusal or fault),
        "alias": timeline.alias_of(at),
        "why": run_timeline.why_of(run, at),
        "nodes": ", ".join(dict.fromkeys(nodes)),
        "superseded": run_lines.is_superseded(at, way),
        "thread": facts_of_thread(run, at),
        "pinned": next(iter(beside["pins"]), None),
    }


def _lineage(
    run: Run,
    user: Any,
    rows: Sequence[Checkpoint],
    principals: Sequence[str],
    below: Beside | None,
) -> Facts:
    """Return where the run comes from and its relatives, as far as this person may see
    them. `principals` are the person's, as just read.
    """
    inherited: Any = []
    # Only a window that reaches the beginning has the origin's columns before it.
    if not rows[-1].seq:
        inherited = run_lineage.inherited_columns(user, run)
    return {
        "origin": run_lineage.origin_of(user, run),
        "inherited": inherited,
        "lineage": run_lineage.lineage_facts(user, run, principals, below),
    }


def _noted(run: Run, at: Checkpoint, beside: Beside) -> Facts:
    """Return the metadata of the run and of this checkpoint, the figures of its nodes,
    and the run's sums.
    """
    metadata = notes.metadata_in(beside["metadata"], run)
    return {
        "metadata": metadata.get(notes.OF_RUN, {}),
        "figures": notes.sums_in(beside["sums"]),
        "metadata_at": metadata.get(at.seq, {}),
        "figures_at": notes.figures_in(beside["figures"], run),
    }


def _ways_on(for_person: Facts, at: Checkpoint) -> Facts:
    """Return which of forking, replaying and rewinding a damaged run still offers at a
    checkpoint; nothing for a run without damage.

    Nothing goes on from the broken part of a tampered run, and the run itself goes
    nowhere.
    """
    problem = for_person["problem"]
    if not problem or problem.damage is None:
        return {}
    damage = problem.damage
    is_before = damage.seq is not None and at.seq < damage.seq
    return {
        "may_fork": for_person["may_fork"] and is_before,
        "may_steer": False,
        "tampered": True,
    }


def _snapshot(at: Checkpoint) -> tuple[Payload, str]:
    """Return the payload, or why it cannot be opened: the run stays visible with
    everything that needs no payload.
    """
    try:
        return timeline.snapshot_of(at), ""
    except UNREADABLE as error:
        return None, _why_unreadable(error)


def _why_unreadable(error: CountersignError) -> str:
    """Return why a checkpoint cannot be opened, without the names of tables and
    columns.
    """
    # A lost payload is named: a person who has a copy of its file can put it back.
    if isinstance(error, TamperedRow) and not isinstance(error, PayloadLost):
        return (
            "This checkpoint cannot be opened: it, or one that it builds on, "
            "is not what was written"
        )
    return f"This checkpoint {unreadable_reason(error)}"


def _timeline(
    run: Run,
    rows: list[Checkpoint],
    at: Checkpoint,
    beside: Beside,
    *,
    newest: Checkpoint,
    tab: str,
    way: run_lines.Way,
) -> Facts:
    """Return the tapes, the list, and the steps between them."""
    every = run_timeline.timeline_columns(run, rows, at, newest=newest.seq, tab=tab)
    columns, superseded = run_lines.split_columns(every, rows[::-1], way)
    # The list shows all lines in the order of time, where the tapes show them apart.
    listed = list(columns)
    for tape in superseded:
        listed += tape.columns
    listed.sort(key=lambda column: -column.seq)

    earlier: int | None = None
    earlier_url = ""
    for (number,) in beside["earlier"]:
        earlier = number
        earlier_url = url(run, at=earlier, tab=tab)
    steps = run_timeline.timeline_steps(
        run,
        at.seq,
        newest.seq,
        tab,
        [column.seq for column in columns],
        run_gaps.kept_behind(rows, at.seq, earlier),
    )
    return {
        "columns": columns,
        "left": superseded,
        "newest_first": listed,
        "total": newest.seq + 1,
        "earlier": earlier_url,
        "gaps": run_gaps.gaps_in(run, rows, earlier, tab=tab),
        "steps": steps,
    }


def _for_person(run: Run, user: Any, beside: Beside) -> Facts:
    """Return what the run asks, why it stopped, and which of the next steps this person
    may take.
    """
    asks = _asks(beside["asked"], user)
    has_open_writes = bool(asks.writes)
    standstill = run_lines.standstill_of(run, asks=has_open_writes)
    kind = run_lines.standing_kind(standstill, asks=has_open_writes)
    # The filters that draw a run read it from there.
    run.standing = RunStanding(kind=kind)  # type: ignore[attr-defined]

    # An imported run can be forked, but not moved itself; an erased one allows neither.
    # Tasks of an erased run can be settled still.
    may_settle = permissions.may(user, "settle_task") and not run.imported
    may_change = permissions.may(user, "steer_run") and run.erasure is None
    may_steer = may_change and not run.imported
    # Only its own engine has the graph of a thread.
    may_fork = may_change and not is_thread(run)
    problem = problem_of(
        run, asks=has_open_writes, may_steer=may_steer, may_settle=may_settle
    )
    return {
        "imported": _import_of(run),
        "may_export": permissions.may(user, "export_run"),
        "may_fork": may_fork,
        "problem": problem,
        "standstill": standstill,
        "may_settle": may_settle,
        "may_steer": may_steer,
        "may_cancel": may_steer and can_be_cancelled(run),
        "cancelled": cancelled(run),
        "begins_at": _begins_at(run),
        "review_writes": asks.writes,
        "mine": asks.mine,
        "asked_of": asks.of,
    }


def _import_of(run: Run) -> BundleImport | None:
    """Return how an imported run came in. One query, none for any other run."""
    if not run.imported:
        return None
    imports = BundleImport.objects.filter(run=run)
    return imports.select_related("by").first()


def _begins_at(run: Run) -> datetime | None:
    """Return the moment for which a queued run is scheduled, None once it is due."""
    if run.status != Status.QUEUED or not run.due_at:
        return None
    if run.due_at <= timezone.now():
        return None
    return run.due_at


def _detail(
    request: HttpRequest,
    run: Run,
    at: Checkpoint,
    snapshot: Payload,
    tab: str,
    *,
    past: bool,
) -> Facts:
    """Return the tabs with their counts, and the content of the chosen one."""
    detail, template = _tab(at, snapshot, tab, request.GET.dict())
    tabs: list[Facts] = []
    for name, (label, _) in tabs_of(run).items():
        is_chosen = name == tab
        # Only the chosen tab was read, so only its count is known.
        count = detail["count"] if is_chosen else None
        href = url(run, at=_shown_at(at, past), tab=name)
        entry = {
            "label": label,
            "on": is_chosen,
            "href": href,
            "count": count,
        }
        tabs.append(entry)
    return {"tabs": tabs, "detail": detail, "detail_template": template}


def _shown_at(at: Checkpoint, past: bool) -> int | None:
    """Return the number of the checkpoint for an address; None for the newest, so that
    the page follows the run.
    """
    return at.seq if past else None


def _tab(
    at: Checkpoint,
    snapshot: Payload,
    tab: str,
    query: dict[str, str],
) -> tuple[Facts, str]:
    """Return the content of a tab and its template; or why it cannot be shown."""
    try:
        # The log needs no payload.
        if snapshot is not None or tab == "events":
            _, read_tab = TABS[tab]
            detail = read_tab(at, snapshot or {}, query)
            return detail, f"orchestrator/_tab_{tab}.html"
        _, reason = _snapshot(at)
    except UNREADABLE as error:
        reason = _why_unreadable(error)
    return {"count": None, "why": reason}, "orchestrator/_tab_refused.html"


def _before_events(run: Run, at: Checkpoint, past: bool) -> int:
    """Return the number of the line before the few of the log around this checkpoint, at
    the newest one before the end of the log.
    """
    start = run.event_seq - AROUND
    if past:
        start = at.event_seq - AROUND // 2 - 1
    return max(0, start)


def _events(run: Run, at: Checkpoint, past: bool, beside: Beside) -> Facts:
    """Return a few lines of the log around this checkpoint; at the newest one the end
    of the log.
    """
    lines = run_details.around(
        beside["events"], protection_of(run), people=beside["people"]
    )
    first = 0
    last = 0
    if lines:
        first = lines[0].seq
        last = lines[-1].seq
    return {
        "events": lines,
        "first_event": first,
        "last_event": last,
        "events_url": url(run, at=_shown_at(at, past), tab="events"),
    }


def _signed(beside: Beside) -> Facts:
    """Return whether the run ever asked people, and its receipts that this person may
    read.
    """
    [requests] = beside["was_asked"]
    return {"was_asked": bool(requests), "receipts": beside["receipts"]}


def _open_requests(run: Run) -> "QuerySet[ApprovalRequest]":
    """Return what a run asks people now. Nothing is asked by a run that is closed to
    decisions, or that asks elsewhere.
    """
    if run.status in CLOSED_TO_DECISIONS or run.imported:
        return ApprovalRequest.objects.none()
    requests = ApprovalRequest.objects.filter(
        run=run, line=run.line, status=RequestStatus.OPEN
    )
    return requests.only("policy", "passed_tiers", "writes")


def _asks(requests: Iterable[ApprovalRequest], user: Any) -> Asks:
    """Return what these open requests of a run ask, and whom."""
    writes = 0
    reviewers: set[str] = set()
    for request in requests:
        writes += request.writes
        reviewers.update(request.reviewers_now)
    mine = False
    if reviewers:
        mine = not reviewers.isdisjoint(permissions.principals_shown(user))
    return Asks(writes, mine, asked_of(sorted(reviewers), user))


def _frontier_of(snapshot: Facts) -> Frontier:
    """Return the frontier of a checkpoint. Parts that it lacks are empty, so that its
    page is still drawn.
    """
    return Frontier.from_json(Frontier().to_json() | snapshot["frontier"])


def _todo(compiled: Compiled | None, run: Run, snapshot: Facts) -> list[str]:
    """Return the nodes that come next, for dashed columns at the end of the tape."""
    if compiled is None or run.status in ENDS or run.imported:
        return []
    # The run's version may lack an edge that the checkpoint's own version had.
    edges = plan.pending_edges(_frontier_of(snapshot))
    targets = [compiled.edge[edge].target for edge in edges if edge in compiled.edge]
    current = run.at_node.split(", ")
    following = [name for name in dict.fromkeys(targets) if name not in current]
    return following[:3]


def _picture(
    compiled: Compiled,
    run: Run,
    at: Checkpoint,
    snapshot: Facts,
    *,
    past: bool,
) -> paint.Picture:
    """Return the graph as it stood at the checkpoint."""
    frontier = _frontier_of(snapshot)
    running: set[str] = set()
    if run.status == Status.RUNNING and not past:
        step = plan.plan(compiled, frontier)
        running = {start.task.node for start in step.starts}
    moment = paint.RunMoment(
        visits=frontier.visits,
        here=_nodes_here(run, at, snapshot, past=past),
        running=running,
        failed={entry["node"] for entry in at.nodes if entry["outcome"] in STOPPED},
        skipped=plan.skipped(compiled, frontier),
        pending=plan.pending_edges(frontier),
    )
    drawing = paint.of_graph(compiled.nodes, compiled.edges)
    title = f"Graph {run.graph} at checkpoint {at.seq}"
    return paint.paint(drawing, compiled.edges, moment, title=title)


def _nodes_here(
    run: Run,
    at: Checkpoint,
    snapshot: Facts,
    *,
    past: bool,
) -> set[str]:
    """Return the nodes that wait for people at the checkpoint, or else those that ran
    for it; none at the end of a run.
    """
    if run.status in ENDS and not past:
        return set()
    waiting: set[str] = set()
    for key in run_details.held_rows(snapshot):
        node, _ = visit_of(key)
        waiting.add(node)
    if waiting:
        return waiting
    return {entry["node"] for entry in at.nodes}
