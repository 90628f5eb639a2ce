"""Pairing the checkpoints of two runs by node and visit, and the reason why a value
differs between them. Pure; the timeline passes what rows, results, answers and memory
contain.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import zip_longest

from orchestrator.engine.frozen import frozen

Visit = tuple[str, int]
"""Node and visit."""

Mark = tuple[str, str, int]
"""Source, node and visit, by which a checkpoint is recognized in the other run."""

Positions = tuple[int | None, int | None]
"""A position in A and one in B; None if that run has nothing beside the other."""

PATCH = "patch"
ANSWER = "answer"
OUTSIDE = "outside"
MEMORY = "memory"
INPUT = "input"
CODE = "code"
PATH = "path"
FOLLOWS = "follows"
UNKNOWN = "unknown"
REASONS = (INPUT, CODE, PATCH, ANSWER, OUTSIDE, MEMORY, PATH, FOLLOWS, UNKNOWN)
"""Why a value differs: another input · another version of the graph · a patch · another
decision · another recorded result · another result of reading memory · only one run
came there, or by another node · it follows from what differed before · unknown, both
ran live.
"""
_BEGINNINGS = frozenset({"fork", "replay", "rewind"})


@frozen
class Stage:
    """A checkpoint as alignment sees it: its `source`, and its visits with effect and
    outcome.
    """

    seq: int
    source: str
    visits: Mapping[Visit, tuple[str, str]] = field(default_factory=dict, hash=False)

    def marks(self) -> list[Mark]:
        """Return the marks that identify it in the other run; none if it began a line."""
        if self.visits:
            return [(self.source, *visit) for visit in self.visits]
        if self.source in _BEGINNINGS:
            return []
        return [(self.source, "", 0)]


def side_by_side(a: Sequence[Stage], b: Sequence[Stage]) -> list[Positions]:
    """Return the positions of both, in order: a pair where the same visit of the same
    node made both; what lies between two pairs side by side as it comes, with None if
    one run has nothing. Exchanging both sides exchanges the pairs.
    """
    marks_of_a = _sorted_marks(a)
    marks_of_b = _sorted_marks(b)
    if marks_of_a == marks_of_b:
        return [(position, position) for position in range(len(a))]

    # Several alignments may be equally long. The same one must be chosen whichever run
    # is named first, so the runs are always compared in one order.
    if marks_of_a > marks_of_b:
        exchanged = side_by_side(b, a)
        return [(in_a, in_b) for in_b, in_a in exchanged]

    pairs = _longest_rising_pairs(_counterparts(a, b))
    return _with_unpaired_positions(pairs, len(a), len(b))


def _sorted_marks(stages: Sequence[Stage]) -> list[list[Mark]]:
    return [sorted(stage.marks()) for stage in stages]


def _counterparts(a: Sequence[Stage], b: Sequence[Stage]) -> list[int | None]:
    """Return, for each stage of A, the first position in B that shares a mark with it;
    None if there is none.
    """
    first_in_b: dict[Mark, int] = {}
    for position, stage in enumerate(b):
        for mark in stage.marks():
            first_in_b.setdefault(mark, position)

    counterparts: list[int | None] = []
    for stage in a:
        shared = [first_in_b[mark] for mark in stage.marks() if mark in first_in_b]
        counterparts.append(min(shared, default=None))
    return counterparts


def _longest_rising_pairs(counterparts: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return the longest sequence of pairs whose positions rise in both runs."""
    # The item n of both lists is the last pair of the rising sequence of n + 1 pairs
    # that ends earliest in B.
    # The longest increasing subsequence, found by patience sorting.
    last_in_b: list[int] = []
    last_in_a: list[int] = []
    previous_in_a: dict[int, int | None] = {}
    for in_a, in_b in enumerate(counterparts):
        if in_b is None:
            continue
        length = bisect_left(last_in_b, in_b)
        previous_in_a[in_a] = None
        if length:
            previous_in_a[in_a] = last_in_a[length - 1]
        last_in_b[length : length + 1] = [in_b]
        last_in_a[length : length + 1] = [in_a]

    # The longest sequence is followed back from its end.
    pairs: list[tuple[int, int]] = []
    position: int | None = None
    if last_in_a:
        position = last_in_a[-1]
    while position is not None:
        pairs.append((position, counterparts[position] or 0))
        position = previous_in_a[position]
    pairs.reverse()
    return pairs


def _with_unpaired_positions(
    pairs: Iterable[tuple[int, int]],
    length_of_a: int,
    length_of_b: int,
) -> list[Positions]:
    """Return the pairs and, before, between and after them, the positions without a
    pair.
    """
    rows: list[Positions] = []
    next_in_a = 0
    next_in_b = 0
    for in_a, in_b in pairs:
        rows += zip_longest(range(next_in_a, in_a), range(next_in_b, in_b))
        rows.append((in_a, in_b))
        next_in_a = in_a + 1
        next_in_b = in_b + 1
    rows += zip_longest(range(next_in_a, length_of_a), range(next_in_b, length_of_b))
    return rows


@frozen
class Cause:
    """How one run came to a value: the checkpoint that set its channel since the runs
    split, and the visits that may have set it. `patched`: a patch set it. Without
    `stage` it was not set since.
    """

    stage: Stage | None = None
    visits: tuple[Visit, ...] = ()
    patched: bool = False


@frozen
class Evidence:
    """The recorded evidence of both runs. By visit: whether recorded results, memory
    reads and proposals differ (absent: not both have some); `answered`: the visits that
    each run's settlements applied. `first`: the seqs of the first checkpoints that
    differ, in A and B.
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
    """Why a value differs: one of `REASONS`, the nodes concerned, and the run in which
    it was, `a` or `b`, where it was in only one of them.
    """

    kind: str
    nodes: tuple[str, ...] = ()
    run: str = ""


def reason_of(
    a: Cause,
    b: Cause,
    evidence: Evidence,
) -> Reason:
    """Return why a channel that both runs have differs between them: the nearest reason
    that is known.
    """
    return (
        _reason_in_patches(a, b)
        or _reason_in_answers(a, b, evidence)
        or _reason_in_paths(a, b)
        or _reason_in_shared_visits(a, b, evidence)
    )


def _reason_in_patches(a: Cause, b: Cause) -> Reason | None:
    if not a.patched and not b.patched:
        return None
    return Reason(PATCH, run=_only_run(a.patched, b.patched))


def _reason_in_answers(
    a: Cause,
    b: Cause,
    evidence: Evidence,
) -> Reason | None:
    """Return the reason where people decided a gate in one run, and otherwise or not at
    all in the other.
    """
    visits: set[Visit] = set()
    for cause in (a, b):
        if cause.stage is not None and cause.stage.source == "settlement":
            visits.update(cause.visits)
    if not visits:
        return None
    # Other proposals come from the nodes, not from the people who decided on them.
    if any(evidence.other_proposals.get(visit) for visit in visits):
        return None

    answered_in_a, answered_in_b = evidence.answered
    is_in_a = not visits.isdisjoint(answered_in_a)
    is_in_b = not visits.isdisjoint(answered_in_b)
    run = _only_run(is_in_a, is_in_b)
    nodes = {node for node, _ in visits}
    return Reason(ANSWER, tuple(sorted(nodes)), run)


def _only_run(is_in_a: bool, is_in_b: bool) -> str:
    """Return the run in which alone something was; nothing for both or neither."""
    if is_in_a == is_in_b:
        return ""
    if is_in_a:
        return "a"
    return "b"


def _reason_in_paths(a: Cause, b: Cause) -> Reason | None:
    """Return the reason where one run set the value and the other did not, or by other
    nodes.
    """
    if a.stage is None and b.stage is None:
        return None
    if b.stage is None:
        return Reason(PATH, _distinct_nodes(a.visits), "a")
    if a.stage is None:
        return Reason(PATH, _distinct_nodes(b.visits), "b")
    if set(a.visits) & set(b.visits):
        return None
    return Reason(PATH, _distinct_nodes([*a.visits, *b.visits]))


def _reason_in_shared_visits(
    a: Cause,
    b: Cause,
    evidence: Evidence,
) -> Reason:
    """Return the reason where the same visit set the value in both runs, to another
    one in each.
    """
    shared = sorted(visit for visit in a.visits if visit in b.visits)
    with_other_results = _differing_visits(shared, evidence.other_results)
    if with_other_results:
        return Reason(OUTSIDE, _distinct_nodes(with_other_results))
    with_other_memory = _differing_visits(shared, evidence.other_memory)
    if with_other_memory:
        return Reason(MEMORY, _distinct_nodes(with_other_memory))

    nodes = _distinct_nodes(shared)
    if evidence.other_input:
        return Reason(INPUT, nodes)
    if evidence.other_code:
        return Reason(CODE, nodes)

    # Nothing can follow from an earlier difference where the difference begins.
    if a.stage is None or b.stage is None:
        return Reason(UNKNOWN, nodes)
    if (a.stage.seq, b.stage.seq) == evidence.first:
        return Reason(UNKNOWN, nodes)
    return Reason(FOLLOWS, nodes)


def _differing_visits(
    visits: Iterable[Visit], differs: Mapping[Visit, bool]
) -> list[Visit]:
    return [visit for visit in visits if differs.get(visit)]


def _distinct_nodes(visits: Iterable[Visit]) -> tuple[str, ...]:
    """Return the nodes of these visits, each once, in order."""
    return tuple(dict.fromkeys(node for node, _ in visits))


def in_words(reason: Reason, names: tuple[str, str] = ("A", "B")) -> str:
    """Return a reason as people read it; `names` are those of the two runs."""
    nodes = ", ".join(reason.nodes)
    run = {"a": names[0], "b": names[1]}.get(reason.run, "")
    words_by_kind = {
        INPUT: "another input",
        CODE: "another version of the graph",
        PATCH: _patch_in_words(run),
        ANSWER: _answer_in_words(nodes, run),
        OUTSIDE: f"{nodes} got another result from outside",
        MEMORY: f"{nodes} read other memory",
        PATH: _path_in_words(nodes, run),
        FOLLOWS: f"set by {nodes}, follows from what differed before",
        UNKNOWN: _unknown_in_words(nodes),
    }
    return words_by_kind[reason.kind]


def _patch_in_words(run: str) -> str:
    if run:
        return f"patched in {run}"
    return "patched in both"


def _answer_in_words(nodes: str, run: str) -> str:
    if run:
        return f"answered at {nodes}, in {run} only"
    return f"another answer at {nodes}"


def _path_in_words(nodes: str, run: str) -> str:
    words = "set"
    if nodes:
        words += f" by {nodes}"
    if run:
        words += f", in {run} only"
    if not nodes and not run:
        words += " by different nodes"
    return words


def _unknown_in_words(nodes: str) -> str:
    if nodes:
        return f"unknown, both ran {nodes} live"
    return "unknown"
