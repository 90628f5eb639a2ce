"""The tables of docs/checkpoints.md are what the policies do: cell by cell by the
function, and by real runs.
"""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from pydantic import BaseModel

from approvals import reviews
from checkpoints.core.keep_policy import PolicySuperstep, stays
from checkpoints.core.status import Status
from checkpoints.ledger import pending_writes
from checkpoints.models import Checkpoint, PendingWrite, Run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Interval, registry
from orchestrator.engine.graphs.structure import policy as policy_of
from tests.house.commands import ROOT
from tests.support import cast
from tests.support.chain import join_in_a_row

N = 2
POLICIES: dict[str, Any] = {
    "every_node": "every_node",
    "explicit": "explicit",
    "none": "none",
    "manual": "manual",
    "Interval(n)": Interval(N),
    "Interval(0)": Interval(0),
}
SETTINGS = {
    "not set": None,
    "before": "before",
    "after": "after",
    "both": "both",
    "none": "none",
}


def _table(heading: str) -> dict[tuple[str, str], str]:
    """(row, column) -> cell, of the table of the page whose first column is named so."""
    page = (ROOT / "docs" / "checkpoints.md").read_text()
    (text,) = re.findall(rf"^\| {heading} \|.*(?:\n\|.*)*", page, re.MULTILINE)
    events = [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for line in text.splitlines()
    ]
    columns, _, *rows = events
    return {
        (row[0], column): cell
        for row in rows
        for column, cell in zip(columns[1:], row[1:], strict=True)
    }


NODES = _table("graph policy")
ALWAYS = _table("row")


def test_the_tables_have_every_policy_and_every_setting() -> None:
    assert set(NODES) == {
        (policy, setting) for policy in POLICIES for setting in SETTINGS
    }
    assert {column for _, column in ALWAYS} == set(POLICIES)
    assert len({row for row, _ in ALWAYS}) == 6


def _words(*, ahead: bool, own: set[int], tried: set[int]) -> str:
    """Return what the page says of these findings."""
    if own and own != tried:
        assert own == {number for number in tried if number % N == 0}
    content = ["ahead"] if ahead else []
    content += ["own" if own == tried else "own in every n-th superstep"] if own else []
    return " + ".join(content) or "–"


@pytest.mark.parametrize(("policy", "setting"), list(NODES))
def test_a_cell_says_what_the_function_decides(policy: str, setting: str) -> None:
    graph = policy_of(POLICIES[policy])
    node = SETTINGS[setting]
    tried = set(range(1, 3 * N + 1))
    own = {
        number
        for number in tried
        if stays(graph, PolicySuperstep(number, ran=(node,), next=()))
    }
    # The superstep ahead has a node that asks for nothing, so only the next one can
    # keep its row.
    ahead = stays(graph, PolicySuperstep(1, ran=("none",), next=(node,)))
    assert NODES[policy, setting] == _words(ahead=ahead, own=own, tried=tried)


class Nothing(BaseModel):
    pass


class State(BaseModel):
    value: int = 0


def _quiet(state: State, ctx: Any) -> None:
    pass


def _chain(policy: Any, nodes: dict[str, str | None]) -> Graph:
    """A graph of nodes one after another, each with its setting."""
    graph = Graph("policy-table", input=Nothing, state=State, checkpoints=policy)
    names = list(nodes)
    for name in names:
        graph.node(name, checkpoint=nodes[name])(_quiet)
    join_in_a_row(graph, *names)
    return graph


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("policy", "setting"), list(NODES))
def test_a_cell_says_what_a_real_run_keeps(policy: str, setting: str) -> None:
    nodes = {
        "first": "none",
        "looked_at": SETTINGS[setting],
        "third": "none",
        "last": "none",
    }
    registry.replace(_chain(POLICIES[policy], nodes))
    run = runs.advance(runs.start("policy-table", {}).id)
    assert run.status == Status.COMPLETED
    kept = set(
        Checkpoint.objects.filter(run=run, kept=True).values_list(
            "superstep", flat=True
        )
    )
    cell = NODES[policy, setting]
    # The node runs in superstep 2, which is an n-th one.
    assert kept == {0, 4} | ({1} if "ahead" in cell else set()) | (
        {2} if "own" in cell else set()
    )


@pytest.fixture
def rita(people: cast.People) -> User:
    people.reviewer.groups.add(Group.objects.get_or_create(name="claims")[0])
    return people.reviewer


def _eventful(policy: Any, broken: list[bool]) -> Graph:
    """quiet, asks for its row, fails once, opens a gate beside a moving branch, and
    goes on behind it.
    """
    graph = Graph("policy-always", input=Nothing, state=State, checkpoints=policy)

    @graph.node(checkpoint="none")
    def asks(state: State, ctx: Any) -> None:
        ctx.checkpoint()

    @graph.node(checkpoint="none")
    def fails(state: State, ctx: Any) -> None:
        if broken:
            raise RuntimeError("broken")

    @graph.node(
        effect="human", gate=Gate(reviewers=["group:claims"]), checkpoint="none"
    )
    def proposes(state: State, ctx: Any) -> dict[str, int]:
        return {"value": 1}

    for name in ("quiet", "beside", "more_beside", "behind", "last"):
        graph.node(name, checkpoint="none")(_quiet)
    ways = [
        (START, "quiet"),
        ("quiet", "asks"),
        ("asks", "fails"),
        ("fails", "proposes"),
        ("fails", "beside"),
    ]
    ways += [
        ("beside", "more_beside"),
        ("more_beside", END),
        ("proposes", "behind"),
        ("behind", "last"),
        ("last", END),
    ]
    for source, target in ways:
        graph.edge(source, target)
    return graph


@pytest.fixture(params=list(POLICIES))
def eventful(
    request: pytest.FixtureRequest, rita: User
) -> tuple[str, dict[str, bool], Run]:
    """A policy, which rows of such a run stay under it, and the run."""
    broken = [True]
    registry.replace(_eventful(POLICIES[request.param], broken))
    run = runs.advance(runs.start("policy-always", {}).id)
    assert run.status == Status.FAILED
    broken.clear()
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.PAUSED
    write = pending_writes.newest(PendingWrite.objects.filter(run=run)).get()
    reviews.sign(
        run.id,
        [{"write": str(write.write), "hash": write.hash, "verdict": "approve"}],
        by=rita,
    )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    rows = list(Checkpoint.objects.filter(run=run, kept=True).order_by("seq"))
    ran = {
        entry["node"]: row
        for row in rows
        if row.source == "superstep"
        for entry in row.nodes
    }
    sources = [row.source for row in rows]
    return (
        request.param,
        {
            "start": rows[0].source == "input",
            "a superstep in which a node called ctx.checkpoint()": "asks" in ran,
            "failure": sources.count("failure") == 1,
            "a superstep that opens a gate": "proposes" in ran,
            "settlement": sources.count("settlement") == 1,
            "end, and a superstep after which the run waits": {"last", "more_beside"}
            <= set(ran),
        },
        run,
    )


@pytest.mark.django_db(transaction=True)
def test_some_rows_stay_under_every_policy(
    eventful: tuple[str, dict[str, bool], Run],
) -> None:
    policy, facts_of_row, _ = eventful
    facts = {
        row: cell == "stays"
        for (row, column), cell in ALWAYS.items()
        if column == policy
    }
    assert facts_of_row == facts


@pytest.mark.django_db(transaction=True)
def test_nothing_else_stays_where_every_node_says_none(
    eventful: tuple[str, dict[str, bool], Run],
) -> None:
    *_, run = eventful
    rows = list(Checkpoint.objects.filter(run=run).order_by("seq"))
    nodes = [
        entry["node"]
        for row in rows
        if row.source == "superstep"
        for entry in row.nodes
    ]
    assert nodes == ["asks", "proposes", "beside", "more_beside", "last"], (
        "neither quiet nor fails nor behind"
    )
    assert all(row.kept for row in rows), "the recovery point gave way to the end"
