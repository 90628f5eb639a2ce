"""The page on which two runs stand side by side: where they split, their checkpoints in pairs, what differs and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from approvals import permissions
from approvals.models import Decision
from approvals.views.page import opens_payloads, read_number, render
from checkpoints import timeline
from checkpoints.core.alignment import in_words
from checkpoints.core.status import ENDS
from checkpoints.models import Checkpoint, Run, TaskResult
from checkpoints.models.checkpoint import Source
from checkpoints.models.task_result import Outcome
from checkpoints.timeline import Alignment, RunDifference
from checkpoints.timeline.past_effects import LEFT_LINES
from orchestrator.display.run_names import run_name
from orchestrator.engine.errors import UnknownThing
from orchestrator.views import run_details, run_lineage, run_timeline
from orchestrator.views.compare.tabs import TABS, only_different, same_values, state_of_a
from orchestrator.views.run_standings import read_kinds

COLUMNS = 60
"""Checkpoints of a run that are drawn."""
CHOICES = 8
"""Runs that are offered to compare with."""
LETTERS = ("A", "B", "C")
Facts = dict[str, Any]


@login_required
@require_safe
@opens_payloads
def compare_page(request: HttpRequest) -> HttpResponse:
    """Run `a` beside run `b`, as they are now or at the checkpoints `at` and `with_at`; where it is given, beside a
    third run `c` too, as it is now. Without two runs a choice.
    """
    given = [request.GET.get(name, "").strip() for name in ("a", "b", "c")]
    runs = permissions.visible_named(request.user, [ref for ref in given if ref])
    a, b, c = (_found(runs, ref) for ref in given)
    if a is None or b is None or a.id == b.id:
        return render(
            request, "orchestrator/compare_choice.html", {"page": _choice(request, (a, b))}, section="compare"
        )
    others = [b, *([c] if c is not None and c.id not in (a.id, b.id) else [])]
    try:
        pairs = [_aligned(request, a, one, at=_places(request) if one is b else None) for one in others]
    except UnknownThing as error:
        raise Http404(error.message) from error
    return render(request, "orchestrator/compare.html", {"page": _context(request, pairs)}, section="compare")


def _found(runs: Mapping[str, Run], ref: str) -> Run | None:
    """The run of that id or key, None where none was asked for. Raises `Http404` where it may not be seen."""
    if not ref:
        return None
    if ref not in runs:
        raise Http404(f"there is no run {ref[:80]}")
    return runs[ref]


def _aligned(request: HttpRequest, a: Run, other: Run, *, at: tuple[int, int] | None) -> Alignment:
    return timeline.align(a, other, at=at, among=permissions.visible_runs(request.user))


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


def _context(request: HttpRequest, pairs: Sequence[Alignment]) -> Facts:
    runs = [pairs[0].runs[0], *(one.runs[1] for one in pairs)]
    read_kinds(runs)
    here = {letter.lower(): str(run.id) for letter, run in zip(LETTERS, runs, strict=False)}
    tab, everything = request.GET.get("tab", ""), request.GET.get("all") == "1"
    query = {**here, **{name: request.GET[name] for name in ("at", "with_at") if request.GET.get(name)}}
    address = _Address(query, tab if tab in TABS else "state", everything=everything)
    swapped = {**here, "a": here["b"], "b": here["a"]}
    return {
        "sides": _sides(runs),
        "title": _named(runs),
        "swap": f"{reverse('compare')}?{urlencode(swapped)}",
        "here": here,
        "tabs": [(told, address.to(tab=name), name == address.tab) for name, (told, _) in TABS.items()],
        "tab": address.tab,
        "everything": everything,
        "toggle": address.to(all="" if everything else "1"),
        "pairs": [_pair(one, letter, here, address) for one, letter in zip(pairs, LETTERS[1:], strict=False)],
        "differences": sum(len(one.differences) for one in pairs),
        "now": f"{reverse('compare')}?{urlencode(here)}" if request.GET.get("at") else "",
        "other_graph": any(one.other_graph for one in pairs),
    }


@dataclass(frozen=True, slots=True)
class _Address:
    """What the address of the page says: the runs and checkpoints, the tab, and whether what is the same is shown."""

    query: dict[str, str]
    tab: str
    everything: bool

    def to(self, **other: str) -> str:
        said = {"tab": "" if self.tab == "state" else self.tab, "all": "1" if self.everything else "", **other}
        return f"{reverse('compare')}?{urlencode({**self.query, **{k: v for k, v in said.items() if v}})}"


def _named(runs: Sequence[Run]) -> str:
    names = [run_name(run) for run in runs]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _pair(found: Alignment, letter: str, here: dict[str, str], address: _Address) -> Facts:
    """A beside one other run."""
    rows = found.rows[:COLUMNS]
    letters = ("A", letter)
    export = {"with": str(found.runs[1].id)}
    if "at" in address.query and letter == "B":
        export |= {"at": str(found.at[0]), "with_at": str(found.at[1])}
    return {
        "letter": letter,
        "css": letter.lower(),
        "id": "" if letter == "B" else f"-{letter.lower()}",
        "at": found.at,
        "past": letter == "B" and "at" in address.query,
        "said": _said(found, letters),
        "shared": _shared(found),
        "lanes": [
            {"letter": one, "css": one.lower(), "run": run, "columns": _lane(found, rows, side, here)}
            for side, (one, run) in enumerate(zip(letters, found.runs, strict=True))
        ]
        if rows
        else [],
        "cut_rows": found.cut_rows or len(found.rows) > COLUMNS,
        "groups": _groups(found, letters, everything=address.everything) if address.tab == "state" else [],
        "rows": _tab_rows(found, address),
        "differences": len(found.differences),
        "cut": found.cut,
        "export": f"/api/v1/runs/{found.runs[0].id}/align/?{urlencode(export)}",
    }


def _tab_rows(found: Alignment, address: _Address) -> list[Facts]:
    reads = TABS[address.tab][1]
    if reads is None:
        return []
    rows = reads(found)
    return rows if address.everything else only_different(rows)


def _groups(found: Alignment, letters: tuple[str, str], *, everything: bool) -> list[Facts]:
    state = state_of_a(found) if everything else {}
    groups = [_group(name, found.differences, letters) for name in ("input", "scratch", "artifacts")]
    for group in groups:
        group["same"] = same_values(found, group["name"], state) if everything else []
    return groups


def _sides(runs: Sequence[Run]) -> list[Facts]:
    done = TaskResult.objects.filter(run__in=[run.id for run in runs], outcome=Outcome.DONE)
    # What forks did that were removed is kept with a run, and is not its own.
    done = done.exclude(line__in=LEFT_LINES)
    calls = {row["run"]: row["n"] for row in done.values("run").annotate(n=Count("id")).order_by()}
    decided = _decisions_of(runs)
    return [
        {
            "letter": letter,
            "css": letter.lower(),
            "run": run,
            "calls": calls.get(run.id, 0),
            "decisions": decided.get(run.id, 0),
        }
        for letter, run in zip(LETTERS, runs, strict=False)
    ]


def _decisions_of(runs: Sequence[Run]) -> dict[UUID, int]:
    """Return how many decisions people made in each run. What a fork inherited was decided in its origin. One query."""
    rows = Decision.objects.filter(run__in=[run.id for run in runs], by__isnull=False).order_by()
    return {row["run"]: row["n"] for row in rows.values("run").annotate(n=Count("id"))}


def _said(found: Alignment, letters: tuple[str, str]) -> str:
    """Where they split, in a sentence."""
    if found.split is None:
        return "They share no checkpoint"
    a, b = found.split
    upto = str(a.seq) if a.seq == b.seq else f"{a.seq} of {letters[0]}, {b.seq} of {letters[1]}"
    one_sided = not all(any(row[side] for row in found.rows) for side in range(2))
    if found.cut_rows and one_sided:
        return f"These runs are the same at least up to checkpoint {upto}"
    if not found.rows:
        return f"These runs are the same to their ends, checkpoint {upto}"
    for side, letter in enumerate(letters):
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
    found: Alignment, rows: Sequence[tuple[Checkpoint | None, Checkpoint | None]], side: int, here: dict[str, str]
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
            columns.append(_column(found, pair, row, here))
    return columns


def _column(
    found: Alignment, pair: tuple[Checkpoint | None, Checkpoint | None], row: Checkpoint, query: dict[str, str]
) -> Facts:
    a, b = pair
    seqs = (a.seq, b.seq) if a is not None and b is not None else None
    own = all(one is not None and one.run_id == run.id for one, run in zip(pair, found.runs, strict=True))
    own = own and query["b"] == str(found.runs[1].id)  # a third run is compared as it is now
    there = f"{reverse('run', args=[row.run_id])}?at={row.seq}"
    here = (
        f"{reverse('compare')}?{urlencode({**query, 'at': str(seqs[0]), 'with_at': str(seqs[1])})}"
        if seqs and own
        else ""
    )
    return {
        "seq": row.seq,
        "name": run_timeline.name_of(row),
        "why": run_timeline.WHY[Source(row.source)] if row.nodes and row.source != Source.SUPERSTEP else "",
        "blocks": run_timeline.blocks_of(row),
        "href": here or there,
        "here": seqs is not None and own and seqs == found.at,
        "what": "Compare here" if here else "Open",
    }


def _group(name: str, differences: Sequence[RunDifference], letters: tuple[str, str]) -> Facts:
    mine = [one for one in differences if one.partition == name]
    return {"name": name, "rows": [_difference(one, letters) for one in mine], "total": len(mine)}


def _difference(one: RunDifference, letters: tuple[str, str]) -> Facts:
    only = {"removed": letters[0], "added": letters[1]}.get(one.kind, "")
    sign, word = (only, f"only in {only}") if only else ("~", "differs")
    before, after = run_details.shown_pair(one.kind, one.a, one.b)
    stem, dot, last = one.path.rpartition(".")
    return {
        "sign": sign,
        "word": word,
        "stem": stem + dot,
        "leaf": last or "all",
        "a": before,
        "b": after,
        "why": in_words(one.reason, letters),
    }
