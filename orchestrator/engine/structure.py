"""A graph as a plain document: what the fingerprint is made of, and what the catalogue shows. Pure; `compile` calls it.

No source code, addresses or docstrings stand in it, so the same declaration has one fingerprint everywhere.
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
from orchestrator.engine.retry import Interval, Retry


def document(
    graph: Definition, channels: Mapping[str, Channel], edges: Sequence[Edge], *, schemas: Mapping[str, Any]
) -> dict[str, Json]:
    """Everything that a run depends on. `schemas`: {"input", "state"}, JSON Schema."""
    return {
        "format": 1,
        "name": graph.name,
        "version": graph.version,
        "policies": {
            "checkpoints": policy(graph.checkpoints),
            "snapshot": graph.snapshot,
            "memory": graph.memory,
            "on_save_error": graph.on_save_error,
            "max_supersteps": graph.max_supersteps,
            "reviewers": _reviewers(graph.reviewers),
        },
        "nodes": [_node(node) for node in graph.nodes],
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


def _node(node: Node) -> dict[str, Json]:
    plain = (
        "name", "effect", "approve", "checkpoint", "join", "timeout", "max_visits", "idempotent", "atomic", "memory",
    )  # fmt: skip
    return {
        **{what: getattr(node, what) for what in plain},
        "goto": list(node.goto),
        "sends": list(node.sends),
        "reads": None if node.reads is None else list(node.reads),
        "gate": _gate(node.gate) if node.gate else None,
        "retry": _retry(node.retry) if node.retry else None,
        "not_done": sorted(_named(error) for error in node.not_done),
    }


def _gate(gate: Gate) -> dict[str, Json]:
    return {
        "reviewers": _reviewers(gate.reviewers),
        "quorum": gate.quorum,
        "reject_quorum": gate.reject_quorum,
        "four_eyes": gate.four_eyes,
        "all_or_nothing": gate.all_or_nothing,
        "needs_approval": _named(gate.needs_approval) if gate.needs_approval else None,
        "title": gate.title,
        "facts": [[fact.label, fact.path] for fact in gate.facts],
        "shows": sorted(gate.shows),
        "writes": {
            channel: [show.label, show.reversible, show.money, show.reason_required]
            for channel, show in gate.writes.items()
        },
    }


def _retry(retry: Retry) -> Json:
    return [retry.attempts, retry.backoff, retry.factor, retry.jitter, sorted(_named(error) for error in retry.on)]


def _reviewers(reviewers: Sequence[str] | Callable[[Any], Any] | None) -> Json:
    if reviewers is None or callable(reviewers):
        return _named(reviewers) if reviewers else None
    return list(reviewers)


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

_LEFT_OUT = ("title", "description", "default", "examples")
"""Keywords that change no type. Channels' defaults stand beside them in canonical form."""


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
