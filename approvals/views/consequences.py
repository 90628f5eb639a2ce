"""What happens when a request is settled one way or another: read off the graph's edges, in order.

It names what runs next on each outcome, as far as the next gate; where a router decides it says "may". The module
`drafted_outcome` says what happens when somebody signs what he chose.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import unwrap
from types import CodeType
from uuid import UUID

from approvals.models import ApprovalRequest
from orchestrator.engine.compile import Compiled
from orchestrator.engine.node import END, Edge, Node

WHEN = {"approved": "If all are approved", "rejected": "If all are rejected", "partial": "If some are rejected"}
FIRST = {
    "approved": "What you approved is written into the run",
    "rejected": "None of these writes happens",
    "partial": "What was approved is written into the run, what was rejected is not",
}
DOES = {
    "pure": "runs",
    "read": "looks something up",
    "write": "changes data",
    "external": "acts outside",
    "human": "asks people again",
}
MOST = 12
"""Nodes listed for one outcome; a path that is longer says so."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a node and what it does, or a sentence with an icon."""

    text: str
    more: str = ""
    node: str = ""
    effect: str = ""
    icon: str = "shield"


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one write of a settled request."""

    channel: str
    title: str
    applied: bool


@dataclass(frozen=True, slots=True)
class Part:
    """What one outcome leads to."""

    outcome: str
    when: str
    lines: list[Line]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """All outcomes of one request."""

    request: UUID
    parts: list[Part]


def of_requests(compiled: Compiled | None, requests: Iterable[ApprovalRequest]) -> list[Outcomes]:
    """For each open request what its outcomes lead to; nothing where this process does not have the graph."""
    if compiled is None:
        return []
    return [Outcomes(request.id, _parts(compiled, request)) for request in requests]


def _parts(compiled: Compiled, request: ApprovalRequest) -> list[Part]:
    outcomes = ["approved", "rejected"]
    if request.writes > 1 and not request.policy.get("all_or_nothing"):
        outcomes.append("partial")
    return [Part(o, WHEN[o], _lines(compiled, request.node, o, single=request.writes == 1)) for o in outcomes]


def _lines(compiled: Compiled, node: str, outcome: str, *, single: bool) -> list[Line]:
    first = Line("It is written into the run" if single else FIRST[outcome])
    if outcome == "rejected":
        first = Line("This write does not happen" if single else FIRST[outcome], icon="x")
    taken = [edge for edge in compiled.edges if edge.source == node and takes(edge, outcome)]
    if not taken:
        more = "If nothing else is going on, the run ends as rejected."
        return [first, Line("Nothing follows on this path", more, icon="slash")]
    return [first, *lines_ahead(compiled, taken)]


def lines_after(compiled: Compiled, node: str, outcome: str, fates: Sequence[Fate]) -> list[Line]:
    """What runs once a gate is settled with this outcome and these writes; empty where nothing follows."""
    taken = [edge for edge in compiled.edges if edge.source == node and takes(edge, outcome)]
    return lines_ahead(compiled, taken, fates)


def takes(edge: Edge, outcome: str) -> bool:
    """Whether an edge may be taken behind a gate with this outcome: one without a label is for approved and partial."""
    if edge.kind == "error":
        return False
    return edge.when == outcome if edge.when else outcome in ("approved", "partial")


def lines_ahead(compiled: Compiled, taken: Sequence[Edge], fates: Sequence[Fate] = ()) -> list[Line]:
    """The nodes behind these edges as far as the next gate, each with what becomes of the writes that it reads."""
    lines: list[Line] = []
    seen: set[str] = set()
    queue = [(edge, _sure(edge)) for edge in taken]
    while queue:
        edge, sure = queue.pop(0)
        if edge.target in seen:
            continue
        seen.add(edge.target)
        if edge.target == END:
            lines.append(Line("The run ends" if sure else "The run may end", icon="check"))
            continue
        if len(lines) >= MOST:
            lines.append(Line("More follows", "The run's page draws all of it.", icon="dots"))
            break
        node = compiled.nodes[edge.target]
        lines.append(_line(node, sure, fates))
        if not node.gated:
            onward = [e for e in compiled.edges if e.source == node.name and e.kind != "error"]
            queue.extend((e, sure and _sure(e)) for e in onward)
    # The end comes last, wherever the walk met it.
    return sorted(lines, key=lambda line: line.icon == "check" and not line.node)


def _sure(edge: Edge) -> bool:
    return edge.kind == "edge"


def _line(node: Node, sure: bool, fates: Sequence[Fate]) -> Line:
    effect = "human" if node.gated else node.effect
    does = DOES[effect]
    text = does if sure else f"may follow: it {does}"
    more = _irreversible(node) if effect == "external" else ""
    if effect not in ("write", "external") or not fates:
        return Line(text, more, node=node.name, effect=effect)
    idle, of_writes = _work_for(node, fates)
    text = "may find nothing to do" if idle else text
    return Line(text, f"{of_writes} {more}".strip(), node=node.name, effect=effect)


def _work_for(node: Node, fates: Sequence[Fate]) -> tuple[bool, str]:
    """Whether all that a node seems to read of these writes was rejected, and in words which of them it has."""
    named = _channels_named(node, {fate.channel for fate in fates})
    read = [fate for fate in fates if fate.channel in named]
    given = ", ".join(fate.title for fate in read if fate.applied)
    denied = ", ".join(fate.title for fate in read if not fate.applied)
    if read and not given:
        return True, f"Rejected: {denied}."
    if not read and not all(fate.applied for fate in fates):
        return False, "It may find nothing to do, for not everything is approved."
    return False, " ".join(filter(None, (given and f"With: {given}.", denied and f"Without: {denied}.")))


def _channels_named(node: Node, channels: set[str]) -> set[str]:
    """The channels that a node reads: those that it declares, else those that its function names."""
    if node.reads is not None:
        return channels & set(node.reads)
    code = getattr(unwrap(node.fn), "__code__", None)
    return channels & _names_in(code) if code else set()


def _names_in(code: CodeType) -> set[str]:
    inner = (_names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def _irreversible(node: Node) -> str:
    if node.idempotent:
        return "It cannot be taken back. A retry reuses the same key, so it counts once."
    return "It cannot be taken back, and is never repeated silently."
