"""The run page: where a run is, its checkpoints, what each changed, the one next step; and resuming a stopped run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from approvals import permissions
from approvals.models import ApprovalRequest, Receipt, RequestStatus
from approvals.views.inbox import asked_of
from approvals.views.page import may_post, opens_payloads, read_number, render, single_fields, visible_run
from checkpoints import timeline
from checkpoints.core.status import CLOSED_TO_DECISIONS, ENDS, Status
from checkpoints.ledger import notes
from checkpoints.models import BundleImport, Checkpoint, Run
from checkpoints.models.checkpoint import Source
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import unreadable_reason
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import runs
from orchestrator.display.diagram import paint
from orchestrator.engine import plan, registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import REFUSALS, UNREADABLE, CountersignError, PayloadLost, TamperedRow
from orchestrator.engine.frontier import Frontier, visit_of
from orchestrator.views import run_details, run_gaps, run_lineage, run_lines, run_paths, run_timeline
from orchestrator.views.cancel import can_be_cancelled, cancelled
from orchestrator.views.graphs import policy_in_words
from orchestrator.views.retention.pin import lasting_pin
from orchestrator.views.run_details import TABS
from orchestrator.views.run_problem import problem_of
from orchestrator.views.run_standings import Standing
from orchestrator.views.run_timeline import STOPPED, WHY, url

Facts = dict[str, Any]
Payload = Facts | None
"""What a checkpoint holds; None where it cannot be opened."""

WINDOW = 60
AROUND = 8
RECEIPTS = 10
"""Receipts that a run's page names."""


@dataclass(frozen=True, slots=True)
class Asks:
    """What the run asks of people now."""

    writes: int
    mine: bool
    of: str


@login_required
@require_safe
@opens_payloads
def run_page(request: HttpRequest, ref: str) -> HttpResponse:
    """The run at the checkpoint `at`; without it, at the newest."""
    run = visible_run(request.user, ref)
    rows, newest = _window(run, request.GET.get("at", ""))
    at = _chosen(rows, request.GET.get("at", ""))
    tab = request.GET.get("tab", "changed")
    context = _context(request, run, rows, at, newest=newest, tab=tab if tab in TABS else "changed")
    return render(request, "orchestrator/run.html", {"page": context}, section="runs")


@login_required
@require_http_methods(["GET", "POST"])
@single_fields()
def resume_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Queue a run again that stopped, or that waits for a yes or for a start; `allow-<node>` is a yes. Whoever had to
    sign in first arrives by GET, without his choice, and is told so.
    """
    run = visible_run(request.user, ref)
    if request.method == "GET":
        unsent = "Nothing was resumed: your choice did not arrive. Press the button again."
        messages.warning(request, unsent, extra_tags="bad")
        return redirect("run", run.id)
    if not may_post(request, run, "steer_run", refusal="refused_resume"):
        raise PermissionDenied("You may not steer runs, so nothing was resumed.")
    allowed = [name.removeprefix("allow-") for name in request.POST if name.startswith("allow-")]
    try:
        runs.resume(run.id, allow_effects=allowed, by=request.user)  # type: ignore[arg-type]
    except REFUSALS as error:
        messages.warning(request, f"Not resumed: {error.message}.", extra_tags="bad")
    return redirect("run", run.id)


def _window(run: Run, wanted: str) -> tuple[list[Checkpoint], Checkpoint]:
    """Up to `WINDOW` checkpoints around the wanted one, newest first; and the newest of all."""
    rows = timeline.list_checkpoints(run.id, limit=WINDOW)
    if not rows:
        raise Http404("the run has no checkpoint")
    newest = rows[0]
    number = read_number(wanted)
    if number is not None and number < rows[-1].seq:
        number = run_gaps.nearest_kept(run, number) or 0
        rows = timeline.list_checkpoints(run.id, limit=WINDOW, before=number + WINDOW // 2)
    return rows, newest


def _chosen(rows: Sequence[Checkpoint], wanted: str) -> Checkpoint:
    if not wanted:
        return rows[0]
    number = read_number(wanted)
    # One that was cleaned up is answered with the next one that was kept, and the page says so.
    found = [row for row in rows if number is not None and row.seq >= number]
    if not found:
        raise Http404(f"the run has no checkpoint {wanted[:20]}")
    return found[-1]


def _context(
    request: HttpRequest, run: Run, rows: list[Checkpoint], at: Checkpoint, *, newest: Checkpoint, tab: str
) -> Facts:
    compiled, drawn = registry.find_graph(run.fingerprint), registry.find_graph(at.fingerprint)
    at = timeline.get_checkpoint(at.id)
    snapshot, refused = _snapshot(at)
    past, way = at.seq != newest.seq, run_lines.way_of(run)
    return {
        "run": run,
        "at": at,
        "newest": newest,
        "past": past,
        "tab": tab,
        "now_url": url(run, at=None, tab=tab),
        "todo": _todo(compiled, run, snapshot) if snapshot and not past else [],
        "picture": _picture(drawn, run, at, snapshot, past=past) if snapshot and drawn else None,
        "refused": refused,
        "fault": (fault := fault_of(at, protection_of(run))),
        "broken": bool(refused or fault),
        "run_fault": timeline.fault_of_run(run),
        "policy": policy_in_words(compiled) if compiled else "unknown here",
        "same_version": compiled is not None and registry.current(compiled.name) is compiled,
        "registered": any(one.name == run.graph for one in registry.all()),
        "alias": timeline.alias_of(at),
        "why": WHY[Source(at.source)],
        "nodes": ", ".join(dict.fromkeys(entry["node"] for entry in at.nodes)),
        "superseded": run_lines.is_superseded(at, way),
        "pinned": lasting_pin(at),
        **_noted(run, at),
        "may_pin": permissions.may(request.user, "manage_retention"),
        **_timeline(run, rows, at, newest=newest, tab=tab, way=way),
        "has_role": permissions.has_role(request.user),
        **(asked := _for_person(run, request.user)),
        **_signed(run, request.user, asked=bool(asked["review_writes"])),
        "origin": run_lineage.origin_of(request.user, run),
        "inherited": run_lineage.inherited_columns(request.user, run) if not rows[-1].seq else [],
        "lineage": run_lineage.lineage_facts(request.user, run),
        "watched": run_paths.watched_path(request.user, run, at, request.GET.get("path", ""), tab=tab),
        **_events(run, at, past),
        **_detail(request, run, at, snapshot, tab, past=past),
    } | _ways_on(asked, at)


def _noted(run: Run, at: Checkpoint) -> Facts:
    """Return the metadata of the run and of this checkpoint, the figures of its nodes, and the run's sums."""
    metadata = notes.metadata_at(run, [notes.OF_RUN, at.seq])
    return {
        "metadata": metadata.get(notes.OF_RUN, {}),
        "figures": notes.figures_of_run(run.id),
        "metadata_at": metadata.get(at.seq, {}),
        "figures_at": notes.figures_at(run, at.seq),
    }


def _ways_on(asked: Facts, at: Checkpoint) -> Facts:
    """Return what of forking, replaying and rewinding is offered at a checkpoint of a run with this problem.

    Nothing goes on from the broken part of a tampered run, and the run itself goes nowhere.
    """
    damage = asked["problem"].damage if asked["problem"] else None
    if damage is None:
        return {}
    before = damage.seq is not None and at.seq < damage.seq
    return {"may_fork": asked["may_fork"] and before, "may_steer": False, "tampered": True}


def _snapshot(at: Checkpoint) -> tuple[Payload, str]:
    """The payload; or why it cannot be opened: the run stays visible with all that needs none."""
    try:
        return timeline.snapshot_of(at), ""
    except UNREADABLE as error:
        return None, _why_unreadable(error)


def _why_unreadable(error: CountersignError) -> str:
    """Return why a checkpoint cannot be opened, without the names of tables and columns."""
    # A payload that is gone is named: who has a copy of its file can put it back.
    if isinstance(error, TamperedRow) and not isinstance(error, PayloadLost):
        return "This checkpoint cannot be opened: it, or one that it builds on, is not what was written"
    return f"This checkpoint {unreadable_reason(error)}"


def _timeline(
    run: Run, rows: list[Checkpoint], at: Checkpoint, *, newest: Checkpoint, tab: str, way: run_lines.Way
) -> dict[str, Any]:
    """The tapes, the list, and the steps between them."""
    every = run_timeline.timeline_columns(run, rows, at, newest=newest.seq, tab=tab)
    columns, left = run_lines.split_columns(every, rows[::-1], way)
    earlier = run_gaps.kept_before(run, rows[-1].seq)
    found = columns + [column for tape in left for column in tape.columns]
    return {
        "columns": columns,
        "left": left,
        "newest_first": sorted(found, key=lambda column: -column.seq),
        "total": newest.seq + 1,
        "earlier": "" if earlier is None else url(run, at=earlier, tab=tab),
        "gaps": run_gaps.gaps_in(run, rows, earlier, tab=tab),
        "steps": run_timeline.timeline_steps(
            run,
            at.seq,
            newest.seq,
            tab,
            [column.seq for column in columns],
            run_gaps.kept_behind(rows, at.seq, earlier),
        ),
    }


def _for_person(run: Run, user: Any) -> dict[str, Any]:
    """What the run asks, why it stopped, and which of the next steps are this person's."""
    asks = _asks(run, user)
    standstill = run_lines.standstill_of(run, asks=bool(asks.writes))
    kind = run_lines.standing_kind(standstill, asks=bool(asks.writes))
    run.standing = Standing(kind=kind)  # type: ignore[attr-defined]
    may_settle = permissions.may(user, "settle_task") and not run.imported
    may_fork = permissions.may(user, "steer_run") and run.erasure is None
    may_steer = may_fork and not run.imported
    return {
        "imported": BundleImport.objects.filter(run=run).select_related("by").first() if run.imported else None,
        "may_export": permissions.may(user, "export_run"),
        "may_fork": may_fork,
        "problem": problem_of(run, asks=bool(asks.writes), may_steer=may_steer, may_settle=may_settle),
        "standstill": standstill,
        "may_settle": may_settle,
        "may_steer": may_steer,
        "may_cancel": may_steer and can_be_cancelled(run),
        "cancelled": cancelled(run),
        "begins_at": run.due_at if run.status == Status.QUEUED and run.due_at and run.due_at > timezone.now() else None,
        "review_writes": asks.writes,
        "mine": asks.mine,
        "asked_of": asks.of,
    }


def _detail(request: HttpRequest, run: Run, at: Checkpoint, snapshot: Payload, tab: str, *, past: bool) -> Facts:
    detail, template = _tab(at, snapshot, tab, request.GET.dict())
    counts = {"writes": len(run_details.held_rows(snapshot)) or None if snapshot else None, tab: detail["count"]}
    tabs = [
        {
            "label": label,
            "on": name == tab,
            "href": url(run, at=at.seq if past else None, tab=name),
            "count": counts.get(name) if name == tab else None,
        }
        for name, (label, _) in TABS.items()
    ]
    return {"tabs": tabs, "detail": detail, "detail_template": template}


def _tab(at: Checkpoint, snapshot: Payload, tab: str, query: dict[str, str]) -> tuple[Facts, str]:
    try:
        if snapshot is not None or tab == "events":
            return TABS[tab][1](at, snapshot or {}, query), f"orchestrator/_tab_{tab}.html"
        why = _snapshot(at)[1]
    except UNREADABLE as error:
        why = _why_unreadable(error)
    return {"count": None, "why": why}, "orchestrator/_tab_refused.html"


def _events(run: Run, at: Checkpoint, past: bool) -> dict[str, Any]:
    """A few lines up to this point and after it; at the newest checkpoint the end of the log."""
    start = max(0, at.event_seq - AROUND // 2 - 1) if past else max(0, run.event_seq - AROUND)
    found = run_details.around(timeline.events_after(run.id, start, limit=AROUND), protection_of(run))
    return {
        "events": found,
        "first_event": found[0].seq if found else 0,
        "last_event": found[-1].seq if found else 0,
        "events_url": url(run, at=at.seq if past else None, tab="events"),
    }


def _signed(run: Run, user: Any, *, asked: bool) -> dict[str, Any]:
    """Whether people were ever asked, and the receipts of the run that this person may read."""
    receipts = Receipt.objects.filter(run=run).select_related("by").order_by("at")
    if not permissions.may(user, "view_audit"):
        receipts = receipts.filter(by=user)
    return {
        "was_asked": asked or ApprovalRequest.objects.filter(run=run).exists(),
        "receipts": list(receipts.defer("lines", "seal")[:RECEIPTS]),
    }


def _asks(run: Run, user: Any) -> Asks:
    if run.status in CLOSED_TO_DECISIONS or run.imported:
        return Asks(0, False, "")
    requests = list(ApprovalRequest.objects.filter(run=run, line=run.line, status=RequestStatus.OPEN))
    names = sorted({p for one in requests for p in one.policy["reviewers"]})
    mine = bool(names) and not set(names).isdisjoint(permissions.principals_of(user))
    return Asks(sum(one.writes for one in requests), mine, asked_of(names, user))


def _todo(compiled: Compiled | None, run: Run, snapshot: dict[str, Any]) -> list[str]:
    """The nodes that come next, as dashed columns at the end of the tape."""
    if compiled is None or run.status in ENDS or run.imported:
        return []
    edges = plan.pending_edges(Frontier.from_json(snapshot["frontier"]))
    names = dict.fromkeys(compiled.edge[edge].target for edge in edges if edge in compiled.edge)
    return [name for name in names if name not in run.at_node.split(", ")][:3]


def _picture(compiled: Compiled, run: Run, at: Checkpoint, snapshot: dict[str, Any], *, past: bool) -> paint.Picture:
    frontier = Frontier.from_json(snapshot["frontier"])
    ended = run.status in ENDS and not past
    stopped = {entry["node"] for entry in at.nodes if entry["outcome"] in STOPPED}
    waiting = {visit_of(key)[0] for key in run_details.held_rows(snapshot)}
    going = {start.task.node for start in plan.plan(compiled, frontier).starts}
    moment = paint.Moment(
        visits=frontier.visits,
        here=() if ended else waiting or {entry["node"] for entry in at.nodes},
        running=going if run.status == Status.RUNNING and not past else (),
        failed=stopped,
        skipped=plan.skipped(compiled, frontier),
        pending=plan.pending_edges(frontier),
    )
    drawing = paint.of_graph(compiled.nodes, compiled.edges)
    return paint.paint(drawing, compiled.edges, moment, title=f"Graph {run.graph} at checkpoint {at.seq}")
