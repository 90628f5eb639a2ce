"""The catalogue of graphs, and one graph: its drawing, nodes, gates in words, input,
and how to start it from code.
"""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from approvals import permissions
from approvals.forms import controls
from approvals.results import figures
from approvals.views.page import needs_role, render
from approvals.visible_runs import VisibleRuns
from checkpoints import versions
from checkpoints.db.counts import count_groups
from checkpoints.models import GraphVersion, Run
from orchestrator.display.diagram import paint
from orchestrator.display.labels import STATUS
from orchestrator.engine import registry
from orchestrator.engine.errors import UnknownThing
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.effect import EFFECTS
from orchestrator.engine.graphs.node import END
from orchestrator.engine.versions.differences import BREAKING, differences
from orchestrator.graphs import NAME as SHIPPED


@login_required
@require_safe
@needs_role
def catalogue(request: HttpRequest) -> HttpResponse:
    """Show each graph that is registered here, in its current version."""
    counts = _counts_of_last_day(request.user)
    # Several versions of a graph may be registered beside each other.
    # Nobody starts the one that the package brings from here.
    names = sorted({compiled.name for compiled in registry.all()} - {SHIPPED})
    context = {
        "graphs": [
            _card(registry.current(name), counts.get(name, {})) for name in names
        ],
        "of_newest": MOST_OF_DAY if _is_capped(counts) else 0,
        "may_start": permissions.may(request.user, "start_run"),
    }
    return render(request, "orchestrator/graphs.html", context, section="graphs")


def _counts_of_last_day(user: Any) -> dict[str, dict[str, int]]:
    """Return how many of the runs that this person may see were made in the last day,
    by graph and status: of more than `MOST_OF_DAY` the newest so many. One query,
    besides those for rights.
    """
    since = timezone.now() - timedelta(days=1)
    visible = VisibleRuns.of(user, Run.objects.all()).filter(created_at__gt=since)
    counts: dict[str, dict[str, int]] = {}
    for graph, status, count in count_groups(visible[:MOST_OF_DAY], "graph", "status"):
        counts.setdefault(graph, {})[status] = count
    return counts


def _is_capped(counts: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether older runs of the day may be missing from these counts."""
    counted = sum(sum(of_graph.values()) for of_graph in counts.values())
    return counted >= MOST_OF_DAY


def _card(compiled: Compiled, counts: dict[str, int]) -> dict[str, Any]:
    effects = _counted_effects(compiled)
    runs: list[tuple[str, int]] = []
    for status, count in sorted(counts.items()):
        look = STATUS[status]  # type: ignore[index]
        runs.append((look.label, count))
    return {
        "name": compiled.name,
        "version": compiled.version,
        "doc": first_line(compiled.graph.description),
        "effects": [(effect, effects[effect]) for effect in EFFECTS if effects[effect]],
        "runs": runs,
        "warnings": len(compiled.warnings),
    }


def _counted_effects(compiled: Compiled) -> "Counter[str]":
    """Return how many nodes have each effect. A gate counts as human whatever its node
    does.
    """
    effects: Counter[str] = Counter()
    for node in compiled.nodes.values():
        effects["human" if node.gated else node.effect] += 1
    return effects


def first_line(description: str) -> str:
    """Return the first line of a graph's description, as catalogue and start page show
    it.
    """
    return description.strip().partition("\n")[0]


MOST_OF_DAY = 10_000
"""The most runs of the last day that are counted."""
VERSIONS = 20
"""The most versions that a graph's page lists."""

POLICIES = {
    "every_node": "every superstep",
    "explicit": "where a node says so",
    "none": "start, gates and end",
    "manual": "where a node asks for it",
}
"""Which checkpoints stay in the timeline, in words."""


def policy_in_words(compiled: Compiled) -> str:
    """Return which checkpoints stay in the timeline, in words."""
    policy = compiled.checkpoints
    if isinstance(policy, str):
        return POLICIES[policy]
    return f"every {policy} supersteps"


def current(name: str) -> Compiled:
    """Return the graph's current version here. Raises `Http404` if there is none."""
    try:
        return registry.current(name)
    except UnknownThing as error:
        raise Http404(error.message) from error


@login_required
@require_safe
@needs_role
def graph_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show one graph as it is registered now."""
    compiled = current(name)
    entry = compiled.catalogue()
    drawing = paint.of_graph(compiled.nodes, compiled.edges)
    nodes: list[tuple[dict[str, Any], list[str]]] = []
    for node in entry["nodes"]:
        ways = _ways(compiled, str(node["name"]))
        nodes.append((node, ways))
    context = {
        "compiled": compiled,
        "doc": first_line(compiled.graph.description),
        "picture": paint.plain_picture(drawing, name=name),
        "nodes": nodes,
        "fields": controls.root(compiled.schemas["input"], prefix="i").children,
        "schema": compiled.schemas["input"],
        "mermaid": entry["mermaid"],
        "call": _call(request, compiled),
        "versions": _versions(name),
        "policy": policy_in_words(compiled),
        "may_start": permissions.may(request.user, "start_run"),
        "may_read_figures": figures.may_read(request.user),
    }
    return render(request, "orchestrator/graph.html", context, section="graphs")


def _versions(name: str) -> list[dict[str, Any]]:
    """Return the versions seen, the newest first, each with its differences from the
    one before, in words: {row, breaking, harmless}.
    """
    seen = GraphVersion.objects.filter(name=name)
    # One more than is listed, with which the last one listed is compared.
    rows = list(seen.defer("structure")[: VERSIONS + 1])
    # All structures in one query, rather than one for each pair.
    versions.read_structures({row.fingerprint for row in rows})
    older_rows = [*rows[1:], None]
    entries: list[dict[str, Any]] = []
    for row, older in zip(rows[:VERSIONS], older_rows, strict=False):
        entries.append({"row": row, **_changes_between(older, row)})
    return entries


def _changes_between(
    older: GraphVersion | None, newer: GraphVersion
) -> dict[str, list[str]]:
    """Return the differences of two versions in words, by weight; none if one of their
    structures is unknown.
    """
    words: dict[str, list[str]] = {"breaking": [], "harmless": []}
    if older is None:
        return words
    old_structure = versions.structure_of(older.fingerprint)
    new_structure = versions.structure_of(newer.fingerprint)
    if not old_structure or not new_structure:
        return words
    for change in differences(old_structure, new_structure):
        weight = "breaking" if change.weight == BREAKING else "harmless"
        words[weight].append(change.words)
    return words


def _ways(compiled: Compiled, node: str) -> list[str]:
    """Return the targets of a node, each once, with the outcomes or labels that lead
    there.
    """
    words_by_target: dict[str, list[str]] = {}
    for edge in compiled.edges:
        if edge.source != node:
            continue
        target = edge.target
        if target == END:
            target = "the end"
        word = edge.when or edge.label or _WORD_OF_EDGE.get(edge.kind, "")
        words_by_target.setdefault(target, []).append(word)

    # Several edges to one target may have the same word.
    ways: list[str] = []
    for target, words in words_by_target.items():
        text = ", ".join(filter(None, dict.fromkeys(words)))
        ways.append(f"{target} ({text})" if text else target)
    return ways


_WORD_OF_EDGE = {"goto": "goto", "send": "sends"}


def _call(request: HttpRequest, compiled: Compiled) -> str:
    """Return a call that starts a run, for the shell, with gaps to fill in."""
    # Only the required fields: the others can be looked up in the schema.
    required = compiled.schemas["input"].get("required", ())
    example = dict.fromkeys(required, "…")
    arguments = {"graph": compiled.name, "input": example, "key": "…"}
    body = json.dumps(arguments, ensure_ascii=False)
    address = request.build_absolute_uri(reverse("home"))
    return (
        f"curl -X POST {address}api/v1/runs/ \\\n"
        "  -H 'Authorization: Token …' \\\n"
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d '{body}'"
    )
