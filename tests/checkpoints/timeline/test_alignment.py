"""Two runs beside each other: where they split, what stands beside what, and why their
states differ.
"""

from itertools import combinations
from random import Random
from typing import Annotated, Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pydantic import BaseModel

from approvals import reviews
from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.core.alignment import Reason
from checkpoints.models import Checkpoint, PendingWrite, Run
from checkpoints.timeline import Alignment
from orchestrator import runs
from orchestrator.engine import END, START, Append, Gate, Graph, registry
from orchestrator.engine.errors import InvalidValue, TamperedRow, UnknownThing
from tests.support import forks, naive_history
from tests.support.cast import People
from tests.support.forging import tamper
from tests.support.rows import missing

pytestmark = pytest.mark.django_db(transaction=True)


class Claim(BaseModel):
    amount: int = 10


class State(BaseModel):
    """What the nodes find out."""

    notes: Annotated[list[str], Append] = []
    confidence: int = 5
    fetched: str = ""
    paid: str = ""
    route: str = ""
    payout: int = 0
    letter: str = ""
    memory: str = ""


WORLD: dict[str, str] = {}
"""What the world answers."""


@pytest.fixture(autouse=True)
def the_world_answers() -> None:
    WORLD.clear()
    WORLD.update(read="r", outside="o")


def graph_of(name: str = "aligned", *, words: str = "Dear", **settings: Any) -> Graph:
    """fetch (read) → pay (external) → route → senior or auto (by confidence) → propose
    (a gate) → close.
    """
    graph = Graph(name, input=Claim, state=State, **settings)

    @graph.node(effect="read")
    def fetch(state: State, ctx: Any) -> dict[str, Any]:
        return {"fetched": WORLD["read"], "notes": ["fetched"]}

    @graph.node(effect="external", idempotent=True, reads=["confidence"])
    def pay(state: State, ctx: Any) -> dict[str, Any]:
        return {"paid": WORLD["outside"]}

    @graph.node()
    def route(state: State, ctx: Any) -> dict[str, Any]:
        return {"route": "auto" if state.confidence > 8 else "senior"}

    graph.node("senior")(lambda state, ctx: {"notes": ["a senior looks"]})
    graph.node("auto")(lambda state, ctx: {"notes": ["settled"]})

    @graph.node(effect="human", gate=Gate(reviewers=["group:reviewer"]))
    def propose(state: State, ctx: Any) -> dict[str, Any]:
        return {"payout": ctx.input.amount}

    @graph.node()
    def close(state: State, ctx: Any) -> dict[str, Any]:
        return {"letter": f"{words} {state.payout} {state.fetched}"}

    graph.edge(START, "fetch")
    graph.edge("fetch", "pay")
    graph.edge("pay", "route")
    graph.branch(
        "route", lambda state: state.route, {"senior": "senior", "auto": "auto"}
    )
    graph.edge("senior", "propose")
    graph.edge("auto", "propose")
    graph.edge("propose", "close", when=("approved", "partial", "rejected"))
    graph.edge("close", END)
    registry.replace(graph)
    return graph


def decided(run: Run, by: Any, verdict: str = "approve", **options: Any) -> Run:
    request = ApprovalRequest.objects.get(run=run, status="open")
    row = PendingWrite.objects.get(run=run, line=request.line, revision=1)
    reviews.decide(
        request.id,
        [{"write": str(row.write), "hash": row.hash, "verdict": verdict, **options}],
        by=by,
    )
    return runs.advance(run.id)


def lived(
    people: People, verdict: str | None = "approve", amount: int = 10, **options: Any
) -> Run:
    """A run of the graph that is registered now, decided so."""
    run = runs.advance(runs.start("aligned", {"amount": amount}).id)
    assert run.status == "paused", run.error_code
    return decided(run, people.reviewer, verdict, **options) if verdict else run


def reasons(alignment: Alignment) -> dict[str, Any]:
    return {
        f"{difference.partition}.{difference.path}": difference.reason
        for difference in alignment.differences
    }


def nodes(alignment: Alignment) -> list[tuple[str, str]]:
    def name(row: Any) -> str:
        return (
            "-"
            if row is None
            else ",".join(entry["node"] for entry in row.nodes) or str(row.source)
        )

    return [(name(a), name(b)) for a, b in alignment.rows]


def test_two_runs_that_did_the_same_are_the_same_to_their_ends(people: People) -> None:
    graph_of()
    alignment = timeline.align(lived(people).id, lived(people).id)
    assert alignment.rows == []
    assert alignment.differences == []
    assert alignment.split is not None
    assert [place.seq for place in alignment.split] == [7, 7]
    assert alignment.other_graph is False
    assert alignment.cut is False
    assert alignment.cut_rows is False


def test_a_run_that_stands_still_is_the_same_up_to_there(people: People) -> None:
    graph_of()
    a = lived(people, None)
    b = lived(people)
    alignment = timeline.align(a.id, b.id)
    assert alignment.split is not None
    assert alignment.split[0].seq == naive_history.rows_of(a)[-1].seq
    assert nodes(alignment) == [("-", "propose"), ("-", "close")]
    assert reasons(alignment) == {
        "scratch.payout": Reason("answer", ("propose",), "b"),
        "scratch.letter": Reason("path", ("close",), "b"),
    }


def test_a_patched_fork_splits_where_it_left_and_each_difference_has_its_reason(
    people: People,
) -> None:
    graph_of()
    a = lived(people)
    b = runs.advance(
        forks.forked(a, 2, {"scratch": {"confidence": 9}}, by=people.starter).id
    )
    alignment = timeline.align(a.id, b.id)
    assert alignment.split == ((a.id, 2), (a.id, 2))
    assert nodes(alignment) == [
        ("-", "fork"),
        ("route", "route"),
        ("senior", "auto"),
        ("propose", "propose"),
        ("propose", "-"),
        ("close", "-"),
    ]
    assert reasons(alignment) == {
        "scratch.confidence": Reason("patch", (), "b"),
        "scratch.route": Reason("follows", ("route",)),
        "scratch.notes[1]": Reason("path", ("senior", "auto")),
        "scratch.payout": Reason("answer", ("propose",), "a"),
        "scratch.letter": Reason("path", ("close",), "a"),
    }
    by_path = {difference.path: difference for difference in alignment.differences}
    assert by_path["confidence"].a == 5
    assert by_path["confidence"].b == 9
    assert by_path["confidence"].seqs == (None, 0)
    assert by_path["route"].seqs == (3, 1)
    other = timeline.align(b.id, a.id)
    assert other.split == ((a.id, 2), (a.id, 2))
    assert reasons(other)["scratch.confidence"] == Reason("patch", (), "a")


def test_a_fork_that_was_not_patched_shares_more_than_its_origin_until_the_first_difference(
    people: People,
) -> None:
    graph_of()
    a = lived(people)
    WORLD["read"] = "other"
    b = runs.advance(forks.forked(a, 2, by=people.starter).id)
    b = decided(b, people.reviewer, "edit", value=77)
    alignment = timeline.align(a.id, b.id)
    assert alignment.split == ((a.id, 5), (b.id, 3))
    assert nodes(alignment) == [("propose", "propose"), ("close", "close")]
    assert reasons(alignment) == {
        "scratch.payout": Reason("answer", ("propose",)),
        "scratch.letter": Reason("follows", ("close",)),
    }


def test_two_forks_of_one_run_share_what_the_earlier_one_left_from(
    people: People,
) -> None:
    graph_of()
    origin = lived(people)
    a = runs.advance(
        forks.forked(origin, 3, {"scratch": {"letter": "a"}}, by=people.starter).id
    )
    b = runs.advance(
        forks.forked(origin, 2, {"scratch": {"fetched": "b"}}, by=people.starter).id
    )
    alignment = timeline.align(a.id, b.id)
    assert alignment.split == ((origin.id, 2), (origin.id, 2))
    assert nodes(alignment) == [
        ("-", "fork"),
        ("route", "route"),
        ("fork", "-"),
        ("senior", "senior"),
        ("propose", "propose"),
    ]
    assert reasons(alignment) == {
        "scratch.fetched": Reason("patch", (), "b"),
        "scratch.letter": Reason("patch", (), "a"),
    }


def test_a_run_that_went_back_with_a_patch_is_compared_by_its_current_line(
    people: People,
) -> None:
    graph_of()
    a = lived(people)
    b = runs.advance(forks.forked(a, 3, by=people.starter).id)
    left = naive_history.rows_of(a)[2]
    runs.rewind(a.id, left.id, patch={"scratch": {"confidence": 9}}, by=people.starter)
    a = runs.advance(a.id)
    alignment = timeline.align(a.id, b.id)
    assert alignment.split == ((a.id, 2), (a.id, 2))
    assert reasons(alignment) == {
        "scratch.confidence": Reason("patch", (), "a"),
        "scratch.route": Reason("follows", ("route",)),
        "scratch.notes[1]": Reason("path", ("auto", "senior")),
    }
    patched = timeline.blame(timeline.list_checkpoints(a.id)[0].id, "confidence")
    assert patched.checkpoint.source == "rewind"
    assert patched.node == ""
    assert patched.person == people.starter.username
    assert (
        timeline.blame(timeline.list_checkpoints(a.id)[0].id, "fetched").checkpoint.seq
        == 1
    )


def test_a_replay_with_the_same_answers_is_the_same_to_its_end_and_is_told_as_one(
    people: People,
) -> None:
    graph_of()
    a = lived(people)
    b = runs.advance(runs.replay(naive_history.rows_of(a)[1].id, by=people.starter).id)
    assert b.status == "completed", b.error_code
    alignment = timeline.align(a.id, b.id)
    assert alignment.split is not None
    assert alignment.split[0].seq == 7
    assert nodes(alignment) == []
    assert alignment.differences == []
    assert [control.how for _, control in timeline.lineage(a.id).walk()] == [
        "",
        "replay",
    ]


def test_another_input_is_the_reason_where_nothing_nearer_is_known(
    people: People,
) -> None:
    graph_of()
    alignment = timeline.align(lived(people, amount=10).id, lived(people, amount=20).id)
    assert reasons(alignment) == {
        "input.amount": Reason("input"),
        "scratch.payout": Reason("input", ("propose",)),
        "scratch.letter": Reason("input", ("close",)),
    }


def test_what_the_world_answered_otherwise_is_told_from_what_both_looked_up_live(
    people: People,
) -> None:
    graph_of()
    a = lived(people)
    WORLD.update(read="other", outside="other")
    alignment = timeline.align(a.id, lived(people).id)
    assert alignment.split is not None
    assert [place.seq for place in alignment.split] == [0, 0]
    assert reasons(alignment) == {
        "scratch.fetched": Reason("unknown", ("fetch",)),
        "scratch.paid": Reason("outside", ("pay",)),
        "scratch.letter": Reason("follows", ("close",)),
    }


def test_another_version_of_the_graph_is_a_reason(people: People) -> None:
    graph_of()
    a = lived(people)
    graph_of(version="2", words="Hello")
    b = lived(people)
    assert a.fingerprint != b.fingerprint
    assert reasons(timeline.align(a.id, b.id)) == {
        "scratch.letter": Reason("code", ("close",))
    }


@pytest.mark.parametrize("verdicts", [("approve", "reject"), ("reject", "approve")])
def test_a_rejection_is_another_answer(
    people: People, verdicts: tuple[str, str]
) -> None:
    graph_of()
    a, b = (
        lived(people, verdict, **({"reason": "no"} if verdict == "reject" else {}))
        for verdict in verdicts
    )
    run_reasons = reasons(timeline.align(a.id, b.id))
    assert run_reasons["scratch.payout"] == Reason("answer", ("propose",))
    assert run_reasons["scratch.letter"] == Reason("follows", ("close",))


def test_memory_that_was_read_otherwise_is_a_reason(people: People) -> None:
    graph = Graph("remembering", input=Claim, state=State, memory="snapshot")

    @graph.node(effect="read")
    def look(state: State, ctx: Any) -> dict[str, Any]:
        trace = ctx.memory.get("seen", "aligned")
        ctx.memory.put("seen", (trace.content if trace else "") + "x", "aligned")
        return {"memory": trace.content if trace else "nothing"}

    graph.edge(START, "look")
    graph.edge("look", END)
    registry.replace(graph)
    a, b = (runs.advance(runs.start("remembering", {}).id) for _ in range(2))
    assert reasons(timeline.align(a.id, b.id)) == {
        "scratch.memory": Reason("memory", ("look",))
    }


def test_runs_of_different_graphs_are_laid_by_the_names_of_nodes_and_it_is_said(
    people: People,
) -> None:
    graph_of()
    a = lived(people)
    graph_of("other_graph")
    b = runs.advance(runs.start("other_graph", {}).id)
    alignment = timeline.align(a.id, b.id)
    assert alignment.other_graph
    assert ("route", "route") not in nodes(alignment), "they are the same up to there"
    assert alignment.split is not None


def test_states_at_two_checkpoints_are_compared_where_they_are_named(
    people: People,
) -> None:
    graph_of()
    a = lived(people)
    b = runs.advance(
        forks.forked(a, 2, {"scratch": {"confidence": 9}}, by=people.starter).id
    )
    alignment = timeline.align(a.id, b.id, at=(3, 1))
    assert alignment.at == (3, 1)
    assert set(reasons(alignment)) == {"scratch.confidence", "scratch.route"}
    for nowhere in ((3, 99), (99, 1), (2, 1)):
        with pytest.raises(UnknownThing):
            timeline.align(a.id, b.id, at=nowhere)


def test_who_may_not_see_one_of_them_learns_nothing(people: People) -> None:
    graph_of()
    a = lived(people)
    b = lived(people)
    only = Run.objects.filter(id=a.id)
    for pair in ((a.id, b.id), (b.id, a.id), (a.id, missing()), (a.id, "x")):
        with pytest.raises(UnknownThing):
            timeline.align(*pair, among=only)
    with pytest.raises(InvalidValue):
        timeline.align(a.id, str(a.id))


def _relatives(people: People, chance: Random) -> list[Run]:
    """Runs that came of each other by random ways: started, forked, gone back,
    replayed; patched, decided, or not.
    """
    graph_of()
    made = [lived(people)]
    for way in [
        "start",
        "fork",
        "fork",
        "rewind",
        "replay",
        chance.choice(["fork", "rewind"]),
    ]:
        WORLD.update(read=chance.choice("rs"), outside=chance.choice("op"))
        origin = chance.choice([run for run in made if not _is_replay(run)])
        point = chance.choice(naive_history.rows_of(origin))
        patch = chance.choice(
            [None, {"scratch": {"confidence": 9}}, {"scratch": {"notes": ["patched"]}}]
        )
        again = [] if way == "start" else runs.plan(point.id, patch=patch).needs_yes
        if way == "start":
            run = runs.start("aligned", {"amount": chance.choice([10, 20])})
        elif way == "replay":
            run = runs.replay(made[0].head or "", by=people.starter)
        elif way == "fork":
            run = runs.fork(
                point.id, patch=patch, allow_effects=again, by=people.starter
            )
        else:
            run = runs.rewind(
                origin.id, point.id, patch=patch, allow_effects=again, by=people.starter
            )
        run = _moved_on(runs.advance(run.id), people, chance)
        made = [*(one for one in made if one.id != run.id), run]
    return made


def _is_replay(run: Run) -> bool:
    return Checkpoint.objects.filter(run=run.id, seq=0, source="replay").exists()


def _moved_on(run: Run, people: People, chance: Random) -> Run:
    """The run as it is, or decided in some way where it asks."""
    verdict, more = chance.choice(
        [
            ("approve", {}),
            ("edit", {"value": 77}),
            ("reject", {"reason": "no"}),
            (None, {}),
        ]
    )
    asks = (
        ApprovalRequest.objects.filter(run=run, status="open", line=run.line).count()
        == 1
    )
    return decided(run, people.reviewer, verdict, **more) if asks and verdict else run


TURNED = {"added": "removed", "removed": "added", "a": "b", "b": "a"}


def _content(alignment: Alignment, *, turned: bool = False) -> dict[str, Any]:
    """All that a comparison tells; `turned`: as that of the same runs the other way
    round would.
    """

    def word(name: str) -> str:
        return TURNED.get(name, name) if turned else name

    def pair(item: Any) -> tuple[Any, ...]:
        return tuple(reversed(item)) if turned else tuple(item)

    return {
        "runs": pair([run.id for run in alignment.runs]),
        "split": alignment.split and pair(alignment.split),
        "rows": {pair([row and row.id for row in rows]) for rows in alignment.rows},
        "at": pair(alignment.at),
        "more": (alignment.other_graph, alignment.cut_rows, alignment.cut),
        "differences": {
            (difference.partition, difference.path): (
                word(difference.kind),
                pair([difference.a, difference.b]),
                pair(difference.seqs),
                difference.reason.kind,
                {*difference.reason.nodes},
                word(difference.reason.run),
            )
            for difference in alignment.differences
        },
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_the_comparison_the_other_way_round_is_its_mirror(
    people: People, seed: int
) -> None:
    made = _relatives(people, Random(seed))
    for a, b in combinations(made, 2):
        alignment = timeline.align(a.id, b.id)
        other = timeline.align(b.id, a.id)
        assert _content(alignment, turned=True) == _content(other), (
            made.index(a),
            made.index(b),
        )


def test_at_most_eight_queries_however_long_the_runs_are(people: People) -> None:
    graph_of()
    a = lived(people)
    WORLD.update(read="other", outside="other")
    b = decided(
        runs.advance(
            forks.forked(a, 2, {"scratch": {"confidence": 9}}, by=people.starter).id
        ),
        people.reviewer,
        "edit",
        value=3,
    )
    for pair in ((a, b), (a, lived(people)), (b, a)):
        with CaptureQueriesContext(connection) as queries:
            timeline.align(pair[0].id, pair[1].id)
        assert len(queries) <= 8, [query["sql"][:80] for query in queries]


def test_a_row_that_was_altered_is_refused_by_name(people: People) -> None:
    graph_of()
    a = lived(people)
    b = lived(people)
    row = naive_history.rows_of(b)[3]
    tamper(row, changed=["notes"])
    with pytest.raises(TamperedRow) as refused:
        timeline.align(a.id, b.id)
    assert str(row.id) in str(refused.value.facts)
