"""A graph as a plain document: what the fingerprint is made of, and what the catalogue shows. Pure; `compile` calls it.

No source code, addresses or docstrings stand in the document, so the same declaration has one fingerprint
everywhere. Nor do texts, limits and retries, so a run that waits goes on when these are corrected.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.engine.canonical import Json
from orchestrator.engine.channel import Channel
from orchestrator.engine.definition import Definition
from orchestrator.engine.effect import WORDS
from orchestrator.engine.gate import Gate
from orchestrator.engine.node import Edge, Node
from orchestrator.engine.reducer import Custom
from orchestrator.engine.retry import Interval


def document(
    graph: Definition, channels: Mapping[str, Channel], edges: Sequence[Edge], *, schemas: Mapping[str, Any]
) -> dict[str, Json]:
    """Everything that a run depends on, and nothing that may change under it: docs/versions.md has the table.

    `schemas`: {"input", "state"}, JSON Schema.
    """
    return {
        "format": 2,
        "name": graph.name,
        "version": graph.version,
        "nodes": [_node(node, graph) for node in graph.nodes],
        "edges": [edge.id for edge in edges],
        "channels": {name: _channel(channel) for name, channel in channels.items()},
        "input": _bare(schemas["input"]),
        "state": _bare(schemas["state"]),
    }


def policy(checkpoints: str | Interval) -> str | int:
    """A checkpoint policy as a word, or n for every n-th superstep."""
    if isinstance(checkpoints, Interval):
        return checkpoints.n or "manual"
    return checkpoints


def in_words(node: Node) -> dict[str, Json]:
    """A node for the catalogue."""
    return {
        "name": node.name,
        "doc": node.doc,
        "effect": node.effect,
        "effect_in_words": WORDS[node.effect],
        "gate": _gate_in_words(node.gate) if node.gate else None,
        "join": node.join,
        "idempotent": node.idempotent,
        "atomic": node.atomic,
        "timeout": node.timeout,
    }


def _gate_in_words(gate: Gate) -> str:
    named = "people named by the state" if callable(gate.reviewers) else ", ".join(gate.reviewers or ())
    who = named or "the graph's reviewers"
    times = "one signature" if gate.quorum == 1 else f"{gate.quorum} signatures"
    extra = [" under four eyes" if gate.four_eyes else "", ", all writes or none" if gate.all_or_nothing else ""]
    return f"{times} of {who}{''.join(extra)}"


def _node(node: Node, graph: Definition) -> dict[str, Json]:
    return {
        **{what: getattr(node, what) for what in ("name", "effect", "approve", "join", "idempotent", "atomic")},
        "memory": node.memory or graph.memory,
        "goto": list(node.goto),
        "sends": list(node.sends),
        "reads": None if node.reads is None else list(node.reads),
        "gate": _gate(node.gate, graph) if node.gate else None,
        "not_done": sorted(_named(error) for error in node.not_done),
    }


def _gate(gate: Gate, graph: Definition) -> dict[str, Json]:
    """What people decide, and when it counts; not how it is shown."""
    return {
        "reviewers": _reviewers(gate.reviewers if gate.reviewers is not None else graph.reviewers),
        "quorum": gate.quorum,
        "reject_quorum": gate.reject_quorum,
        "four_eyes": gate.four_eyes,
        "all_or_nothing": gate.all_or_nothing,
        "needs_approval": _named(gate.needs_approval) if gate.needs_approval else None,
        "shows": sorted(gate.shows),
        "writes": sorted(gate.writes),
        "reason_required": sorted(channel for channel, show in gate.writes.items() if show.reason_required),
    }


def _reviewers(reviewers: Sequence[str] | Callable[[Any], Any] | None) -> Json:
    if reviewers is None or callable(reviewers):
        return _named(reviewers) if reviewers else None
    return sorted(set(reviewers))


def _channel(channel: Channel) -> dict[str, Json]:
    own = isinstance(channel.reducer, Custom)
    return {
        "reducer": channel.reducer.name,
        "own": own,
        "bound": channel.bound,
        "partition": channel.partition,
        "default": channel.default,
    }


def _named(thing: Any) -> str:
    return getattr(thing, "__qualname__", None) or type(thing).__qualname__


_NAMED = ("properties", "patternProperties", "$defs", "dependentSchemas")
"""Keywords whose value is a dict by names that are not ours to drop."""

_LEFT_OUT = ("title", "description", "default", "examples", "currency")
"""Keywords that change no type; the currency only says how an amount reads. Channels' defaults stand beside them in
canonical form.
"""


def _bare(schema: Any) -> Any:
    """A JSON Schema reduced to what a value must be."""
    if isinstance(schema, list):
        return [_bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        k: {name: _bare(one) for name, one in v.items()} if k in _NAMED else v if k in ("const", "enum") else _bare(v)
        for k, v in schema.items()
        if k not in _LEFT_OUT
    }
