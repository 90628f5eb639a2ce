"""Reference data: a database as large as an installation's after some years, on which
pages, lists and the queue can be measured.

A few runs are real: they are started, worked on and signed. The others are copies of
these, each with its own ids, key, log and seals, so that it verifies as if it had been
run. Of 100 runs 20 wait for people, 15 are due later, 10 are due but belong to graphs
that no process knows, 50 have ended after a decision, and 5 after a deadline. Of those
that wait for the reviewer a quarter have a draft of theirs.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.utils import timezone
from pydantic import BaseModel

from approvals import drafts, reviews
from approvals.drafts import DraftChoice
from checkpoints.db import statistics
from checkpoints.models import GraphVersion, PendingWrite, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator import runs
from orchestrator.engine import (
    END,
    START,
    Gate,
    Graph,
    NotDone,
    Retry,
    Show,
    Write,
    registry,
)
from orchestrator.engine.errors import WrongStatus
from orchestrator.engine.values import canonical
from orchestrator.management import run_copies
from orchestrator.management.run_copies import RunCopies, Template

PREFIX = "reference"
"""The graphs are called `reference-00`, `reference-01` and so on; the members of the
group of the same name decide.
"""
FOREIGN = "foreign"
GRAPHS = 20
FOREIGN_GRAPHS = 10
REVIEWER = "reference-reviewer"
"""A user in the groups of the first three graphs."""
GRAPHS_OF_REVIEWER = 3
AGE = timedelta(days=400)
"""The age of the oldest run. The others lie evenly between it and the present."""
GOLDEN_RATIO = 0.618034
"""Its multiples, without their whole part, lie evenly however many there are."""
LATER = timedelta(days=30)
AT_ONCE = timedelta(microseconds=1)
"""A deadline that has come as soon as anybody looks."""
BATCH = 2_000
LONG_RUN = 10_000
"""The checkpoints of the longest run."""
LARGE_STATE = 1_000_000
"""The characters of the largest state."""
LARGE_REVIEWS = (200, 1_000)
"""The writes of the largest reviews."""

WAITS = "waits"
DRAFTED = "drafted"
SLEEPS = "sleeps"
IS_FOREIGN = "foreign"
ENDED = "ended"
EXPIRED = "expired"
# Of each 20 runs: what becomes of them, in an order that mixes them.
MIX = (
    *(WAITS, ENDED, ENDED, SLEEPS, ENDED),
    *(DRAFTED, ENDED, ENDED, IS_FOREIGN, ENDED),
    *(WAITS, ENDED, EXPIRED, SLEEPS, ENDED),
    *(WAITS, ENDED, SLEEPS, IS_FOREIGN, ENDED),
)


class ReferenceInput(BaseModel):
    """`steps`: supersteps before the gate. `proposals`: writes that it asks about.
    `waits`: the first attempt of the first step fails, and the next one is due later.
    `expires`: the gate has a deadline, which has come at once.
    """

    steps: int = 1
    waits: bool = False
    expires: bool = False
    proposals: int = 2
    text: str = ""


class ReferenceState(BaseModel):
    """The state of a reference run."""

    steps: int = 0
    is_over: bool = False
    expires: bool = False
    number: int = 0
    text: str = ""


def reference_graph(name: str) -> Graph:
    """Return a graph that counts steps and then asks the members of the group `name`."""
    graph = Graph(
        name, input=ReferenceInput, state=ReferenceState, max_supersteps=2 * LONG_RUN
    )

    @graph.node(retry=Retry(attempts=2, backoff=LATER.total_seconds(), jitter=0))
    def step(state: Any, ctx: Any) -> dict[str, Any]:
        if ctx.input.waits:
            raise NotDone("the other side is closed")
        steps = state.steps + 1
        changes = {"steps": steps, "is_over": steps >= ctx.input.steps}
        if steps == 1:
            changes["text"] = ctx.input.text
            changes["expires"] = ctx.input.expires
        return changes

    gates = {"ask": None, "ask_in_time": AT_ONCE}
    for node, deadline in gates.items():
        _add_gate(graph, node, deadline)

    graph.edge(START, "step")
    graph.branch(
        "step",
        _part_after_step,
        {"on": "step", "done": "ask", "expires": "ask_in_time"},
    )
    return graph


def _part_after_step(state: Any) -> str:
    """Return the label of the branch after a step."""
    if not state.is_over:
        return "on"
    return "expires" if state.expires else "done"


def _add_gate(graph: Graph, node: str, deadline: timedelta | None) -> None:
    """Add a node that asks the members of the group of the graph's name, the last."""
    shown = {"number": Show(label="Set the number to {value}")}
    gate = Gate(reviewers=[f"group:{graph.name}"], writes=shown, deadline=deadline)

    def ask(state: Any, ctx: Any) -> list[Write]:
        return [Write("number", number) for number in range(ctx.input.proposals)]

    graph.node(node, effect="human", gate=gate)(ask)
    graph.edge(node, END, when=("approved", "partial", "rejected"))


def graph_names() -> list[str]:
    """Return the names of the graphs that wait for people."""
    return [f"{PREFIX}-{number:02}" for number in range(GRAPHS)]


def register_graphs() -> None:
    """Register the graphs that wait for people in this process."""
    for name in graph_names():
        registry.replace(reference_graph(name))


class ReferenceData:
    """The reference data of a database. Raises `WrongStatus` if it has runs."""

    def __init__(self) -> None:
        if Run.objects.exists():
            message = (
                "this database has runs, and the reference data would stand among them;"
                " use an empty one"
            )
            raise WrongStatus(message)
        register_graphs()
        self._graphs = graph_names()
        self._templates = _templates(_people())
        _age_versions()

    def grow(self, count: int) -> Iterator[int]:
        """Add copies until there are `count`. Yields their number after each batch,
        which may still be on its way to the database; at the end all are there. After an
        error it can be called again.
        """
        # Not remembered, since an insertion may have failed.
        first = _number_of_copies()
        with _without_collector(), run_copies.writer() as write:
            while first < count:
                last = min(count, first + BATCH)
                copies = RunCopies()
                for number in range(first, last):
                    self._add_copy(copies, number)
                write(copies)
                first = last
                yield last
        # As in a real installation, queries are planned from table statistics.
        statistics.gather()

    def _add_copy(self, copies: RunCopies, number: int) -> None:
        fate = MIX[number % len(MIX)]
        graph = self._graphs[number // len(MIX) % GRAPHS]
        age = AGE * (number * GOLDEN_RATIO % 1)
        copies.add(self._templates[graph, fate], age, **_columns(fate, number))


def _number_of_copies() -> int:
    """Return how many copies there are. They are inserted in the order of their keys,
    and the templates have other keys.
    """
    copies = Run.objects.filter(key__startswith=f"{PREFIX}-").order_by("-key")
    last_key = copies.values_list("key", flat=True).first()
    if last_key is None:
        return 0
    return int(last_key.removeprefix(f"{PREFIX}-")) + 1


@contextmanager
def _without_collector() -> Iterator[None]:
    """Open a block without Python's collector of circles: copies have none, and it
    would go through the rows of a batch again and again, for a third of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _people() -> Any:
    """Make the reviewer and his groups, and return him."""
    user = get_user_model().objects.create_user(username=REVIEWER)
    for name in graph_names()[:GRAPHS_OF_REVIEWER]:
        group, _ = Group.objects.get_or_create(name=name)
        user.groups.add(group)
    return user


def _templates(reviewer: Any) -> dict[tuple[str, str], Template]:
    """Run each graph for real, once for each fate of its runs."""
    templates = {}
    for name in graph_names():
        # Whoever signs the templates of all graphs is in the group of each for so long.
        group, is_new = Group.objects.get_or_create(name=name)
        reviewer.groups.add(group)
        ended = started(name)
        _sign(ended, reviewer)
        templates[name, ENDED] = Template(runs.advance(ended.id))
        templates[name, EXPIRED] = Template(_expired(name))
        templates[name, WAITS] = Template(started(name))
        drafted = started(name)
        # Where the group is new, the reviewer is in it for this function alone.
        if not is_new:
            _draft(drafted, reviewer)
        templates[name, DRAFTED] = Template(drafted)
        templates[name, SLEEPS] = Template(started(name, waits=True))
        templates[name, IS_FOREIGN] = Template(runs.start(name, {}))
        if is_new:
            reviewer.groups.remove(group)
    return templates


def _age_versions() -> None:
    """Make the versions of the graphs older than the oldest run."""
    for version in GraphVersion.objects.all():
        version.first_seen_at -= 2 * AGE
        sealed_rows.seal(version, PLAIN)
        version.save()


def started(graph: str, **fields: Any) -> Run:
    """Return a run of one of the graphs, advanced to where it waits or ends."""
    return runs.advance(runs.start(graph, fields).id)


def _sign(run: Run, reviewer: Any) -> None:
    items = []
    for write in PendingWrite.objects.filter(run=run):
        item = {"write": str(write.write), "hash": write.hash, "verdict": "approve"}
        items.append(item)
    reviews.sign(run.id, items, by=reviewer)


def _expired(graph: str) -> Run:
    """Return a run in which a deadline decided."""
    run = started(graph, expires=True)
    # The first look may be at the moment of the deadline itself.
    while run.status == "paused":
        run = runs.advance(run.id)
    return run


def _draft(run: Run, reviewer: Any) -> None:
    """Save a choice of the reviewer for the first write of a run."""
    write = PendingWrite.objects.filter(run=run).order_by("position")[0]
    choice = DraftChoice(
        write=str(write.write),
        revision=write.revision,
        hash=write.hash,
        verdict="approve",
        reason="",
        fields={},
    )
    drafts.save_drafts(reviewer, run, [choice], number=1)


def _columns(fate: str, number: int) -> dict[str, Any]:
    """Return the columns of the run in which one copy differs from another, apart from
    ids and times.
    """
    columns: dict[str, Any] = {
        "key": f"{PREFIX}-{number:07}",
        "label": f"Reference run {number:07}",
    }
    if fate == SLEEPS:
        columns["due_at"] = timezone.now() + LATER + timedelta(seconds=number)
    if fate == IS_FOREIGN:
        columns["graph"] = f"{FOREIGN}-{number % FOREIGN_GRAPHS:02}"
        columns["fingerprint"] = canonical.digest(columns["graph"].encode())
    return columns


def make_large_runs() -> None:
    """Make a long run, one with a large state, and reviews of many writes."""
    name = graph_names()[0]
    started(name, steps=LONG_RUN)
    started(name, text="x" * LARGE_STATE)
    for size in LARGE_REVIEWS:
        started(name, proposals=size)
