"""The page on which two runs stand side by side: where they split, their checkpoints in pairs, what differs and why."""

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from approvals import permissions
from approvals.views.page import opens_payloads, read_number, render, visible_run
from checkpoints import timeline
from checkpoints.core.alignment import in_words
from checkpoints.core.status import ENDS
from checkpoints.models import Checkpoint, Run, TaskResult
from checkpoints.models.checkpoint import Source
from checkpoints.models.task_result import Outcome
from checkpoints.timeline import Alignment, RunDifference
from orchestrator.engine.errors import UnknownThing
from orchestrator.views import run_details, run_lineage, run_timeline

COLUMNS = 60
"""Checkpoints of a run that are drawn."""
CHOICES = 8
"""Runs that are offered to compare with."""
LETTERS = ("A", "B")
Facts = dict[str, Any]


@login_required
@require_safe
@opens_payloads
def compare_page(request: HttpRequest) -> HttpResponse:
    """Run `a` beside run `b`, as they are now or at the checkpoints `at` and `with_at`; without both a choice."""
    given = [request.GET.get(name, "").strip() for name in ("a", "b")]
    runs = [visible_run(request.user, ref) if ref else None for ref in given]
    a, b = runs
    if a is None or b is None or a.id == b.id:
        return render(request, "orchestrator/compare_choice.html", {"page": _choice(request, runs)}, section="compare")
    try:
        found = timeline.align(a, b, at=_places(request), among=permissions.visible_runs(request.user))
    except UnknownThing as error:
        raise Http404(error.message) from error
    return render(request, "orchestrator/compare.html", {"page": _context(request, a, b, found)}, section="compare")


def _places(request: HttpRequest) -> tuple[int, int] | None:
    texts = [request.GET.get(name, "") for name in ("at", "with_at")]
    if not any(texts):
        return None
    at, with_at = (read_number(text) for text in texts)
    if at is None or with_at is None:
        raise Http404("two checkpoints are compared, or none")
    return at, with_at


def _choice(request: HttpRequest, runs: Sequence[Run | None]) -> Facts:
    """What is chosen so far, and what may be taken beside it."""
    a, b = runs
    known = a or b
    visible = permissions.visible_runs(request.user)
    shown = visible.filter(graph=known.graph).exclude(id=known.id) if known else visible
    return {
        "a": a,
        "b": b if a is None or b is None or a.id != b.id else None,
        "twice": a is not None and b is not None,
        "known": known,
        "tree": run_lineage.lineage_facts(request.user, known) if known else None,
        "choices": list(_offered(shown)),
    }


def _offered(runs: "QuerySet[Run]") -> "QuerySet[Run]":
    return runs.only("id", "key", "label", "status", "graph", "created_at").order_by("-created_at", "-id")[:CHOICES]


def _context(request: HttpRequest, a: Run, b: Run, found: Alignment) -> Facts:
    path, here = reverse("compare"), {"a": str(a.id), "b": str(b.id)}
    rows = found.rows[:COLUMNS]
    return {
        "sides": _sides((a, b)),
        "title": f"Two runs of {a}" if str(a) == str(b) else f"{a} and {b}",
        "swap": f"{path}?{urlencode({'a': str(b.id), 'b': str(a.id)})}",
        "now": f"{path}?{urlencode(here)}" if request.GET.get("at") else "",
        "at": found.at,
        "said": _said(found),
        "shared": _shared(found),
        "lanes": [
            {"letter": letter, "css": letter.lower(), "run": run, "columns": _lane(found, rows, side, path)}
            for side, (letter, run) in enumerate(zip(LETTERS, (a, b), strict=True))
        ]
        if rows
        else [],
        "cut_rows": found.cut_rows or len(found.rows) > COLUMNS,
        "groups": [_group(name, found.differences) for name in ("input", "scratch", "artifacts")],
        "differences": len(found.differences),
        "cut": found.cut,
        "other_graph": found.other_graph,
    }


def _sides(runs: Sequence[Run]) -> list[Facts]:
    done = TaskResult.objects.filter(run__in=[run.id for run in runs], outcome=Outcome.DONE)
    calls = {row["run"]: row["n"] for row in done.values("run").annotate(n=Count("id")).order_by()}
    return [
        {"letter": letter, "css": letter.lower(), "run": run, "calls": calls.get(run.id, 0)}
        for letter, run in zip(LETTERS, runs, strict=True)
    ]


def _said(found: Alignment) -> str:
    """Where they split, in a sentence."""
    if found.split is None:
        return "They share no checkpoint"
    a, b = found.split
    upto = str(a.seq) if a.seq == b.seq else f"{a.seq} of A, {b.seq} of B"
    one_sided = not all(any(row[side] for row in found.rows) for side in range(2))
    if found.cut_rows and one_sided:
        return f"These runs are the same at least up to checkpoint {upto}"
    if not found.rows:
        return f"These runs are the same to their ends, checkpoint {upto}"
    for side, letter in enumerate(LETTERS):
        if not any(row[side] for row in found.rows):
            return f"These runs are the same up to {upto}, where {letter} {_stands(found.runs[side])}"
    return f"They split after checkpoint {upto}"


def _stands(run: Run) -> str:
    return "ends" if run.status in ENDS else "stands"


def _shared(found: Alignment) -> str:
    if found.split is None:
        return ""
    a, b = found.split
    return f"0 to {a.seq}" if a.seq == b.seq else f"0 to {a.seq} and 0 to {b.seq}"


def _lane(
    found: Alignment, rows: Sequence[tuple[Checkpoint | None, Checkpoint | None]], side: int, path: str
) -> list[Facts]:
    """The columns of one run; where it has nothing beside the other, whether it may still come."""
    last = max((n for n, row in enumerate(found.rows) if row[side] is not None), default=-1)
    ended = found.runs[side].status in ENDS
    columns = []
    for n, pair in enumerate(rows):
        row = pair[side]
        if row is None:
            columns.append({"missing": "not on this path" if n < last or ended else "not yet"})
        else:
            columns.append(_column(found, pair, row, path))
    return columns


def _column(found: Alignment, pair: tuple[Checkpoint | None, Checkpoint | None], row: Checkpoint, path: str) -> Facts:
    a, b = pair
    seqs = (a.seq, b.seq) if a is not None and b is not None else None
    own = all(one is not None and one.run_id == run.id for one, run in zip(pair, found.runs, strict=True))
    query = {"a": str(found.runs[0].id), "b": str(found.runs[1].id)}
    there = f"{reverse('run', args=[row.run_id])}?at={row.seq}"
    here = f"{path}?{urlencode({**query, 'at': str(seqs[0]), 'with_at': str(seqs[1])})}" if seqs and own else ""
    return {
        "seq": row.seq,
        "name": run_timeline.name_of(row),
        "why": run_timeline.WHY[Source(row.source)] if row.nodes and row.source != Source.SUPERSTEP else "",
        "blocks": run_timeline.blocks_of(row),
        "href": here or there,
        "here": seqs is not None and own and seqs == found.at,
        "what": "Compare here" if here else "Open",
    }


def _group(name: str, differences: Sequence[RunDifference]) -> Facts:
    mine = [one for one in differences if one.partition == name]
    return {"name": name, "rows": [_difference(one) for one in mine], "total": len(mine)}


_MARKS = {"changed": ("~", "differs"), "removed": ("A", "only in A"), "added": ("B", "only in B")}


def _difference(one: RunDifference) -> Facts:
    sign, word = _MARKS[one.kind]
    before, after = run_details.shown_pair(one.kind, one.a, one.b)
    stem, dot, last = one.path.rpartition(".")
    return {
        "sign": sign,
        "word": word,
        "stem": stem + dot,
        "leaf": last or "all",
        "a": before,
        "b": after,
        "why": in_words(one.reason),
    }
