"""The consequences of each outcome of a request: read from the graph's edges, in order.

They name the nodes that run next, as far as the next gate; if a router decides, the
words are "may". The module `drafted_outcome` has the consequences of signing drafts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import unwrap
from types import CodeType
from uuid import UUID

from approvals.gates.departed_line import NOTHING_AHEAD, Ahead
from approvals.gates.nodes_behind import edges_from, takes
from approvals.gates.renewals import AUTHORITY_KIND
from approvals.gates.request_state import RequestState
from approvals.models import ApprovalRequest
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.effect import SKIPPED
from orchestrator.engine.graphs.gate import way_of
from orchestrator.engine.graphs.node import END, Edge, Node
from orchestrator.engine.registry import ASKING
from orchestrator.engine.step.held_patch import PATCH

WHEN = {
    "approved": "If all are approved",
    "rejected": "If all are rejected",
    "partial": "If some are rejected",
    "skipped": "If it is skipped",
}
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
"""The most nodes listed for one outcome; a longer path ends with a note."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a node and what it does, or a sentence with an icon."""

    text: str
    detail: str = ""
    node: str = ""
    effect: str = ""
    icon: str = "shield"


@dataclass(frozen=True, slots=True)
class Fate:
    """One write of a settled request, and whether it is applied."""

    channel: str
    title: str
    applied: bool


@dataclass(frozen=True, slots=True)
class OutcomePart:
    """The consequences of one outcome."""

    outcome: str
    when: str
    lines: list[Line]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """All outcomes of one request."""

    request: UUID
    parts: list[OutcomePart]


def of_requests(
    compiled: Compiled | None,
    states: Iterable[RequestState],
    ahead: Ahead = NOTHING_AHEAD,
) -> list[Outcomes]:
    """Return the consequences of the outcomes of each undecided request; nothing if
    this process does not have the graph.
    """
    if compiled is None:
        return []
    outcomes = []
    for state in states:
        if state.outcome is None:
            parts = _parts(compiled, state.request, ahead)
            outcomes.append(Outcomes(state.request.id, parts))
    return outcomes


def _parts(
    compiled: Compiled, request: ApprovalRequest, ahead: Ahead
) -> list[OutcomePart]:
    outcomes = ["approved", "rejected"]
    # A single write, and writes that stand or fall together, have no third outcome.
    if request.writes > 1 and not request.policy.get("all_or_nothing"):
        outcomes.append("partial")
    if request.policy.get("skip"):
        outcomes.append(SKIPPED)
    parts = []
    renews = request.kind == AUTHORITY_KIND
    for outcome in outcomes:
        following = lines_after(
            compiled, request.node, outcome, (), ahead, renews=renews
        )
        lines = [*_first_lines(compiled, request, outcome, renews=renews)]
        lines += following or [NOTHING_FOLLOWS]
        parts.append(OutcomePart(outcome, WHEN[outcome], lines))
    return parts


def _first_lines(
    compiled: Compiled, request: ApprovalRequest, outcome: str, *, renews: bool
) -> list[Line]:
    """Return the line on the writes, or on the call, themselves; none of what a caller
    acts on.
    """
    if asks_for_caller(compiled, request.node):
        return []
    # An approved call is what follows: nothing is written into the run before.
    if not renews and not _calls(compiled, request.node):
        return [_first_line(outcome, single=request.writes == 1)]
    if outcome == "rejected" and request.node in compiled.nodes:
        return [_not_called(compiled.nodes[request.node])]
    return []


def _calls(compiled: Compiled, node: str) -> bool:
    return node in compiled.nodes and compiled.nodes[node].calls


def _not_called(node: Node) -> Line:
    return Line("does not run", node=node.name, effect=node.effect, icon="x")


def _called(node: Node, fates: Sequence[Fate], ahead: Ahead) -> Line:
    """Return the line on a node that runs with what was approved."""
    with_what = "exactly these arguments"
    if fates:
        with_what = _titles(fates, applied=True)
    text = f"{DOES.get(node.effect, 'runs')}, with {with_what}"
    warning = _irreversible(node) if node.effect == "external" else ""
    if node.name in ahead.again:
        warning = f"{HAPPENED} {warning}".strip()
    return Line(text, warning, node=node.name, effect=node.effect)


def _first_line(outcome: str, *, single: bool) -> Line:
    """Return the line on the writes themselves."""
    if outcome == "rejected":
        if single:
            return Line("This write does not happen", icon="x")
        return Line(FIRST[outcome], icon="x")
    if single:
        return Line("It is written into the run")
    return Line(FIRST[outcome])


OF_CALLER = {
    "approved": Line("The caller acts on what you approved"),
    "rejected": Line("The caller acts on nothing of it", icon="x"),
    "partial": Line("The caller acts on what was approved, and on nothing else"),
}
"""Outcome -> what whoever asked with no graph does then."""


def asks_for_caller(compiled: Compiled, node: str) -> bool:
    """Return whether a gate asks with no graph, for a caller that acts elsewhere."""
    return compiled.name == ASKING and node != PATCH


HAPPENED = (
    "It happened already, before this run departed from there: it would happen again."
)
NOTHING_FOLLOWS = Line(
    "Nothing follows on this path",
    "If nothing else is going on, the run ends as rejected.",
    icon="slash",
)
BEHIND_PATCH = Line(
    "This counts once the patch is signed",
    (
        "If the patch is rejected, the run ends as rejected. If it changes what you"
        " decide on, you are asked again."
    ),
    icon="clock",
)
PATCH_REFUSED = Line(
    "The run ends as rejected",
    "Nothing of the patch is applied. The run can be rewound or forked again.",
    icon="slash",
)


def lines_after(
    compiled: Compiled,
    node: str,
    outcome: str,
    fates: Sequence[Fate],
    ahead: Ahead = NOTHING_AHEAD,
    *,
    renews: bool = False,
) -> list[Line]:
    """Return what runs once a gate is settled with this outcome and these writes; empty
    if nothing follows. `renews`: the node itself waits for it.
    """
    if node == PATCH:
        return _lines_after_patch(compiled, outcome, fates, ahead)
    if asks_for_caller(compiled, node):
        return [OF_CALLER[outcome]]
    starts = _edges_taken(compiled, node, outcome)
    waits = _waits(compiled, node, renews=renews)
    if outcome == SKIPPED:
        following = _lines_ahead(compiled, starts, (), ahead)
        lines = [_not_called(compiled.nodes[node]), *following]
    elif waits and outcome != "rejected":
        # Nobody decides its writes, so everything that follows may read them.
        following = _lines_ahead(compiled, starts, (), ahead)
        lines = _lines_of_run(compiled.nodes[node], following, fates, ahead, renews)
    else:
        lines = _lines_ahead(compiled, starts, fates, ahead)
    if lines and ahead.patches:
        return [BEHIND_PATCH, *lines]
    return lines


def _edges_taken(
    compiled: Compiled, node: str, outcome: str
) -> list[tuple[Edge, bool]]:
    """Return the edges that this outcome takes, each with whether it is surely taken."""
    way = way_of(outcome)
    leaving = [edge for edge in compiled.edges if edge.source == node]
    return [(edge, _is_sure(edge)) for edge in leaving if takes(edge, way)]


def _waits(compiled: Compiled, node: str, *, renews: bool) -> bool:
    """Return whether the node itself runs once it is approved."""
    return node in compiled.nodes and (renews or compiled.nodes[node].calls)


def _lines_of_run(
    node: Node,
    following: Sequence[Line],
    fates: Sequence[Fate],
    ahead: Ahead,
    renews: bool,
) -> list[Line]:
    """Return the lines on a node that runs now, and on what follows."""
    if node.name in ahead.stops:
        return [_stopped(node)]
    if renews:
        return [_line(node, sure=True, fates=(), ahead=ahead), *following]
    return [_called(node, fates, ahead), *following]


def _lines_after_patch(
    compiled: Compiled,
    outcome: str,
    fates: Sequence[Fate],
    ahead: Ahead,
) -> list[Line]:
    """Return what runs once a patch is signed: the run's tokens go on from where they
    are.
    """
    if outcome == "rejected":
        return [PATCH_REFUSED]
    lines = []
    # The patch is applied as a whole, once the last gate has signed it.
    if ahead.patches > 1:
        lines.append(
            Line("Nothing starts before every gate has signed the patch", icon="clock")
        )
    starts = [(edge, True) for edge in ahead.pending]
    lines += _lines_ahead(compiled, starts, fates, ahead)
    if ahead.others:
        lines.append(
            Line("The other questions of this run still wait for people", icon="clock")
        )
    return lines or [Line("The run ends", icon="check")]


def _lines_ahead(
    compiled: Compiled,
    starts: Sequence[tuple[Edge, bool]],
    fates: Sequence[Fate],
    ahead: Ahead,
) -> list[Line]:
    """Return the nodes after these edges (each with whether it is surely taken) as far
    as the next gate, each with what becomes of the writes that it reads.
    """
    lines: list[Line] = []
    seen: set[str] = set()
    queue = list(starts)
    while queue:
        edge, sure = queue.pop(0)
        # With cycles and joins, each node is listed where it is reached first.
        if edge.target in seen:
            continue
        seen.add(edge.target)
        if edge.target == END:
            text = "The run ends" if sure else "The run may end"
            lines.append(Line(text, icon="check"))
            continue
        if len(lines) >= MOST:
            lines.append(
                Line("More follows", "The run's page draws all of it.", icon="dots")
            )
            break
        node = compiled.nodes[edge.target]
        # The run stops before this node, so nothing after it is certain.
        if node.name in ahead.stops:
            lines.append(_stopped(node))
            continue
        lines.append(_line(node, sure, fates, ahead))
        # After the next gate, other people decide.
        if not node.gated:
            for onward in edges_from(compiled, node.name):
                queue.append((onward, sure and _is_sure(onward)))
    # The end comes last, wherever the walk met it.
    return sorted(lines, key=_is_end)


def _is_end(line: Line) -> bool:
    return line.icon == "check" and not line.node


def _stopped(node: Node) -> Line:
    detail = (
        "What it does has happened before. It starts only when somebody says yes to it."
    )
    return Line(
        "is not started: the run stops before it",
        detail,
        node=node.name,
        effect=node.effect,
    )


def _is_sure(edge: Edge) -> bool:
    return edge.kind == "edge"


def _line(node: Node, sure: bool, fates: Sequence[Fate], ahead: Ahead) -> Line:
    effect = "human" if node.gated else node.effect
    does = DOES[effect]
    text = does if sure else f"may follow: it {does}"
    warning = _irreversible(node) if effect == "external" else ""
    if node.name in ahead.again:
        warning = f"{HAPPENED} {warning}".strip()
    if effect not in ("write", "external") or not fates:
        return Line(text, warning, node=node.name, effect=effect)
    idle, of_writes = _work_for(node, fates)
    if idle:
        text = "may find nothing to do"
    return Line(text, f"{of_writes} {warning}".strip(), node=node.name, effect=effect)


def _work_for(node: Node, fates: Sequence[Fate]) -> tuple[bool, str]:
    """Return whether everything that a node seems to read of these writes was rejected,
    and in words which of them it gets.
    """
    # The guess of what a node reads errs towards saying "may".
    channels = _channels_named(node, {fate.channel for fate in fates})
    read = [fate for fate in fates if fate.channel in channels]
    if not read:
        if all(fate.applied for fate in fates):
            return False, ""
        return False, "It may find nothing to do, for not everything is approved."
    applied = _titles(read, applied=True)
    rejected = _titles(read, applied=False)
    if not applied:
        return True, f"Rejected: {rejected}."
    if not rejected:
        return False, f"With: {applied}."
    return False, f"With: {applied}. Without: {rejected}."


def _titles(fates: Sequence[Fate], *, applied: bool) -> str:
    """Return the titles of the applied or of the rejected writes, or how many there are
    if nobody would read them all.
    """
    titles = [fate.title for fate in fates if fate.applied == applied]
    if len(titles) > MOST:
        return f"{len(titles):,} writes"
    return ", ".join(titles)


def _channels_named(node: Node, channels: set[str]) -> set[str]:
    """Return the channels that a node reads: those that it declares, else those that
    its function names.
    """
    if node.reads is not None:
        return channels & set(node.reads)
    # A function names the channels that it reads as attributes of the state.
    code = getattr(unwrap(node.fn), "__code__", None)
    return channels & _names_in(code) if code else set()


def _names_in(code: CodeType) -> set[str]:
    """Return the names in a function's code, and in that of functions inside."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
    return names


def _irreversible(node: Node) -> str:
    if node.idempotent:
        return (
            "It cannot be taken back. A retry reuses the same key, so it counts once."
        )
    return "It cannot be taken back, and is never repeated silently."
