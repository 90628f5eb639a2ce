"""An output that a person gives when settling cannot bring a value round the gate that
guards its channel.
"""

from pathlib import Path
from typing import Any

import pytest

from approvals.gates import guarded_channels
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.journal import results as journal
from checkpoints.lines import past
from checkpoints.models import Run
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Show, Task, registry
from orchestrator.engine.errors import InvalidValue
from tests.graphs_app.graphs import Ledger, Order
from tests.support import cast, run_actions
from tests.support.paid_claims import paid
from tests.support.run_actions import pending, sign, state
from tests.support.small_graphs import graph, registered
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


def _graph() -> str:
    graph = Graph("guarded", input=Order, state=Ledger)

    @graph.node(effect="external")
    def fetch(state: Ledger, ctx: Any) -> dict[str, Any]:
        return {"paid": "fetched"}

    @graph.node(
        effect="human",
        gate=Gate(
            reviewers=["group:claims"], writes={"letter": Show(), "payout": Show()}
        ),
    )
    def propose(state: Ledger, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    @graph.node(
        effect="human", gate=Gate(reviewers=["group:others"], writes={"sent": Show()})
    )
    def propose_more(state: Ledger, ctx: Any) -> dict[str, Any]:
        return {"sent": "proposed"}

    graph.edge(START, "fetch")
    graph.edge("fetch", "propose")
    graph.edge("propose", "propose_more", when=("approved", "partial"))
    graph.edge("propose_more", END, when=("approved", "partial"))
    registry.replace(graph)
    return graph.name


def _unknown(tmp_path: Path) -> Run:
    run = runs.start(_graph(), {"folder": str(tmp_path)})
    claim = leases.claim_one(run.id)
    assert claim is not None
    lease = leases.begin_lease(claim.id, claim.epoch)
    assert lease is not None
    journal.write_intents(
        lease, [journal.Intent(Task("fetch", 1), 1, "external", "0" * 64, 0.0)]
    )
    Run.objects.filter(id=run.id).update(lease_until="2000-01-01T00:00Z")
    run = runs.advance(run.id)
    assert run.status == Status.UNKNOWN
    return run


def _settle(run: Run, output: dict[str, Any], people: cast.People) -> Run:
    runs.settle(
        run.id,
        "fetch:1:0",
        happened=True,
        output=output,
        by=people.starter,
        reason="seen",
    )
    return runs.advance(run.id)


def test_an_output_for_a_free_channel_is_applied_at_once(
    tmp_path: Path, people: cast.People
) -> None:
    run = _settle(_unknown(tmp_path), {"paid": "by hand"}, people)
    assert state(run)["paid"] == "by hand"
    assert [row.node for row in pending(run)] == ["propose"]


def test_an_output_for_a_guarded_channel_waits_for_the_same_signatures(
    tmp_path: Path, people: cast.People
) -> None:
    run = _settle(
        _unknown(tmp_path), {"payout": {"amount": 9999}, "paid": "by hand"}, people
    )
    assert run.status == Status.PAUSED
    assert [(row.node, row.channel) for row in pending(run)] == [
        ("fetch", "payout"),
        ("fetch", "paid"),
    ]
    assert state(run)["payout"] is None
    assert state(run)["paid"] == ""
    sign(run, run_actions.reviewer(people.reviewer), ["approve", "approve"])
    run = runs.advance(run.id)
    assert state(run)["payout"] == {"amount": 9999}
    assert pending(run)[-1].node == "propose", (
        "the edges of the settled task flow only now"
    )


def test_rejecting_one_write_of_a_given_output_rejects_all_of_it(
    tmp_path: Path, people: cast.People
) -> None:
    run = _settle(
        _unknown(tmp_path), {"payout": {"amount": 9999}, "paid": "by hand"}, people
    )
    sign(run, run_actions.reviewer(people.reviewer), ["reject", None])
    run = runs.advance(run.id)
    assert run.status == Status.REJECTED
    assert state(run)["payout"] is None
    assert state(run)["paid"] == ""


def test_an_output_that_two_gates_guard_is_refused(
    tmp_path: Path, people: cast.People
) -> None:
    run = _unknown(tmp_path)
    with pytest.raises(InvalidValue, match="different gates"):
        _settle(run, {"payout": {}, "sent": "x"}, people)


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_a_way_through_lines_and_origins_is_read_in_few_statements(
    at_once: int, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = paid("guarded_far", people)
    fork = runs.fork(f"{origin.key}:at-{origin.head_seq}", by=people.starter)
    first = timeline.get_checkpoint(f"{fork.key}:at-0").id
    runs.rewind(fork.id, first, by=people.starter)
    way = past(fork.id, 2)
    assert [(stretch.run, stretch.line) for stretch in way] == [
        (fork.id, 2),
        (fork.id, 1),
        (origin.id, 1),
    ]

    # No gate of this version declares the channel, so only what was signed guards it.
    flow = graph("guarded_far_since")
    flow.node("ask", effect="human", gate=Gate(reviewers=["group:claims"]))(
        lambda state, ctx: {"notes": []}
    )
    flow.edge(START, "ask")
    flow.edge("ask", END, when=("approved", "partial"))
    registered(flow)
    compiled = registry.get(flow.name)
    monkeypatch.setattr(guarded_channels, "AT_ONCE", at_once)
    with counted() as sent:
        guards = guarded_channels.guards_of_each(way, compiled, ["total", "letter"])
    assert guards == {"total": ("ask",)}
    assert len(sent) == -(-len(way) // at_once)
