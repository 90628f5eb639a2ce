"""The walk of docs/development.md: a superstep and a signature pass through the files
that it lists, in its order.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from django.db import connection

from approvals import reviews
from checkpoints import timeline
from checkpoints.core import traces, work_sums
from checkpoints.core.work_sums import WorkSums
from checkpoints.models import Run
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Send, Write
from orchestrator.execution import inline, loop
from orchestrator.worker import shared_state, tasks
from orchestrator.worker.shared_state import SharedState
from tests.support import run_actions
from tests.support.cast import People
from tests.support.paid_claims import claim, paid
from tests.support.small_graphs import graph, registered
from tests.support.standing_policies import policy_of
from tests.support.statements import counted
from tests.support.tiers import ONE_OF_EACH

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(f"{ROOT}/{app}/" for app in ("orchestrator", "approvals", "checkpoints"))
WALKS = re.findall(
    r"^\d+\. `([\w/]+\.py)`", (ROOT / "docs/development.md").read_text(), re.MULTILINE
)
SUPERSTEP = WALKS[:10]
SIGNATURE = WALKS[10:]
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
"""They are no functions of their own, and in later versions of Python they are not
entered.
"""
ENTERED = {
    "sqlite": {
        "fork": (1300, 11),
        "fork, patched": (1550, 12),
        "fork, patched behind a gate": (2050, 15),
        "plan": (600, 3),
        "rewind": (1850, 18),
        "start": (650, 4),
        "sign": (1300, 13),
        "first slice": (2850, 29),
        "sign, with two tiers": (1300, 13),
        "sign, with a policy in code": (1300, 13),
        "sign, with standing policies": (1300, 13),
        "sign, with a claim": (2150, 15),
        "slice, a policy in code signs": (4850, 48),
        "slice, a standing policy signs": (5700, 59),
    },
    "postgresql": {
        "fork": (2100, 11),
        "fork, patched": (2400, 12),
        "fork, patched behind a gate": (3050, 15),
        "plan": (880, 3),
        "rewind": (3100, 18),
        "start": (900, 4),
        "sign": (2150, 13),
        "first slice": (3920, 18),
        "sign, with two tiers": (2150, 13),
        "sign, with a policy in code": (2150, 13),
        "sign, with standing policies": (2150, 13),
        "sign, with a claim": (3150, 16),
        "slice, a policy in code signs": (6500, 28),
        "slice, a standing policy signs": (8000, 41),
    },
}
"""How many functions an act enters at most, those of Python, Django and the driver too,
and how many statements it sends, when it is done for the second time.
"""
PURE_SUPERSTEP = {"sqlite": 269, "postgresql": 279}
"""How many functions a superstep of one pure node enters at most, in the middle of a
slice, those of Python, Django and the driver too. With Python 3.11, which enters
comprehensions like functions.
"""
SIGNED_AND_GONE_ON = {"sqlite": 32, "postgresql": 25}
"""The statements of a signature of two writes and of the slice after it, with those
that begin and end transactions of SQLite.
"""
MOST = {
    "sqlite": {
        "superstep": (53, 202, 412),
        "signature": (28, 135, 563),
        "fork": (58, 242, 504),
    },
    "postgresql": {
        "superstep": (53, 203, 407),
        "signature": (28, 133, 547),
        "fork": (58, 240, 502),
    },
}
"""The files that each passes through, the functions that it enters, and how often it
enters one; those of SQLite stand in docs/development.md. They may become fewer, not
more.
"""

pytestmark = pytest.mark.django_db(transaction=True)


class Walk:
    """The files of this project in which a function is called, once each, in the order
    of their first call; and those functions. When the function `forget_at` is first
    called, all but the first two files are forgotten: what is loaded before it is no
    part.
    """

    def __init__(self, forget_at: str = "") -> None:
        self.files: dict[str, None] = {}
        self.functions: Counter[tuple[str, int, str]] = Counter()
        self.entered = 0
        self._forget_at = forget_at

    def note(self, frame: FrameType, event: str, arg: object) -> None:
        """As `sys.setprofile` calls it."""
        code = frame.f_code
        if event == "call":
            self.entered += 1
        if event != "call" or not code.co_filename.startswith(OURS):
            return
        if code.co_name == self._forget_at:
            self._forget_at = ""
            self.files = {path: None for path in self.files if path in SUPERSTEP[:2]}
            self.functions.clear()
        path = str(Path(code.co_filename).relative_to(ROOT))
        self.files.setdefault(path)
        if code.co_name not in COMPREHENSIONS:
            self.functions[path, code.co_firstlineno, code.co_name] += 1

    @property
    def size(self) -> tuple[int, int, int]:
        return len(self.files), len(self.functions), self.functions.total()


@contextmanager
def walked(*, forget_at: str = "") -> Iterator[Walk]:
    """Yield what is called meanwhile in this thread."""
    walk = Walk(forget_at)
    sys.setprofile(walk.note)
    try:
        yield walk
    finally:
        sys.setprofile(None)


class SuperstepCounts:
    """How many functions of this project are entered in each superstep of a slice, and
    how many at all.
    """

    def __init__(self) -> None:
        self.functions: list[int] = []
        self.entered: list[int] = []

    def note(self, frame: FrameType, event: str, arg: object) -> None:
        """As `sys.setprofile` calls it."""
        code = frame.f_code
        if event != "call":
            return
        is_ours = code.co_filename.startswith(OURS)
        if is_ours and code.co_name == "_turn":
            self.functions.append(0)
            self.entered.append(0)
        if self.entered:
            self.entered[-1] += 1
        if is_ours and self.functions and code.co_name not in COMPREHENSIONS:
            self.functions[-1] += 1


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedState]:
    """Yield what worker processes share, without a cluster."""
    state = SharedState(1)
    monkeypatch.setattr(shared_state, "_installed", state)
    yield state
    state.close()


def in_order(listed: list[str], walk: Walk) -> list[str]:
    return [path for path in walk.files if path in listed]


def assert_no_longer(name: str, walk: Walk) -> None:
    most = MOST[connection.vendor][name]
    assert all(now <= before for now, before in zip(walk.size, most, strict=True)), (
        name,
        walk.size,
        most,
    )


def advanced_by_a_worker(cluster: SharedState, graph: str) -> Walk:
    """The walk of a run's only superstep."""
    run = runs.start(graph, {})
    claim = leases.claim_one(run.id)
    assert claim is not None
    cluster.slots.claim(claim)
    with walked(forget_at="_turn") as walk:
        tasks.advance(str(run.id), claim.epoch)
    run.refresh_from_db()
    assert run.status == "completed"
    return walk


def test_the_walk_says_how_long_it_is_in_all() -> None:
    text = " ".join((ROOT / "docs/development.md").read_text().split())
    for name, (files, functions, calls) in MOST["sqlite"].items():
        assert f"| {name} | {files} | {functions} | {calls} |" in text


def test_the_walk_has_ten_files_and_five() -> None:
    assert len(SUPERSTEP) == 10
    assert len(SIGNATURE) == 5
    assert all((ROOT / path).is_file() for path in WALKS)


def test_a_superstep_passes_through_the_ten_files_in_this_order(
    cluster: SharedState,
) -> None:
    flow = graph("walked")
    flow.node("first")(lambda state, ctx: {"notes": ["first"]})
    flow.edge(START, "first")
    flow.edge("first", END)
    name = registered(flow).name
    # The first one loads what the others find.
    advanced_by_a_worker(cluster, name)
    walk = advanced_by_a_worker(cluster, name)
    assert in_order(SUPERSTEP, walk) == SUPERSTEP
    assert_no_longer("superstep", walk)


def signed(folder: Path, people: People) -> Walk:
    """The walk of one signature."""
    run = run_actions.start("gated", folder)
    by = run_actions.reviewer(people.reviewer)
    items: list[dict[str, Any]] = [
        {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
        for row in run_actions.pending(run)
    ]
    sign: Callable[..., Any] = reviews.sign
    with walked() as walk:
        sign(run.id, items, by=by)
    return walk


def test_a_signature_passes_through_the_five_files_in_this_order(
    tmp_path: Path, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests have imported it; then a signature asks whether anybody traces.
    monkeypatch.delitem(sys.modules, traces.SDK, raising=False)
    signed(tmp_path, people)
    walk = signed(tmp_path, people)
    assert in_order(SIGNATURE, walk) == SIGNATURE
    assert_no_longer("signature", walk)


def test_a_fork_enters_no_more_functions_than_it_did(people: People) -> None:
    run = paid("forked_walk", people)
    checkpoint = timeline.get_checkpoint(f"{run.key}:at-1")
    runs.fork(checkpoint.id, by=people.starter, reason="before")
    with walked() as walk:
        runs.fork(checkpoint.id, by=people.starter, reason="again")
    assert_no_longer("fork", walk)


def acts(name: str, people: People) -> dict[str, Callable[[], Any]]:
    """Acts on a run whose effect happened after the point that they depart from."""
    run = paid(name, people)
    point = timeline.get_checkpoint(f"{run.key}:at-1").id
    return {
        "fork": lambda: runs.fork(point, by=people.starter),
        "fork, patched": lambda: runs.fork(
            point, by=people.starter, patch={"scratch": {"notes": ["patched"]}}
        ),
        "fork, patched behind a gate": lambda: runs.fork(
            point, by=people.starter, patch={"scratch": {"total": 11}}
        ),
        "plan": lambda: runs.plan(point),
        "rewind": lambda: runs.rewind(run.id, point, by=people.starter),
        "start": lambda: runs.start(run.graph, {}, by=people.starter),
    }


@pytest.mark.parametrize(
    "name",
    [
        "fork",
        "fork, patched",
        "fork, patched behind a gate",
        "plan",
        "rewind",
        "start",
    ],
)
def test_an_act_enters_few_functions_and_sends_few_statements(
    name: str, people: People
) -> None:
    act = acts("entered", people)[name]
    # The first one compiles the texts of queries, which are kept.
    act()
    with walked() as walk:
        act()
    with counted() as sent:
        act()
    assert_few(name, walk, sent)


def assert_few(name: str, walk: Walk, sent: list[str]) -> None:
    most_functions, most_statements = ENTERED[connection.vendor][name]
    assert walk.entered <= most_functions, name
    assert len(sent) <= most_statements, name


def test_a_signature_and_the_slice_after_it_enter_few_functions(people: People) -> None:
    graph = paid("signed_and_gone_on", people).graph
    by = run_actions.reviewer(people.reviewer)

    def waiting() -> tuple[Run, list[dict[str, Any]]]:
        run = runs.advance(runs.start(graph, {}).id)
        return run, approval_of(run)

    run, approvals = waiting()
    with walked() as signature:
        reviews.sign(run.id, approvals, by=by)
    with walked() as first_slice:
        runs.advance(run.id)
    run, approvals = waiting()
    with counted() as sent_by_signature:
        reviews.sign(run.id, approvals, by=by)
    with counted() as sent_by_slice:
        runs.advance(run.id)
    assert_few("sign", signature, sent_by_signature)
    assert_few("first slice", first_slice, sent_by_slice)


def left_to_people(state: Any, proposal: Any) -> str:
    """An automatic policy that signs nothing."""
    return "people decide"


def signs_all(state: Any, proposal: Any) -> bool:
    """An automatic policy that signs whatever is proposed."""
    return True


GATES: dict[str, dict[str, Any]] = {
    "sign, with two tiers": {"tiers": ONE_OF_EACH},
    "sign, with a policy in code": {"auto": left_to_people},
    "sign, with standing policies": {"standing": True},
    "sign, with a claim": {"exclusive": True},
}
"""What the gates have at which a person signs one write."""


@pytest.mark.parametrize("name", GATES)
def test_a_signature_costs_little_more_at_a_gate_that_asks_in_another_way(
    name: str, people: People
) -> None:
    graph = paid("signed_at_a_gate", people, **GATES[name]).graph
    by = run_actions.reviewer(people.reviewer)

    def waiting() -> Run:
        run = runs.advance(runs.start(graph, {}).id)
        if name == "sign, with a claim":
            reviews.claim(run_actions.request(run).id, by=by)
        return run

    # The first one compiles the texts of queries, which are kept.
    run_actions.sign(waiting(), by, ["approve"])
    run = waiting()
    approvals = approval_of(run)
    with walked() as walk:
        reviews.sign(run.id, approvals, by=by)
    run = waiting()
    approvals = approval_of(run)
    with counted() as sent:
        reviews.sign(run.id, approvals, by=by)
    assert run_actions.request(run).status == "settled"
    assert_few(name, walk, sent)


def approval_of(run: Run) -> list[dict[str, Any]]:
    """The approval of a run's only write, as it is posted."""
    [row] = run_actions.pending(run)
    return [{"write": str(row.write), "hash": row.hash, "verdict": "approve"}]


@pytest.mark.parametrize(
    ("name", "gate"),
    [
        ("slice, a policy in code signs", {"auto": signs_all}),
        ("slice, a standing policy signs", {"standing": True}),
    ],
)
def test_a_slice_in_which_a_policy_signs_enters_few_functions(
    name: str, gate: dict[str, Any], people: People
) -> None:
    graph = registered(claim("signed_by_a_policy", **gate)).name
    if "standing" in gate:
        run = runs.advance(runs.start(graph, {}).id)
        policy_of(run, run_actions.reviewer(people.reviewer))

    # The first one compiles the texts of queries, which are kept.
    assert runs.advance(runs.start(graph, {}).id).status == "completed"
    run = runs.start(graph, {})
    with walked() as walk:
        runs.advance(run.id)
    run = runs.start(graph, {})
    with counted() as sent:
        runs.advance(run.id)
    assert_few(name, walk, sent)


def test_a_signature_of_two_writes_and_a_pure_slice_send_few_statements(
    people: People,
) -> None:
    flow = graph("two_writes_and_on")
    flow.node("ask", effect="human", gate=Gate(reviewers=["group:claims"]))(
        lambda state, ctx: [Write("letter", "a"), Write("total", 3)]
    )
    flow.node("go_on")(lambda state, ctx: {"notes": ["signed"]})
    flow.edge(START, "ask")
    flow.edge("ask", "go_on")
    flow.edge("go_on", END)
    name = registered(flow).name
    by = run_actions.reviewer(people.reviewer)

    # The first one compiles the texts of queries, which are kept.
    for _ in range(2):
        run = runs.advance(runs.start(name, {}).id)
        approvals = [
            {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
            for row in run_actions.pending(run)
        ]
        with counted() as sent:
            reviews.sign(run.id, approvals, by=by)
            run = runs.advance(run.id)

    assert run.status == "completed"
    assert len(approvals) == 2
    assert len(sent) <= SIGNED_AND_GONE_ON[connection.vendor]


def ticking(name: str) -> Graph:
    """A graph with a branch of six supersteps that writes a channel in each."""
    flow = graph(name)
    flow.node("tick")(lambda state, ctx: {"total": state.total + 1})
    flow.edge(START, "tick")
    flow.branch("tick", lambda state: state.total < 6, {True: "tick", False: END})
    return flow


def ticking_beside(name: str, *, writes: int, requests: int) -> Graph:
    """Return a graph in which, beside the branch, this many requests wait, each with
    this many writes.
    """
    flow = ticking(name)

    @flow.node(sends=["ask"])
    def spread(state: Any, ctx: Any) -> list[Send]:
        return [Send("ask", {"number": number}) for number in range(requests)]

    @flow.node(approve="writes", gate=Gate(reviewers=["group:claims"]))
    def ask(state: Any, ctx: Any) -> list[Write]:
        return [Write("letter", str(number)) for number in range(writes)]

    flow.edge(START, "spread")
    flow.edge("spread", END)
    flow.edge("ask", END)
    return flow


def counts_of_supersteps(flow: Graph) -> SuperstepCounts:
    """The functions that the supersteps of a slice enter."""
    name = registered(flow).name
    counts = SuperstepCounts()
    # The first run loads what the second finds.
    for profile in (None, counts.note):
        claim = leases.claim_one(runs.start(name, {}).id)
        assert claim is not None
        sys.setprofile(profile)
        try:
            loop.run_slice(claim.id, claim.epoch)
        finally:
            sys.setprofile(None)
    assert len(counts.functions) >= 6
    return counts


def functions_of_a_superstep(flow: Graph) -> int:
    """The functions of this project that the fifth superstep of a slice enters."""
    return counts_of_supersteps(flow).functions[4]


def test_a_superstep_of_a_pure_node_enters_few_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The node runs in this thread, however long it takes on a busy machine.
    monkeypatch.setattr(inline, "QUICK_MS", 10_000)
    counts = counts_of_supersteps(ticking("pure"))
    assert counts.entered[4] <= PURE_SUPERSTEP[connection.vendor]


def test_metrics_add_three_functions_to_a_superstep_and_none_where_nobody_watches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inline, "QUICK_MS", 10_000)
    alone = counts_of_supersteps(ticking("unwatched")).entered[4]
    monkeypatch.setattr(work_sums, "installed", WorkSums(1))
    watched = counts_of_supersteps(ticking("watched")).entered[4]
    # One for the duration, two for the checkpoint and its bytes.
    assert watched == alone + 3


@pytest.mark.parametrize(
    ("writes", "requests", "most"), [(10, 1, 1.3), (200, 1, 1.3), (1, 200, 2.92)]
)
def test_a_superstep_beside_a_gate_reads_no_request_again(
    writes: int, requests: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each node runs in a thread of its own, whose functions are not counted: whether
    # one is quick enough for this thread is a matter of time.
    monkeypatch.setattr(inline, "are_quick", lambda attempts: False)
    alone = functions_of_a_superstep(ticking("alone"))
    beside = functions_of_a_superstep(
        ticking_beside("beside-a-gate", writes=writes, requests=requests)
    )
    assert beside <= most * alone, (beside, alone)
