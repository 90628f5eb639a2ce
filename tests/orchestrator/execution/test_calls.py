"""Calls that people approve before their node runs."""

import itertools
import threading
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel, Field, field_validator

from approvals.models import ApprovalRequest, Decision
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Checkpoint, LateResult, Run, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import (
    END,
    START,
    Gate,
    Graph,
    Limit,
    NotDone,
    Retry,
    Show,
    idempotency_key,
)
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.values.identity import Task
from orchestrator.execution.attempt import Attempt
from orchestrator.execution.executor import Executor
from tests.support import call_graphs, run_actions
from tests.support.call_graphs import (
    CALLS,
    Payment,
    call_gate,
    noting,
    pay,
    paying,
    paying_beside,
    paying_many,
    prepare,
)
from tests.support.deadlines import HOUR, let_come
from tests.support.processes import until
from tests.support.small_graphs import advanced, registered, started
from tests.support.versioned_graphs import deployed

AGO = "2000-01-01T00:00Z"

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_node_is_not_called_before_people_approved(made: list[Any]) -> None:
    run = advanced(paying())
    assert run.status == Status.PAUSED
    assert made == []
    assert not TaskResult.objects.filter(run=run).exists()
    request = run_actions.request(run)
    assert request.kind == "call"
    assert [row.channel for row in run_actions.pending(run)] == ["$call"]
    assert run_actions.pending(run)[0].label == "Pay 10 to ada"
    assert verify_run(run.id) == []


def test_an_approved_call_runs_with_the_arguments_that_were_signed(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying())
    run_actions.sign(run, ada, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    key = idempotency_key(run.id, 1, Task("pay", 1, 0))
    assert made == [(Payment(payee="ada", amount=Decimal(10)), Decimal(10), key)]
    assert run_actions.state(run)["notes"] == ["paid 10 to ada", "paid"]
    assert verify_run(run.id) == []


def test_the_settlement_of_a_call_changes_no_channel(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying())
    run_actions.sign(run, ada, ["approve"])
    run = runs.advance(run.id)
    sources = list(Checkpoint.objects.filter(run=run).order_by("seq"))
    words = [(row.source, row.superstep) for row in sources]
    assert words == [
        ("input", 0),
        ("superstep", 1),
        ("settlement", 1),
        ("superstep", 2),
        ("superstep", 3),
    ]


def test_the_timeline_shows_an_effect_only_where_the_node_was_called(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying())
    run_actions.sign(run, ada, ["approve"])
    run = runs.advance(run.id)
    entries = []
    for row in Checkpoint.objects.filter(run=run, seq__in=[1, 2, 3]).order_by("seq"):
        entries += [(entry["effect"], entry["outcome"]) for entry in row.nodes]
    assert entries == [("human", "held"), ("human", "approved"), ("external", "done")]


def test_an_edited_call_runs_with_what_the_editor_wrote(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying())
    value = {"payee": "bob", "amount": "12.50"}
    run_actions.sign(run, ada, [("edit", value)])
    run = runs.advance(run.id)
    assert made[0][0] == Payment(payee="bob", amount=Decimal("12.50"))
    decision = Decision.objects.get(run=run.id)
    assert read_value(decision, "final_value") == value
    assert run_actions.pending(run)[0].label == "Pay 12.50 to bob"
    assert verify_run(run.id) == []


@pytest.mark.parametrize(
    "value", [{"payee": "", "amount": "1"}, {"payee": "ada"}, "ada", None]
)
def test_an_edit_that_the_model_refuses_signs_nothing(
    made: list[Any], ada: User, value: Any
) -> None:
    run = advanced(paying())
    with pytest.raises(InvalidValue):
        run_actions.sign(run, ada, [("edit", value)])
    assert not Decision.objects.filter(run=run.id).exists()


def test_an_edit_of_a_call_keeps_to_the_limits_of_its_gate(
    made: list[Any], ada: User
) -> None:
    show = Show(limits={"amount": Limit(at_most="50")})
    run = advanced(paying(gate=call_gate(writes={"$call": show})))
    with pytest.raises(InvalidValue):
        run_actions.sign(run, ada, [("edit", {"payee": "ada", "amount": "51"})])
    run_actions.sign(run, ada, [("edit", {"payee": "ada", "amount": "50"})])
    assert runs.advance(run.id).status == Status.COMPLETED
    assert made[0][0].amount == Decimal(50)


def test_a_rejected_call_is_never_made_and_its_visit_counts(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying())
    run_actions.sign(run, ada, ["reject"])
    run = runs.advance(run.id)
    assert made == []
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["refused"]
    assert run_actions.request(run).outcome == "rejected"
    assert verify_run(run.id) == []


def test_a_skipped_call_is_never_made_and_the_way_goes_on_as_approved(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying(gate=call_gate(skip=True)))
    run_actions.sign(run, ada, ["skip"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert made == []
    assert not TaskResult.objects.filter(run=run).exists()
    assert run_actions.state(run)["notes"] == ["paid"]
    assert run_actions.request(run).outcome == "skipped"
    decision = Decision.objects.get(run=run.id)
    assert (decision.verdict, bytes(decision.final_value)) == ("skip", b"")
    [applied] = run_actions.event_payloads(run, "gate_applied")
    assert applied["outcome"] == "skipped"
    assert verify_run(run.id) == []


def test_the_visit_of_a_skipped_call_counts(made: list[Any], ada: User) -> None:
    graph = paying("skipped_again", gate=call_gate(skip=True))
    graph.edges[:] = [edge for edge in graph.edges if edge.source != "paid"]
    graph.branch(
        "paid",
        lambda state: "again" if len(state.notes) < 2 else "over",
        {"again": "pay", "over": "END"},
    )
    run = advanced(graph)
    run_actions.sign_open(run, ada, "skip")
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    run_actions.sign_open(run, ada, "approve")
    runs.advance(run.id)
    assert [key for _, _, key in made] == [
        idempotency_key(run.id, 1, Task("pay", 2, 0))
    ]
    assert verify_run(run.id) == []


def test_each_call_of_a_fan_out_is_skipped_separately(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying_many(gate=call_gate(skip=True)))
    run_actions.sign(run, ada, ["approve", "skip", "reject"])
    run = runs.advance(run.id)
    assert [args.payee for args, _, _ in made] == ["ada"]
    # Approved, skipped and rejected in part: the way goes on as for a partial outcome.
    assert run_actions.state(run)["notes"] == ["paid 10 to ada", "paid"]
    assert verify_run(run.id) == []


def test_a_skip_comes_back_when_what_was_shown_beside_it_moves(
    made: list[Any], ada: User
) -> None:
    graph = paying("skipped_beside", gate=call_gate(shows=["amount"], skip=True))
    gate = Gate(reviewers=["group:claims"])
    graph.node("price", effect="human", gate=gate)(noting("priced", amount=Decimal(99)))
    graph.edge(START, "price")
    graph.edge("price", END)
    run = advanced(graph)
    run_actions.sign(run, ada, [None, "approve", "approve"])
    run_actions.sign(run, ada, ["skip", None, None])
    run = runs.advance(run.id)
    assert run_actions.pending(run)[0].revision == 2
    assert run.status == Status.PAUSED
    run_actions.sign_open(run, ada, "skip")
    assert runs.advance(run.id).status == Status.COMPLETED
    assert made == []
    assert verify_run(run.id) == []


def test_only_a_call_is_skipped_and_only_where_its_gate_lets_people(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying())
    with pytest.raises(InvalidValue, match="lets nobody skip"):
        run_actions.sign(run, ada, ["skip"])
    assert not Decision.objects.filter(run=run.id).exists()


def test_a_deadline_never_skips(made: list[Any], ada: User) -> None:
    run = advanced(paying(gate=call_gate(skip=True, deadline=HOUR)))
    let_come(run)
    run = runs.advance(run.id)
    assert run_actions.request(run).outcome == "rejected"
    assert run_actions.state(run)["notes"] == ["refused"]
    assert verify_run(run.id) == []


def test_a_call_sees_the_state_from_which_it_was_prepared(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying_beside())
    assert run_actions.state(run)["amount"] == "99"
    run_actions.sign(run, ada, ["approve"])
    run = runs.advance(run.id)
    assert [(args.amount, amount) for args, amount, _ in made] == [
        (Decimal(10), Decimal(10))
    ]
    assert verify_run(run.id) == []


def test_that_state_is_kept_whatever_the_policy_for_checkpoints(
    made: list[Any], ada: User
) -> None:
    graph = paying("paying_late", checkpoints="none")
    graph.edges[:] = [edge for edge in graph.edges if edge.source != "START"]
    graph.node("first")(lambda state, ctx: {"amount": Decimal(11)})
    graph.node("second")(lambda state, ctx: {"amount": Decimal(12)})
    graph.edge("START", "first")
    graph.edge("first", "second")
    graph.edge("second", "pay")
    run = advanced(graph)
    run_actions.sign(run, ada, ["approve"])
    runs.advance(run.id)
    assert [amount for _, amount, _ in made] == [Decimal(12)]


def test_a_channel_that_the_gate_shows_binds_the_call(
    made: list[Any], ada: User
) -> None:
    gate = call_gate(shows=["amount"])
    run = advanced(paying_beside(gate=gate))
    row = run_actions.pending(run)[0]
    # The other branch changed the amount after the call was proposed.
    assert row.revision == 2
    assert read_value(row, "value") == {"payee": "ada", "amount": "10"}
    run_actions.sign(run, ada, ["approve"])
    runs.advance(run.id)
    assert made[0][0].amount == Decimal(10)


def test_each_send_of_a_fan_out_is_a_call_of_its_own(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying_many())
    assert ApprovalRequest.objects.filter(run=run, kind="call").count() == 3
    run_actions.sign(run, ada, ["approve", "reject", None])
    run = runs.advance(run.id)
    # A call runs as soon as it is approved; the edges wait for all.
    assert [args.payee for args, _, _ in made] == ["ada"]
    assert run.status == Status.PAUSED
    assert verify_run(run.id) == []
    run_actions.sign_open(run, ada, "approve")
    run = runs.advance(run.id)
    assert [args.payee for args, _, _ in made] == ["ada", "cyd"]
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == [
        "paid 10 to ada",
        "paid 10 to cyd",
        "paid",
    ]
    assert verify_run(run.id) == []


def test_a_call_that_needs_nobody_runs_in_the_superstep_that_prepared_it(
    made: list[Any],
) -> None:
    gate = call_gate(needs_approval=lambda state, proposal: proposal.args.amount > 50)
    run = advanced(paying(gate=gate))
    assert run.status == Status.COMPLETED
    assert [args.amount for args, _, _ in made] == [Decimal(10)]
    decision = Decision.objects.get(run=run.id)
    assert (decision.verdict, decision.channel) == ("not_needed", "$call")
    assert read_value(decision, "final_value") == {"payee": "ada", "amount": "10"}
    assert Checkpoint.objects.get(run=run, seq=1).superstep == 1
    assert verify_run(run.id) == []


def test_a_call_that_failed_after_its_approval_runs_again_without_asking(
    made: list[Any], ada: User
) -> None:
    def fails_once(state: Any, ctx: Any) -> dict[str, Any]:
        if not made:
            made.append(None)
            raise NotDone("the bank is closed")
        return pay(state, ctx)

    run = advanced(paying(fn=fails_once))
    run_actions.sign(run, ada, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.FAILED
    run = runs.advance(runs.resume(run.id).id)
    assert run.status == Status.COMPLETED
    assert made[1][0] == Payment(payee="ada", amount=Decimal(10))
    assert ApprovalRequest.objects.filter(run=run).count() == 1
    assert verify_run(run.id) == []


def test_the_gate_of_a_call_that_failed_is_not_asked_again(made: list[Any]) -> None:
    calls: list[Decimal] = []

    def check(state: Any, proposal: Any) -> bool:
        calls.append(proposal.args.amount)
        return False

    def fails_once(state: Any, ctx: Any) -> dict[str, Any]:
        if not made:
            made.append(None)
            raise NotDone("the bank is closed")
        return pay(state, ctx)

    run = advanced(paying(fn=fails_once, gate=call_gate(needs_approval=check)))
    assert run.status == Status.FAILED
    run = runs.advance(runs.resume(run.id).id)
    assert run.status == Status.COMPLETED
    assert calls == [Decimal(10)]
    assert Decision.objects.get(run=run.id).verdict == "not_needed"
    assert verify_run(run.id) == []


def test_an_unknown_call_is_settled_and_runs_again_under_one_key(
    made: list[Any], ada: User
) -> None:
    def dies(state: Any, ctx: Any) -> dict[str, Any]:
        answer = pay(state, ctx)
        if len(made) == 1:
            raise ConnectionError("no answer")
        return answer

    run = advanced(paying(fn=dies))
    run_actions.sign(run, ada, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.UNKNOWN
    runs.settle(run.id, "pay:1:0", happened=False, reason="asked the bank", by=None)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len({key for _, _, key in made}) == 1
    assert verify_run(run.id) == []


def test_an_unknown_call_that_happened_is_not_made_again(
    made: list[Any], ada: User
) -> None:
    def dies(state: Any, ctx: Any) -> dict[str, Any]:
        pay(state, ctx)
        raise ConnectionError("no answer")

    run = advanced(paying(fn=dies))
    run_actions.sign(run, ada, ["approve"])
    run = runs.advance(run.id)
    output = {"notes": ["the bank says it paid"]}
    runs.settle(
        run.id, "pay:1:0", happened=True, output=output, reason="asked", by=None
    )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(made) == 1
    assert run_actions.state(run)["notes"] == ["the bank says it paid", "paid"]
    assert verify_run(run.id) == []


def test_a_settled_output_of_a_call_does_not_wait_at_a_further_gate(
    made: list[Any], ada: User
) -> None:
    def dies(state: Any, ctx: Any) -> dict[str, Any]:
        raise ConnectionError("no answer")

    graph = paying(fn=dies)
    guard = Gate(reviewers=["group:claims"], writes={"people": Show()})
    graph.node("choose", effect="human", gate=guard)(
        lambda state, ctx: {"people": ["bob"]}
    )
    graph.edges[:] = [edge for edge in graph.edges if edge.source != "paid"]
    graph.edge("paid", "choose")
    graph.edge("choose", "END")
    run = advanced(graph)
    run_actions.sign(run, ada, ["approve"])
    run = runs.advance(run.id)
    statement: dict[str, Any] = {"happened": True, "reason": "asked", "by": None}
    with pytest.raises(InvalidValue, match="the gate of choose guards"):
        runs.settle(run.id, "pay:1:0", output={"people": ["eve"]}, **statement)
    runs.settle(run.id, "pay:1:0", output={"notes": ["paid"]}, **statement)
    assert runs.advance(run.id).status == Status.PAUSED
    assert verify_run(run.id) == []


def test_a_loop_asks_at_each_visit(made: list[Any], ada: User) -> None:
    graph = paying("paying_again")
    graph.edges[:] = [edge for edge in graph.edges if edge.source != "paid"]
    graph.branch(
        "paid",
        lambda state: "again" if len(state.notes) < 4 else "over",
        {"again": "pay", "over": "END"},
    )
    run = advanced(graph)
    for _ in range(2):
        assert run.status == Status.PAUSED
        run_actions.sign_open(run, ada, "approve")
        run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len({key for _, _, key in made}) == 2
    assert verify_run(run.id) == []


def test_a_call_whose_request_is_gone_is_not_made(made: list[Any], ada: User) -> None:
    graph = paying()
    run = advanced(graph)
    run_actions.sign(run, ada, ["approve"])
    # The approval is applied, and the process dies before the call.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orchestrator.execution.calls.approved_calls", _die)
        with pytest.raises(KeyboardInterrupt):
            runs.advance(run.id)
    assert ApprovalRequest.objects.get(run=run).status == "applied"
    ApprovalRequest.objects.filter(run=run).update(kind="writes")
    Run.objects.filter(id=run.id).update(lease_until=AGO)
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert made == []


def _die(*args: Any) -> Any:
    raise KeyboardInterrupt


async def pay_later(state: Any, ctx: Any) -> dict[str, Any]:
    return pay(state, ctx)


@pytest.mark.parametrize(
    ("fn", "node"),
    [
        (pay, {"effect": "pure"}),
        (pay, {"effect": "read"}),
        (pay, {"effect": "write"}),
        (pay, {"effect": "write", "atomic": True}),
        (pay, {"effect": "external", "idempotent": True, "reads": ["amount"]}),
        (pay_later, {"effect": "external"}),
    ],
)
def test_people_can_approve_the_call_of_a_node_of_each_effect(
    made: list[Any], ada: User, fn: Any, node: dict[str, Any]
) -> None:
    run = advanced(paying(fn=fn, node=node))
    assert made == []
    run_actions.sign(run, ada, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(made) == 1
    assert verify_run(run.id) == []


def test_a_cancelled_run_calls_nothing(made: list[Any], ada: User) -> None:
    run = advanced(paying())
    runs.cancel(run.id, by=ada, reason="over")
    assert made == []
    assert run_actions.request(run).status == "withdrawn"
    assert verify_run(run.id) == []


def test_a_run_with_an_approved_call_goes_onto_a_version_with_the_same_arguments(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying())
    graph = paying(version="2")
    graph.node("more")(lambda state, ctx: None)
    graph.edge("refused", "more")
    graph.edge("more", "END")
    deployed(graph)
    run_actions.sign(run, ada, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(made) == 1
    assert verify_run(run.id) == []


def test_a_newer_validator_makes_no_other_arguments_of_what_was_signed(
    made: list[Any], ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = advanced(paying())
    run_actions.sign(run, ada, ["approve"])

    class Payment(BaseModel):
        payee: str = Field(min_length=1)
        amount: Decimal

        @field_validator("amount")
        @classmethod
        def capped(cls, amount: Decimal) -> Decimal:
            return min(amount, Decimal(5))

    monkeypatch.setattr(call_graphs, "Payment", Payment)
    registered(paying())
    run = runs.advance(run.id)
    assert run.status == Status.FAILED
    assert made == []
    assert not TaskResult.objects.filter(run=run).exists()


def test_a_call_that_began_is_not_made_with_other_arguments_under_its_key(
    made: list[Any],
) -> None:
    amounts = iter([Decimal(5), Decimal(5000)])

    def prepare(state: Any, ctx: Any) -> Payment:
        return Payment(payee="ada", amount=next(amounts))

    gate = call_gate(needs_approval=lambda state, proposal: proposal.args.amount > 50)
    run = started(paying(gate=gate, node={"idempotent": True, "prepare": prepare}))

    # The process dies after the payment, and before it could write that down.
    def die_after_paying(*args: Any) -> Any:
        if made:
            raise KeyboardInterrupt
        return set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "_write_results", die_after_paying)
        with pytest.raises(KeyboardInterrupt):
            runs.advance(run.id)
    Run.objects.filter(id=run.id).update(lease_until=AGO)
    run = runs.advance(run.id)
    assert run.status == Status.UNKNOWN
    assert [args.amount for args, _, _ in made] == [Decimal(5)]


def test_a_call_that_needed_nobody_is_prepared_again_in_a_fork(
    made: list[Any], ada: User
) -> None:
    def fails_once(state: Any, ctx: Any) -> dict[str, Any]:
        if not made:
            made.append(None)
            raise NotDone("the bank is closed")
        return pay(state, ctx)

    gate = call_gate(needs_approval=lambda state, proposal: proposal.args.amount > 50)
    run = advanced(paying(fn=fails_once, gate=gate))
    assert run.status == Status.FAILED
    assert run.head is not None
    patch = {"scratch": {"amount": "60"}}
    fork = runs.advance(runs.fork(run.head, patch=patch, reason="more").id)
    # On the patched state people are needed, whatever the gate said of the old one.
    assert fork.status == Status.PAUSED
    assert made == [None]
    assert read_value(run_actions.pending(fork)[0], "value")["amount"] == "60"


def fails_at(*calls: int, then: Any = prepare) -> Any:
    """A function that prepares a call, and raises at these of its calls."""
    counted = itertools.count(1)

    def prepare_or_fail(state: Any, ctx: Any) -> Payment:
        if next(counted) in calls:
            raise RuntimeError("no rate today")
        payment: Payment = then(state, ctx)
        return payment

    return prepare_or_fail


def crashed(graph: Graph, *, written: bool = False) -> Run:
    """A run whose process died after the payment, before its superstep could commit;
    `written` says whether the result was written down.
    """
    run = started(graph)
    write_results = Executor._write_results

    def die_after_paying(executor: Executor, ended: Any) -> Any:
        late = write_results(executor, ended) if written or not CALLS else None
        if CALLS:
            raise KeyboardInterrupt
        return late

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "_write_results", die_after_paying)
        with pytest.raises(KeyboardInterrupt):
            runs.advance(run.id)
    Run.objects.filter(id=run.id).update(lease_until=AGO)
    return run


NEEDS_NOBODY = {"needs_approval": lambda state, proposal: False}


@pytest.mark.parametrize("has_error_edge", [False, True])
@pytest.mark.parametrize("retry", [None, Retry(attempts=2, backoff=600)])
def test_a_call_that_may_have_happened_is_unknown_though_preparing_it_fails_now(
    made: list[Any], has_error_edge: bool, retry: Retry | None
) -> None:
    node: dict[str, Any] = {"prepare": fails_at(2)}
    if retry is not None:
        node |= {"retry": retry, "not_done": (RuntimeError,)}
    graph = paying(gate=call_gate(**NEEDS_NOBODY), node=node)
    if has_error_edge:
        graph.edge("pay", "refused", when="error")
    run = runs.advance(crashed(graph).id)
    assert run.status == Status.UNKNOWN
    assert len(made) == 1
    assert TaskResult.objects.get(run=run).outcome == Outcome.UNKNOWN
    output = {"notes": ["the bank says it paid"]}
    runs.settle(
        run.id, "pay:1:0", happened=True, output=output, reason="asked", by=None
    )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["the bank says it paid", "paid"]
    assert len(made) == 1
    assert verify_run(run.id) == []


def test_a_call_that_was_made_is_not_made_again_because_preparing_it_failed_once(
    made: list[Any],
) -> None:
    graph = paying(gate=call_gate(**NEEDS_NOBODY), node={"prepare": fails_at(2)})
    graph.edge("pay", "refused", when="error")
    run = runs.advance(crashed(graph, written=True).id)
    assert run.status == Status.COMPLETED
    assert len(made) == 1
    assert run_actions.state(run)["notes"] == ["paid 10 to ada", "paid"]
    assert verify_run(run.id) == []


@pytest.mark.parametrize("retry", [None, Retry(attempts=2, backoff=600)])
def test_the_recorded_result_of_a_call_counts_though_nothing_prepares_it_any_more(
    made: list[Any], retry: Retry | None
) -> None:
    node: dict[str, Any] = {"prepare": fails_at(*range(2, 99))}
    if retry is not None:
        node |= {"retry": retry, "not_done": (RuntimeError,)}
    graph = paying(gate=call_gate(**NEEDS_NOBODY), node=node)
    run = runs.advance(crashed(graph, written=True).id)
    assert run.status == Status.COMPLETED
    assert len(made) == 1
    assert run_actions.state(run)["notes"] == ["paid 10 to ada", "paid"]
    # With what it was made is not known, so no decision names that.
    assert not Decision.objects.filter(run=run.id).exists()
    [warning] = run_actions.event_payloads(run, "warning")
    assert warning["code"] == "call_not_prepared"
    assert "no rate today" in warning["message"]
    assert verify_run(run.id) == []


def test_a_call_that_was_settled_counts_though_nothing_prepares_it_any_more(
    made: list[Any],
) -> None:
    node = {"prepare": fails_at(*range(2, 99))}
    graph = paying(gate=call_gate(**NEEDS_NOBODY), node=node)
    run = runs.advance(crashed(graph).id)
    assert run.status == Status.UNKNOWN
    output = {"notes": ["the bank says it paid"]}
    runs.settle(
        run.id, "pay:1:0", happened=True, output=output, reason="asked", by=None
    )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["the bank says it paid", "paid"]
    assert len(made) == 1
    assert verify_run(run.id) == []


def test_a_call_of_an_open_superstep_keeps_its_result_when_its_process_dies(
    made: list[Any],
) -> None:
    fn = closed_once(made)
    graph = paying(fn=fn, gate=call_gate(**NEEDS_NOBODY))
    run = advanced(graph)
    assert run.status == Status.FAILED
    runs.resume(run.id)
    write_results = Executor._write_results

    def die_after_paying(executor: Executor, ended: Any) -> Any:
        write_results(executor, ended)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "_write_results", die_after_paying)
        with pytest.raises(KeyboardInterrupt):
            runs.advance(run.id)
    Run.objects.filter(id=run.id).update(lease_until=AGO)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["paid 10 to ada", "paid"]
    assert len(made) == 2
    assert verify_run(run.id) == []


def test_what_fails_before_a_call_begins_is_an_ordinary_failure(
    made: list[Any],
) -> None:
    graph = paying(gate=call_gate(**NEEDS_NOBODY), node={"prepare": fails_at(2)})
    graph.edge("pay", "refused", when="error")
    run = started(graph)
    # The process dies once the call is prepared.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orchestrator.execution.calls.passed_calls", _die)
        with pytest.raises(KeyboardInterrupt):
            runs.advance(run.id)
    Run.objects.filter(id=run.id).update(lease_until=AGO)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["refused"]
    assert made == []
    assert verify_run(run.id) == []


def test_preparing_that_ends_too_late_ends_no_call(made: list[Any]) -> None:
    released = threading.Event()
    ended = threading.Event()
    numbers = itertools.count(1)

    def prepare_late(state: Any, ctx: Any) -> Payment:
        if next(numbers) == 1:
            released.wait(20)
        return prepare(state, ctx)

    def pay_slowly(state: Any, ctx: Any) -> dict[str, Any]:
        released.set()
        until(lambda: ended.is_set() or LateResult.objects.exists(), seconds=10)
        return pay(state, ctx)

    end = Attempt._end

    def end_and_say_so(attempt: Attempt, *args: Any) -> None:
        end(attempt, *args)
        if attempt._given_up:
            ended.set()

    node = {
        "prepare": prepare_late,
        "timeout": 0.3,
        "retry": Retry(attempts=2, backoff=0.01),
        "idempotent": True,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Attempt, "_end", end_and_say_so)
        graph = paying(fn=pay_slowly, gate=call_gate(**NEEDS_NOBODY), node=node)
        run = advanced(graph)
    assert run.status == Status.COMPLETED
    assert not LateResult.objects.filter(run=run).exists()
    assert verify_run(run.id) == []


def closed_once(made: list[Any]) -> Any:
    """A node that pays at its second attempt."""

    def fails_once(state: Any, ctx: Any) -> dict[str, Any]:
        if not made:
            made.append(None)
            raise NotDone("the bank is closed")
        return pay(state, ctx)

    return fails_once


def test_a_call_that_needed_nobody_goes_onto_a_version_with_the_same_arguments(
    made: list[Any],
) -> None:
    fn = closed_once(made)
    run = advanced(paying(fn=fn, gate=call_gate(**NEEDS_NOBODY)))
    assert run.status == Status.FAILED
    graph = paying(fn=fn, gate=call_gate(**NEEDS_NOBODY), version="2")
    graph.node("more")(lambda state, ctx: None)
    graph.edge("refused", "more")
    graph.edge("more", "END")
    deployed(graph)
    run = runs.advance(runs.resume(run.id).id)
    assert run.status == Status.COMPLETED
    assert run.version == "2"
    assert made[1][0] == Payment(payee="ada", amount=Decimal(10))
    assert verify_run(run.id) == []


def test_a_call_that_needed_nobody_is_not_made_with_what_a_new_version_reads(
    made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fn = closed_once(made)
    run = advanced(paying(fn=fn, gate=call_gate(**NEEDS_NOBODY)))

    class Payment(BaseModel):
        payee: str = Field(min_length=1)
        amount: Decimal
        note: str = "by itself"

    monkeypatch.setattr(call_graphs, "Payment", Payment)
    deployed(paying(fn=fn, gate=call_gate(**NEEDS_NOBODY), version="2"))
    run = runs.advance(runs.resume(run.id).id)
    assert run.status == Status.INCOMPATIBLE
    because = (stored_error(run) or {})["because"]
    assert "reads other arguments" in because
    assert "fork the run" in because
    assert made == [None]


def test_a_newer_validator_makes_no_other_arguments_of_what_needed_nobody(
    made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fn = closed_once(made)
    run = advanced(paying(fn=fn, gate=call_gate(**NEEDS_NOBODY)))

    class Payment(BaseModel):
        payee: str = Field(min_length=1)
        amount: Decimal

        @field_validator("amount")
        @classmethod
        def capped(cls, amount: Decimal) -> Decimal:
            return min(amount, Decimal(5))

    monkeypatch.setattr(call_graphs, "Payment", Payment)
    registered(paying(fn=fn, gate=call_gate(**NEEDS_NOBODY)))
    run = runs.advance(runs.resume(run.id).id)
    assert run.status == Status.FAILED
    assert made == [None]


def test_no_migration_leads_past_a_call_that_needed_nobody(made: list[Any]) -> None:
    fn = closed_once(made)
    run = advanced(paying(fn=fn, gate=call_gate(**NEEDS_NOBODY)))
    graph = paying(fn=fn, gate=call_gate(**NEEDS_NOBODY), version="2")

    @graph.migration(from_version="1")
    def in_cents(state: Any) -> None:
        state["scratch"]["amount"] = "1000"

    deployed(graph)
    run = runs.advance(runs.resume(run.id).id)
    assert run.status == Status.INCOMPATIBLE
    because = (stored_error(run) or {})["because"]
    assert "pay:1:0 waits with the state of version 1" in because
    assert made == [None]


def test_no_migration_leads_past_a_call_whose_request_expired(made: list[Any]) -> None:
    gate = call_gate(deadline=HOUR, on_deadline="fail")
    run = advanced(paying(gate=gate))
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    graph = paying(gate=gate, version="2")

    @graph.migration(from_version="1")
    def in_cents(state: Any) -> None:
        state["scratch"]["amount"] = "1000"

    deployed(graph)
    run = runs.advance(runs.resume(run.id).id)
    assert run.status == Status.INCOMPATIBLE
    because = (stored_error(run) or {})["because"]
    assert "pay:1:0 waits with the state of version 1" in because


def runs_of(run: Run) -> Any:
    """Return how often a node ran, by its name."""
    assert run.head is not None
    noted = timeline.state_at(run.head)["diagnostics"]["nodes"]
    return {node: times["runs"] for node, times in noted.items()}


def test_preparing_a_call_is_no_run_of_its_node(made: list[Any], ada: User) -> None:
    run = advanced(paying())
    assert runs_of(run) == {}
    run_actions.sign(run, ada, ["approve"])
    assert runs_of(runs.advance(run.id)) == {"pay": 1, "paid": 1}
    run = advanced(paying(gate=call_gate(**NEEDS_NOBODY)))
    assert runs_of(run) == {"pay": 1, "paid": 1}
    run = advanced(paying())
    run_actions.sign_open(run, ada, "reject")
    assert runs_of(runs.advance(run.id)) == {"refused": 1}
