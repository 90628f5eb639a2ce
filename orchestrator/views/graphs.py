"""The catalogue of graphs, and one graph: its drawing, nodes, gates in words, input, and how to start it from code."""

import json
from collections import Counter
from datetime import timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from approvals import permissions
from approvals.forms import controls
from approvals.views.page import needs_role, render
from checkpoints import versions
from checkpoints.models import GraphVersion
from orchestrator.display.diagram import paint
from orchestrator.display.labels import STATUS
from orchestrator.engine import registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.differences import BREAKING, differences
from orchestrator.engine.effect import EFFECTS
from orchestrator.engine.errors import UnknownThing
from orchestrator.engine.node import END


@login_required
@require_safe
@needs_role
def catalogue(request: HttpRequest) -> HttpResponse:
    """Each graph that is registered here, in its current version."""
    since = timezone.now() - timedelta(days=1)
    runs = permissions.visible_runs(request.user).filter(created_at__gt=since).order_by()
    counts: dict[str, dict[str, int]] = {}
    for row in runs.values("graph", "status").annotate(n=Count("id")):
        counts.setdefault(row["graph"], {})[row["status"]] = row["n"]
    names = sorted({compiled.name for compiled in registry.all()})
    graphs = [_card(registry.current(name), counts.get(name, {})) for name in names]
    may_start = permissions.may(request.user, "start_run")
    return render(request, "orchestrator/graphs.html", {"graphs": graphs, "may_start": may_start}, section="graphs")


def _card(compiled: Compiled, counts: dict[str, int]) -> dict[str, Any]:
    effects = Counter("human" if node.gated else node.effect for node in compiled.nodes.values())
    return {
        "name": compiled.name,
        "version": compiled.version,
        "doc": first_line(compiled.graph.description),
        "effects": [(effect, effects[effect]) for effect in EFFECTS if effects[effect]],
        "runs": [(STATUS[s].label, n) for s, n in sorted(counts.items())],  # type: ignore[index]
        "warnings": len(compiled.warnings),
    }


def first_line(description: str) -> str:
    """Return the first line of a graph's description, as catalogue and start page show it."""
    return description.strip().partition("\n")[0]


VERSIONS = 20
"""Versions that a graph's page lists."""

POLICIES = {
    "every_node": "every superstep",
    "explicit": "where a node says so",
    "none": "start, gates and end",
    "manual": "where a node asks for it",
}


def policy_in_words(compiled: Compiled) -> str:
    """Which checkpoints stay in the timeline."""
    policy = compiled.checkpoints
    return POLICIES[policy] if isinstance(policy, str) else f"every {policy} supersteps"


def current(name: str) -> Compiled:
    """The graph's current version here, or 404."""
    try:
        return registry.current(name)
    except UnknownThing as error:
        raise Http404(error.message) from error


@login_required
@require_safe
@needs_role
def graph_page(request: HttpRequest, name: str) -> HttpResponse:
    """One graph, as registered now."""
    compiled = current(name)
    entry = compiled.catalogue()
    drawing = paint.of_graph(compiled.nodes, compiled.edges)
    context = {
        "compiled": compiled,
        "doc": first_line(compiled.graph.description),
        "picture": paint.plain_picture(drawing, name=name),
        "nodes": [(node, _ways(compiled, str(node["name"]))) for node in entry["nodes"]],
        "fields": controls.root(compiled.schemas["input"], prefix="i").children,
        "schema": compiled.schemas["input"],
        "mermaid": entry["mermaid"],
        "call": _call(request, compiled),
        "versions": _versions(name),
        "policy": policy_in_words(compiled),
        "may_start": permissions.may(request.user, "start_run"),
    }
    return render(request, "orchestrator/graph.html", context, section="graphs")


def _versions(name: str) -> list[dict[str, Any]]:
    """The versions seen, the newest first: {row, breaking, harmless}, what differs from the one before, in words."""
    rows = list(GraphVersion.objects.filter(name=name).defer("structure")[:VERSIONS])
    versions.read_structures({row.fingerprint for row in rows})
    found = []
    for row, before in zip(rows, [*rows[1:], None], strict=False):
        told = [versions.structure_of(one.fingerprint) if one else None for one in (before, row)]
        changes = differences(told[0], told[1]) if told[0] and told[1] else ()
        words = {"breaking": [one.words for one in changes if one.weight == BREAKING]}
        words["harmless"] = [one.words for one in changes if one.weight != BREAKING]
        found.append({"row": row, **words})
    return found


def _ways(compiled: Compiled, node: str) -> list[str]:
    """Where a node leads, each target once, with the outcomes or labels that lead there."""
    found: dict[str, list[str]] = {}
    for edge in compiled.edges:
        if edge.source == node:
            word = edge.when or edge.label or {"goto": "goto", "send": "sends"}.get(edge.kind, "")
            found.setdefault("the end" if edge.target == END else edge.target, []).append(word)
    said = {target: ", ".join(filter(None, dict.fromkeys(words))) for target, words in found.items()}
    return [f"{target} ({words})" if words else target for target, words in said.items()]


def _call(request: HttpRequest, compiled: Compiled) -> str:
    """A call that starts a run, ready to be completed."""
    example = dict.fromkeys(compiled.schemas["input"].get("required", ()), "…")
    body = json.dumps({"graph": compiled.name, "input": example, "key": "…"}, ensure_ascii=False)
    address = request.build_absolute_uri(reverse("home"))
    return (
        f"curl -X POST {address}api/v1/runs/ \\\n  -H 'Authorization: Token …' \\\n"
        f"  -H 'Content-Type: application/json' \\\n  -d '{body}'"
    )
