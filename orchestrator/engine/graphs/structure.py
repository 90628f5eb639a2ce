"""The structure of a graph as a plain document, from which its fingerprint is made, and
its nodes in words for the catalogue. Pure; `compile` calls it.

The document contains no source code, addresses or docstrings, so that one declaration
has one fingerprint everywhere. Nor does it contain texts, limits and retries, so that a
waiting run goes on when these are corrected.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.engine.graphs.auto import auto_policy, window_policy
from orchestrator.engine.graphs.channel import Channel
from orchestrator.engine.graphs.confirmation import confirmation_policy
from orchestrator.engine.graphs.consideration import (
    consideration_in_words,
    consideration_policy,
)
from orchestrator.engine.graphs.definition import Definition
from orchestrator.engine.graphs.effect import WORDS
from orchestrator.engine.graphs.gate import Gate, terms_policy
from orchestrator.engine.graphs.limit import Limit, as_json
from orchestrator.engine.graphs.node import Edge, Node
from orchestrator.engine.graphs.reducer import Custom
from orchestrator.engine.graphs.retry import Interval
from orchestrator.engine.graphs.standing_policy import standing_policy
from orchestrator.engine.graphs.state import schema_of
from orchestrator.engine.graphs.tiers import (
    escalation_policy,
    principal_in_words,
    tiers_in_words,
    tiers_policy,
)
from orchestrator.engine.graphs.veto import veto_policy
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.functions import name_of


def document(
    graph: Definition,
    channels: Mapping[str, Channel],
    edges: Sequence[Edge],
    *,
    schemas: Mapping[str, Any],
) -> dict[str, Json]:
    """Return everything that a run depends on, and nothing that may change under it:
    docs/versions.md has the table.

    `schemas`: {"input", "state"}, JSON Schema.
    """
    return {
        "format": 2,
        "name": graph.name,
        "version": graph.version,
        # In declared order, for that is the order in which writes are reduced.
        "nodes": [_node(node, graph) for node in graph.nodes],
        # The id of an edge contains its ends, kind, label and outcome.
        "edges": [edge.id for edge in edges],
        "channels": {name: _channel(channel) for name, channel in channels.items()},
        "input": _bare(schemas["input"]),
        "state": _bare(schemas["state"]),
    }


def policy(checkpoints: str | Interval) -> str | int:
    """Return a checkpoint policy as a word, or n for every n-th superstep."""
    if isinstance(checkpoints, Interval):
        return checkpoints.n or "manual"
    return checkpoints


def in_words(node: Node) -> dict[str, Json]:
    """Return a node for the catalogue."""
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
    words = _signatures_in_words(gate)
    if gate.four_eyes:
        words += " under four eyes"
    if gate.all_or_nothing:
        words += ", all writes or none"
    if gate.skip:
        words += "; they may skip the call"
    if gate.deadline is not None:
        words += f"; {AT_DEADLINE[gate.on_deadline]} when its deadline has passed"
    for tier in tiers_in_words(tiers_policy(gate)):
        words += f"; {tier}"
    words += _confirmation_in_words(gate)
    considered = consideration_in_words(consideration_policy(gate))
    if considered:
        words += f"; looked at first: {considered}"
    return words


def _signatures_in_words(gate: Gate) -> str:
    if gate.terms is not None:
        return "as many signatures as the run asks for, of the people whom it names"
    if callable(gate.reviewers):
        who = "people named by the state"
    elif gate.reviewers:
        who = ", ".join(map(principal_in_words, gate.reviewers))
    else:
        who = "the graph's reviewers"
    signatures = "one signature" if gate.quorum == 1 else f"{gate.quorum} signatures"
    return f"{signatures} of {who}"


def _confirmation_in_words(gate: Gate) -> str:
    if gate.confirm is None:
        return ""
    words = f"; confirmed by {gate.confirm}"
    if gate.confirm_above is not None:
        words += f" above {gate.confirm_above}"
    return words


AT_DEADLINE = {
    "reject": "rejected",
    "approve": "approved",
    "fail": "the run fails",
}
"""The fate of open writes at a deadline, in words."""


def _node(node: Node, graph: Definition) -> dict[str, Json]:
    structure: dict[str, Json] = {
        "name": node.name,
        "effect": node.effect,
        "approve": node.approve,
        "join": node.join,
        "idempotent": node.idempotent,
        "atomic": node.atomic,
        # The mode that applies, whether the node or the graph names it.
        "memory": node.memory or graph.memory,
        "goto": list(node.goto),
        "sends": list(node.sends),
        "reads": None if node.reads is None else list(node.reads),
        "gate": _gate(node.gate, graph) if node.gate else None,
        "not_done": sorted(name_of(error) for error in node.not_done),
    }
    # Only where they are declared, so that other graphs keep their fingerprints.
    if node.authority:
        structure["authority"] = list(node.authority)
    if node.calls:
        structure["args"] = _bare(schema_of(node.args))
    return structure


def _gate(gate: Gate, graph: Definition) -> dict[str, Json]:
    """Return what people decide, and when it counts; not how it is shown."""
    # The reviewers that apply, whether the gate or the graph names them.
    reviewers = gate.reviewers
    if reviewers is None:
        reviewers = graph.reviewers
    reason_required: list[str] = []
    needs: dict[str, list[str]] = {}
    limits: dict[str, Json] = {}
    for channel, show in gate.writes.items():
        if show.reason_required:
            reason_required.append(channel)
        if show.needs:
            needs[channel] = sorted(set(show.needs))
        if show.limits:
            limits[channel] = {
                path: _bounds(limit) for path, limit in show.limits.items()
            }
    structure: dict[str, Json] = {
        "reviewers": _reviewers(reviewers),
        "quorum": gate.quorum,
        "reject_quorum": gate.reject_quorum,
        "four_eyes": gate.four_eyes,
        "all_or_nothing": gate.all_or_nothing,
        "needs_approval": (
            name_of(gate.needs_approval) if gate.needs_approval else None
        ),
        "shows": sorted(gate.shows),
        "writes": sorted(gate.writes),
        "reason_required": sorted(reason_required),
        **_on_deadline(gate),
        **_recheck(gate),
        **_skip(gate),
        **confirmation_policy(gate),
        **consideration_policy(gate),
        **escalation_policy(gate),
        **auto_policy(gate),
        **standing_policy(gate),
        **window_policy(gate),
        **veto_policy(gate),
        **terms_policy(gate),
    }
    # Without an option, a gate has the fingerprint that it had before there was one.
    if needs:
        structure["needs"] = needs
    if limits:
        structure["limits"] = limits
    return structure


def _bounds(limit: Limit) -> dict[str, Json]:
    """Return a limit as its author wrote it, templates unfilled."""
    return {name: as_json(bound) for name, bound in limit.bounds().items()}


def _on_deadline(gate: Gate) -> dict[str, Json]:
    # How long people have is no part of it. A gate without a deadline says nothing, or
    # every graph would have another fingerprint than before there were deadlines.
    if gate.deadline is None:
        return {}
    return {"on_deadline": gate.on_deadline}


def _recheck(gate: Gate) -> dict[str, Json]:
    if gate.recheck is None:
        return {}
    return {"recheck": name_of(gate.recheck)}


def _skip(gate: Gate) -> dict[str, Json]:
    return {"skip": True} if gate.skip else {}


def _reviewers(reviewers: Sequence[str] | Callable[[Any], Any] | None) -> Json:
    if reviewers is None:
        return None
    if callable(reviewers):
        return name_of(reviewers)
    # Their order decides nothing, so it must not change the fingerprint.
    return sorted(set(reviewers))


def _channel(channel: Channel) -> dict[str, Json]:
    return {
        "reducer": channel.reducer.name,
        "own": isinstance(channel.reducer, Custom),
        "bound": channel.bound,
        "partition": channel.partition,
        "default": channel.default,
    }


_NAMED = ("properties", "patternProperties", "$defs", "dependentSchemas")
"""Keywords whose value is a dict by names of the author: a field may be a `title`."""

_LEFT_OUT = ("title", "description", "default", "examples", "currency")
"""Keywords that change no type; the currency only says how to read an amount. Channels
have their defaults elsewhere in the document, in canonical form.
"""

_LITERAL = ("const", "enum")
"""Keywords whose value is a value, not a schema."""


def _bare(schema: Any) -> Any:
    """Return a JSON Schema reduced to what a value must be."""
    if isinstance(schema, list):
        return [_bare(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    bare: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _LEFT_OUT:
            continue
        if keyword in _NAMED:
            bare[keyword] = {name: _bare(inner) for name, inner in value.items()}
        elif keyword in _LITERAL:
            # A dict in here is data: its keys only look like keywords.
            bare[keyword] = value
        else:
            bare[keyword] = _bare(value)
    return bare
