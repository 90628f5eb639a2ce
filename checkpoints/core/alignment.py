"""Two runs laid side by side by node and visit, and why a value differs between them. Pure; the timeline gives it what
rows, results, answers and memory say.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import field

from orchestrator.engine.frozen import frozen

Visit = tuple[str, int]
"""Node and visit."""

PATCH, ANSWER, OUTSIDE, MEMORY = "patch", "answer", "outside", "memory"
INPUT, CODE, PATH, FOLLOWS, UNKNOWN = "input", "code", "path", "follows", "unknown"
REASONS = (INPUT, CODE, PATCH, ANSWER, OUTSIDE, MEMORY, PATH, FOLLOWS, UNKNOWN)
"""Why a value differs: another input · another version of the graph · a patch · another decision · another recorded
result · memory read otherwise · only one run came there, or by another node · it follows from what differed before ·
unknown, both ran live.
"""
_BEGINNINGS = frozenset({"fork", "replay", "rewind"})


@frozen
class Stage:
    """One checkpoint as it is aligned: what made it (`source`), and its visits with effect and outcome."""

    seq: int
    source: str
    visits: Mapping[Visit, tuple[str, str]] = field(default_factory=dict, hash=False)

    def marks(self) -> list[tuple[str, str, int]]:
        """What it is found by in the other run; nothing where it began a line."""
        found = [(self.source, *visit) for visit in self.visits]
        return found or ([] if self.source in _BEGINNINGS else [(self.source, "", 0)])


def side_by_side(a: Sequence[Stage], b: Sequence[Stage]) -> list[tuple[int | None, int | None]]:
    """The positions of both, in order: a pair where the same visit of the same node made both; what stands between two
    pairs side by side as it comes, None where one has nothing. Exchanging both sides exchanges the pairs.
    """
    first, second = _marks_of(a), _marks_of(b)
    if first == second:
        return [(position, position) for position in range(len(a))]
    if first > second:
        # Of several ways to lay them the same must be taken, whichever side is named first.
        return [(left, right) for right, left in side_by_side(b, a)]
    there: dict[tuple[str, str, int], int] = {}
    for position, stage in enumerate(b):
        for key in stage.marks():
            there.setdefault(key, position)
    met = [min((there[key] for key in stage.marks() if key in there), default=None) for stage in a]
    rows: list[tuple[int | None, int | None]] = []
    at_a = at_b = 0
    for left, right in [*_rising(met), (len(a), len(b))]:
        for n in range(max(left - at_a, right - at_b)):
            rows.append((at_a + n if at_a + n < left else None, at_b + n if at_b + n < right else None))
        rows.append((left, right))
        at_a, at_b = left + 1, right + 1
    return rows[:-1]


def _marks_of(stages: Sequence[Stage]) -> list[list[tuple[str, str, int]]]:
    return [sorted(stage.marks()) for stage in stages]


def _rising(met: Sequence[int | None]) -> list[tuple[int, int]]:
    """The longest run of pairs that rises on both sides."""
    tails: list[int] = []
    last: list[int] = []
    before: dict[int, int | None] = {}
    for position, right in enumerate(met):
        if right is None:
            continue
        place = bisect_left(tails, right)
        before[position] = last[place - 1] if place else None
        tails[place : place + 1] = [right]
        last[place : place + 1] = [position]
    found: list[tuple[int, int]] = []
    at = last[-1] if last else None
    while at is not None:
        found.append((at, met[at] or 0))
        at = before[at]
    return found[::-1]


@frozen
class Cause:
    """How one run came to a value: the checkpoint that set its channel since the runs split, and the visits that may
    have. `patched`: a patch set it. Without `stage` it was not set since.
    """

    stage: Stage | None = None
    visits: tuple[Visit, ...] = ()
    patched: bool = False


@frozen
class Evidence:
    """What is known of both runs. By visit: whether recorded results, memory reads and proposals differ (absent: not
    both have some); `answered`: the visits that each run's settlements applied. `first`: the seqs of the first
    checkpoints that differ, in A and B.
    """

    other_input: bool = False
    other_code: bool = False
    other_results: Mapping[Visit, bool] = field(default_factory=dict)
    other_memory: Mapping[Visit, bool] = field(default_factory=dict)
    other_proposals: Mapping[Visit, bool] = field(default_factory=dict)
    answered: tuple[frozenset[Visit], frozenset[Visit]] = (frozenset(), frozenset())
    first: tuple[int | None, int | None] = (None, None)


@frozen
class Reason:
    """Why a value differs: one of `REASONS`, the nodes concerned, and the run in which it was, `a` or `b`, where it was
    in one only.
    """

    kind: str
    nodes: tuple[str, ...] = ()
    run: str = ""


def reason_of(a: Cause, b: Cause, known: Evidence) -> Reason:
    """Why a channel that both runs have differs between them."""
    return _of_patch(a, b) or _of_answer(a, b, known) or _of_path(a, b) or _of_visit(a, b, known)


def _of_patch(a: Cause, b: Cause) -> Reason | None:
    if a.patched or b.patched:
        return Reason(PATCH, run="" if a.patched and b.patched else "a" if a.patched else "b")
    return None


def _of_answer(a: Cause, b: Cause, known: Evidence) -> Reason | None:
    """People decided a gate in one run, and otherwise or not at all in the other."""
    settled = [one for one in (a, b) if one.stage is not None and one.stage.source == "settlement"]
    visits = {visit for one in settled for visit in one.visits}
    nodes = tuple(sorted({node for node, _ in visits}))
    if not settled or not visits or any(known.other_proposals.get(visit) for visit in visits):
        return None
    in_a, in_b = (any(visit in answered for visit in visits) for answered in known.answered)
    return Reason(ANSWER, nodes, "" if in_a == in_b else "a" if in_a else "b")


def _of_path(a: Cause, b: Cause) -> Reason | None:
    """One run set it and the other did not, or by other nodes."""
    if a.stage is None or b.stage is None:
        one, run = (a, "a") if b.stage is None else (b, "b")
        return Reason(PATH, _nodes(one), run) if one.stage is not None else None
    return None if set(a.visits) & set(b.visits) else Reason(PATH, tuple(dict.fromkeys(_nodes(a) + _nodes(b))))


def _of_visit(a: Cause, b: Cause, known: Evidence) -> Reason:
    """The same visit set it in both runs, and to another value."""
    shared = sorted(visit for visit in a.visits if visit in b.visits)
    nodes = tuple(dict.fromkeys(node for node, _ in shared))
    if others := tuple(dict.fromkeys(node for node, visit in shared if known.other_results.get((node, visit)))):
        return Reason(OUTSIDE, others)
    if others := tuple(dict.fromkeys(node for node, visit in shared if known.other_memory.get((node, visit)))):
        return Reason(MEMORY, others)
    if known.other_input:
        return Reason(INPUT, nodes)
    if known.other_code:
        return Reason(CODE, nodes)
    begins = a.stage is None or b.stage is None or (a.stage.seq, b.stage.seq) == known.first
    return Reason(UNKNOWN if begins else FOLLOWS, nodes)


def _nodes(one: Cause) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node for node, _ in one.visits))


def in_words(reason: Reason, names: tuple[str, str] = ("A", "B")) -> str:
    """A reason as people read it; `names` are what the two runs are called."""
    nodes = ", ".join(reason.nodes)
    where = {"a": names[0], "b": names[1]}.get(reason.run, "")
    only = f", in {where} only" if where else ""
    said = {
        INPUT: "another input",
        CODE: "another version of the graph",
        PATCH: f"patched in {where}" if where else "patched in both",
        ANSWER: f"answered at {nodes}{only}" if where else f"another answer at {nodes}",
        OUTSIDE: f"{nodes} got another result from outside",
        MEMORY: f"{nodes} read other memory",
        PATH: f"set by {nodes}{only}" if nodes else f"set{only}" if where else "set by different nodes",
        FOLLOWS: f"set by {nodes}, follows from what differed before",
        UNKNOWN: f"unknown, both ran {nodes} live" if nodes else "unknown",
    }
    return said[reason.kind]
