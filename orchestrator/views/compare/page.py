"""The page that compares two runs, or three: the point where they split, their
checkpoints in pairs, and the differences with their reasons.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from approvals import permissions
from approvals.display.drawn_change import (
    NOT_THERE,
    ONE_LINE,
    draw_change,
    sides_of,
)
from approvals.models import Decision
from approvals.views.page import opens_payloads, read_number, render
from checkpoints import timeline
from checkpoints.core.alignment import in_words
from checkpoints.core.status import ENDS
from checkpoints.models import Run, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.timeline import Alignment, RunDifference
from checkpoints.timeline.past_effects import LEFT_LINES
from orchestrator.display.run_names import run_name
from orchestrator.engine.errors import UnknownThing
from orchestrator.views import run_lineage
from orchestrator.views.compare.address import Address, address_of, compare_url
from orchestrator.views.compare.lanes import COLUMNS, lanes_of
from orchestrator.views.compare.tabs import (
    TABS,
    only_different,
    same_values,
    state_of_a,
)
from orchestrator.views.run_standings import read_kinds

CHOICES = 8
"""The most runs that are offered to compare with."""
LETTERS = ("A", "B", "C")
Facts = dict[str, Any]


@login_required
@require_safe
@opens_payloads
def compare_page(request: HttpRequest) -> HttpResponse:
    """Show run `a` beside run `b`, as they are now or at the checkpoints `at` and
    `with_at`; and beside a third run `c`, if it is named, as it is now. Without two
    runs, show a choice.
    """
    refs = [request.GET.get(name, "").strip() for name in ("a", "b", "c")]
    runs = permissions.visible_named(request.user, [ref for ref in refs if ref])
    a, b, c = (_visible_run(runs, ref) for ref in refs)
    if a is None or b is None or a.id == b.id:
        context = {"page": _choice(request, a, b)}
        return render(
            request, "orchestrator/compare_choice.html", context, section="compare"
        )
    try:
        pairs = _alignments(request, a, b, c)
    except UnknownThing as error:
        raise Http404(error.message) from error
    context = {"page": _context(request, pairs)}
    return render(request, "orchestrator/compare.html", context, section="compare")


def _visible_run(runs: Mapping[str, Run], ref: str) -> Run | None:
    """Return the run of that id or key, None if none is named.

    Raises `Http404` if this person may not see it.
    """
    if not ref:
        return None
    if ref not in runs:
        raise Http404(f"there is no run {ref[:80]}")
    return runs[ref]


def _alignments(request: HttpRequest, a: Run, b: Run, c: Run | None) -> list[Alignment]:
    """Return A beside B, at the checkpoints in the address, and beside another run C."""
    pairs = [_aligned(request, a, b, at=_places(request))]
    if c is not None and c.id not in (a.id, b.id):
        pairs.append(_aligned(request, a, c, at=None))
    return pairs


def _aligned(
    request: HttpRequest, a: Run, other: Run, *, at: tuple[int, int] | None
) -> Alignment:
    among = permissions.visible_relatives(request.user)
    return timeline.align(a, other, at=at, among=among)


def _places(request: HttpRequest) -> tuple[int, int] | None:
    """Return the numbers of the two checkpoints in the address, None without them."""
    texts = [request.GET.get(name, "") for name in ("at", "with_at")]
    if not any(texts):
        return None
    at, with_at = (read_number(text) for text in texts)
    if at is None or with_at is None:
        raise Http404("two checkpoints are compared, or none")
    return at, with_at


def _choice(request: HttpRequest, a: Run | None, b: Run | None) -> Facts:
    """Return the runs that are chosen so far, and those to compare them with."""
    # Two runs lead here only if they are the same one.
    is_same_twice = a is not None and b is not None
    chosen = a or b
    offered = permissions.visible_runs(request.user)
    tree = None
    if chosen:
        offered = offered.filter(graph=chosen.graph).exclude(id=chosen.id)
        tree = run_lineage.lineage_facts(request.user, chosen)
    return {
        "a": a,
        "b": None if is_same_twice else b,
        "twice": is_same_twice,
        "known": chosen,
        "tree": tree,
        "choices": list(_offered(offered)),
    }


def _offered(runs: "QuerySet[Run]") -> "QuerySet[Run]":
    return runs.only("id", "key", "label", "status", "graph", "created_at").order_by(
        "-created_at", "-id"
    )[:CHOICES]


def _context(request: HttpRequest, pairs: Sequence[Alignment]) -> Facts:
    runs = [pairs[0].runs[0], *(pair.runs[1] for pair in pairs)]
    read_kinds(runs)
    # The runs by their letter, as an address names them.
    here: dict[str, str] = {}
    for letter, run in zip(LETTERS, runs, strict=False):
        here[letter.lower()] = str(run.id)

    address = address_of(request, here)
    pair_facts: list[Facts] = []
    for letter, pair in zip(LETTERS[1:], pairs, strict=False):
        pair_facts.append(_pair(pair, letter, here, address))

    opposite = "" if address.everything else "1"
    now = ""
    if request.GET.get("at"):
        now = compare_url(here)
    return {
        "sides": _sides(runs),
        "title": _title(runs),
        "swap": compare_url({**here, "a": here["b"], "b": here["a"]}),
        "here": here,
        "tabs": _tabs(address),
        "tab": address.tab,
        "everything": address.everything,
        "toggle": address.to(all=opposite),
        "pairs": pair_facts,
        "differences": sum(len(pair.differences) for pair in pairs),
        "now": now,
        "other_graph": any(pair.other_graph for pair in pairs),
    }


def _tabs(address: Address) -> list[tuple[str, str, bool]]:
    """Return title and address of each tab, and whether it is the one shown."""
    tabs: list[tuple[str, str, bool]] = []
    for name, (title, _) in TABS.items():
        tabs.append((title, address.to(tab=name), name == address.tab))
    return tabs


def _title(runs: Sequence[Run]) -> str:
    names = [run_name(run) for run in runs]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _pair(
    alignment: Alignment, letter: str, here: dict[str, str], address: Address
) -> Facts:
    """Return A beside one other run."""
    letters = ("A", letter)
    # Only B is compared at a checkpoint; a third run is compared as it is now.
    past = letter == "B" and "at" in address.query
    export = {"with": str(alignment.runs[1].id)}
    if past:
        export["at"] = str(alignment.at[0])
        export["with_at"] = str(alignment.at[1])
    groups: list[Facts] = []
    if address.tab == "state":
        groups = _groups(alignment, letters, everything=address.everything)
    return {
        "letter": letter,
        "css": letter.lower(),
        "id": "" if letter == "B" else f"-{letter.lower()}",
        "at": alignment.at,
        "past": past,
        "said": _split_in_words(alignment, letters),
        "shared": _shared(alignment),
        "lanes": lanes_of(alignment, letters, here),
        "cut_rows": alignment.cut_rows or len(alignment.rows) > COLUMNS,
        "groups": groups,
        "rows": _tab_rows(alignment, address),
        "differences": len(alignment.differences),
        "cut": alignment.cut,
        "export": f"/api/v1/runs/{alignment.runs[0].id}/align/?{urlencode(export)}",
    }


def _tab_rows(alignment: Alignment, address: Address) -> list[Facts]:
    _, read = TABS[address.tab]
    if read is None:
        return []
    rows = read(alignment)
    return rows if address.everything else only_different(rows)


def _groups(
    alignment: Alignment, letters: tuple[str, str], *, everything: bool
) -> list[Facts]:
    """Return the differences by partition; with `everything`, the equal values too."""
    groups: list[Facts] = []
    for name in ("input", "scratch", "artifacts"):
        groups.append(_group(name, alignment.differences, letters))
    if everything:
        state = state_of_a(alignment)
        for group in groups:
            group["same"] = same_values(alignment, group["name"], state)
    return groups


def _sides(runs: Sequence[Run]) -> list[Facts]:
    done = TaskResult.objects.filter(
        run__in=[run.id for run in runs], outcome=Outcome.DONE
    )
    # The run keeps results of its forks that were removed; they are not its own.
    done = done.exclude(line__in=LEFT_LINES)
    counted = done.values("run").annotate(n=Count("id")).order_by()
    calls = {row["run"]: row["n"] for row in counted}
    decisions = _decisions_of(runs)
    sides: list[Facts] = []
    for letter, run in zip(LETTERS, runs, strict=False):
        sides.append(
            {
                "letter": letter,
                "css": letter.lower(),
                "run": run,
                "calls": calls.get(run.id, 0),
                "decisions": decisions.get(run.id, 0),
            }
        )
    return sides


def _decisions_of(runs: Sequence[Run]) -> dict[UUID, int]:
    """Return how many decisions people made in each run. What a fork inherited was
    decided in its origin. One query.
    """
    rows = Decision.objects.filter(run__in=[run.id for run in runs], by__isnull=False)
    counted = rows.order_by().values("run").annotate(n=Count("id"))
    return {row["run"]: row["n"] for row in counted}


def _split_in_words(alignment: Alignment, letters: tuple[str, str]) -> str:
    """Return where the runs split, in a sentence."""
    if alignment.split is None:
        return "They share no checkpoint"
    a, b = alignment.split
    last_shared = str(a.seq)
    if a.seq != b.seq:
        last_shared = f"{a.seq} of {letters[0]}, {b.seq} of {letters[1]}"

    # A run without own rows has not left the other.
    has_rows = [_has_rows(alignment, side) for side in (0, 1)]
    # A run that seems to have none may have them among the rows that were cut off.
    if alignment.cut_rows and not all(has_rows):
        return f"These runs are the same at least up to checkpoint {last_shared}"
    if not alignment.rows:
        return f"These runs are the same to their ends, checkpoint {last_shared}"
    for side, letter in enumerate(letters):
        if not has_rows[side]:
            verb = "ends" if alignment.runs[side].status in ENDS else "stands"
            return f"These runs are the same up to {last_shared}, where {letter} {verb}"
    return f"They split after checkpoint {last_shared}"


def _has_rows(alignment: Alignment, side: int) -> bool:
    """Return whether one of the runs has checkpoints after the split."""
    return any(pair[side] for pair in alignment.rows)


def _shared(alignment: Alignment) -> str:
    if alignment.split is None:
        return ""
    a, b = alignment.split
    if a.seq == b.seq:
        return f"0 to {a.seq}"
    return f"0 to {a.seq} and 0 to {b.seq}"


def _group(
    name: str, differences: Sequence[RunDifference], letters: tuple[str, str]
) -> Facts:
    rows: list[Facts] = []
    for difference in differences:
        if difference.partition == name:
            rows.append(_difference(difference, letters))
    return {"name": name, "rows": rows, "total": len(rows), "same": []}


def _difference(difference: RunDifference, letters: tuple[str, str]) -> Facts:
    sign = "~"
    word = "differs"
    only_in = {"removed": letters[0], "added": letters[1]}.get(difference.kind)
    if only_in:
        sign = only_in
        word = f"only in {only_in}"
    a, b = sides_of(difference.kind, difference.a, difference.b)
    change = draw_change(a, b, declared=None, longest=ONE_LINE, missing=NOT_THERE)
    stem, dot, last = difference.path.rpartition(".")
    return {
        "sign": sign,
        "word": word,
        "stem": stem + dot,
        "leaf": last or "all",
        "a": change.before,
        "b": change.after,
        "why": in_words(difference.reason, letters),
    }
