"""What happens when a request is settled one way or another: read off the graph's edges, in order.

It names what runs next on each outcome, as far as the next gate; where a router decides it says "may". The module
`drafted_outcome` says what happens when somebody signs what he chose.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import unwrap
from types import CodeType
from uuid import UUID

from approvals.gates.departed_line import NOTHING_AHEAD, Ahead
from approvals.gates.request_state import RequestState
from approvals.models import ApprovalRequest
from orchestrator.engine.compile import Compiled
from orchestrator.engine.held_patch import PATCH
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


def of_requests(
    compiled: Compiled | None, states: Iterable[RequestState], ahead: Ahead = NOTHING_AHEAD
) -> list[Outcomes]:
    """For each undecided request what its outcomes lead to; nothing where this process does not have the graph."""
    if compiled is None:
        return []
    return [Outcomes(one.request.id, _parts(compiled, one.request, ahead)) for one in states if one.outcome is None]


def _parts(compiled: Compiled, request: ApprovalRequest, ahead: Ahead) -> list[Part]:
    outcomes = ["approved", "rejected"]
    if request.writes > 1 and not request.policy.get("all_or_nothing"):
        outcomes.append("partial")
    return [Part(o, WHEN[o], _lines(compiled, request.node, o, ahead, single=request.writes == 1)) for o in outcomes]


def _lines(compiled: Compiled, node: str, outcome: str, ahead: Ahead, *, single: bool) -> list[Line]:
    first = Line("It is written into the run" if single else FIRST[outcome])
    if outcome == "rejected":
        first = Line("This write does not happen" if single else FIRST[outcome], icon="x")
    return [first, *(lines_after(compiled, node, outcome, (), ahead) or [NOTHING_FOLLOWS])]


HAPPENED = "It happened already, before this run departed from there: it would happen again."
NOTHING_FOLLOWS = Line(
    "Nothing follows on this path", "If nothing else is going on, the run ends as rejected.", icon="slash"
)
BEHIND_PATCH = Line(
    "This counts once the patch is signed",
    "If the patch is rejected, the run ends as rejected. If it changes what you decide on, you are asked again.",
    icon="clock",
)
PATCH_REFUSED = Line(
    "The run ends as rejected", "Nothing of the patch is applied. The run can be rewound or forked again.", icon="slash"
)


def lines_after(
    compiled: Compiled, node: str, outcome: str, fates: Sequence[Fate], ahead: Ahead = NOTHING_AHEAD
) -> list[Line]:
    """What runs once a gate is settled with this outcome and these writes; empty where nothing follows."""
    if node == PATCH:
        return _lines_after_patch(compiled, outcome, fates, ahead)
    taken = [(edge, _sure(edge)) for edge in compiled.edges if edge.source == node and takes(edge, outcome)]
    lines = _lines_ahead(compiled, taken, fates, ahead)
    return [BEHIND_PATCH, *lines] if lines and ahead.patches else lines


def _lines_after_patch(compiled: Compiled, outcome: str, fates: Sequence[Fate], ahead: Ahead) -> list[Line]:
    """What runs once a patch is signed: what its run's tokens lead to, for they stayed as they were."""
    if outcome == "rejected":
        return [PATCH_REFUSED]
    found = []
    if ahead.patches > 1:
        found.append(Line("Nothing starts before every gate has signed the patch", icon="clock"))
    found += _lines_ahead(compiled, [(edge, True) for edge in ahead.pending], fates, ahead)
    if ahead.others:
        found.append(Line("The other questions of this run still wait for people", icon="clock"))
    return found or [Line("The run ends", icon="check")]


def takes(edge: Edge, outcome: str) -> bool:
    """Whether an edge may be taken behind a gate with this outcome: one without a label is for approved and partial."""
    if edge.kind == "error":
        return False
    return edge.when == outcome if edge.when else outcome in ("approved", "partial")


def _lines_ahead(
    compiled: Compiled, taken: Sequence[tuple[Edge, bool]], fates: Sequence[Fate], ahead: Ahead
) -> list[Line]:
    """The nodes behind these edges (and whether each is surely taken) as far as the next gate, each with what becomes
    of the writes that it reads.
    """
    lines: list[Line] = []
    seen: set[str] = set()
    queue = list(taken)
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
        lines.append(_stopped(node) if node.name in ahead.stops else _line(node, sure, fates, ahead))
        if not node.gated and node.name not in ahead.stops:
            onward = [e for e in compiled.edges if e.source == node.name and e.kind != "error"]
            queue.extend((e, sure and _sure(e)) for e in onward)
    # The end comes last, wherever the walk met it.
    return sorted(lines, key=lambda line: line.icon == "check" and not line.node)


def _stopped(node: Node) -> Line:
    more = "What it does has happened before. It starts only when somebody says yes to it."
    return Line("is not started: the run stops before it", more, node=node.name, effect=node.effect)


def _sure(edge: Edge) -> bool:
    return edge.kind == "edge"


def _line(node: Node, sure: bool, fates: Sequence[Fate], ahead: Ahead) -> Line:
    effect = "human" if node.gated else node.effect
    does = DOES[effect]
    text = does if sure else f"may follow: it {does}"
    more = _irreversible(node) if effect == "external" else ""
    if node.name in ahead.again:
        more = f"{HAPPENED} {more}".strip()
    if effect not in ("write", "external") or not fates:
        return Line(text, more, node=node.name, effect=effect)
    idle, of_writes = _work_for(node, fates)
    text = "may find nothing to do" if idle else text
    return Line(text, f"{of_writes} {more}".strip(), node=node.name, effect=effect)


def _work_for(node: Node, fates: Sequence[Fate]) -> tuple[bool, str]:
    """Whether all that a node seems to read of these writes was rejected, and in words which of them it has."""
    named = _channels_named(node, {fate.channel for fate in fates})
    read = [fate for fate in fates if fate.channel in named]
    given = _titles([fate.title for fate in read if fate.applied])
    denied = _titles([fate.title for fate in read if not fate.applied])
    if read and not given:
        return True, f"Rejected: {denied}."
    if not read and not all(fate.applied for fate in fates):
        return False, "It may find nothing to do, for not everything is approved."
    return False, " ".join(filter(None, (given and f"With: {given}.", denied and f"Without: {denied}.")))


def _titles(titles: Sequence[str]) -> str:
    """The titles of writes, or how many there are where nobody would read them all."""
    return ", ".join(titles) if len(titles) <= MOST else f"{len(titles):,} writes"


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
