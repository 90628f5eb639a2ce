"""The authority on which nodes act: what is verified again when they would begin."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import DatabaseError

from approvals.authority import Judge
from approvals.models import ApprovalRequest, Decision
from checkpoints.core.status import Status
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Run, RunEvent, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Write
from orchestrator.engine.errors import InvalidGraph
from orchestrator.engine.graphs import checks
from orchestrator.execution.executor import Executor
from tests.support import call_graphs, cast, run_actions, statements
from tests.support.authority_graphs import leave, pay, paying, payments, signed
from tests.support.deadlines import let_come
from tests.support.forging import remove, tamper
from tests.support.small_graphs import advanced, graph, slice_of
from tests.support.tiers import HOUR, LEADS, let_tiers_come, meet_tiers

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def paid() -> Iterator[list[int]]:
    with payments() as amounts:
        yield amounts


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def _nothing_began(run: Run) -> None:
    assert not TaskResult.objects.filter(run=run, node="pay").exists()
    assert not RunEvent.objects.filter(run=run, type="effects_started").exists()
    assert verify_run(run.id) == []


def test_a_node_acts_while_its_signatures_count(paid: list[int], rita: User) -> None:
    run = runs.advance(signed(paying(), rita).id)
    assert run.status == Status.COMPLETED
    assert paid == [7]
    assert verify_run(run.id) == []


def _booked(paid: list[int]) -> Graph:
    flow = call_graphs.paying(gate=call_graphs.call_gate(skip=True))
    flow.node("book", effect="external", authority="pay")(
        lambda state, ctx: paid.append(1)
    )
    flow.edge("paid", "book")
    flow.edge("book", END)
    return flow


def test_no_node_acts_on_a_gate_whose_call_may_be_skipped(paid: list[int]) -> None:
    with pytest.raises(InvalidGraph, match="pay, whose call may be skipped"):
        advanced(_booked(paid))


def test_no_effect_rests_on_a_skipped_call(
    paid: list[int], rita: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_may_be_skipped", lambda node: False)
    run = advanced(_booked(paid))
    run_actions.sign(run, rita, ["skip"])
    run = runs.advance(run.id)
    assert run.status == Status.FAILED
    assert "nothing was approved at the gate of pay" in str(stored_error(run))
    assert paid == []
    _nothing_began(run)


def _deactivate(user: User) -> None:
    user.is_active = False
    user.save()


def _rename(user: User) -> None:
    user.username = "margarita"
    user.save()


def _rename_group(user: User) -> None:
    Group.objects.filter(name="claims").update(name="former claims")


@pytest.mark.parametrize(
    ("reviewers", "revoke"),
    [
        ("group:claims", leave),
        ("group:claims", _deactivate),
        ("group:claims", _rename_group),
        ("user:rita", _deactivate),
        ("user:rita", _rename),
    ],
)
def test_nothing_begins_once_who_signed_may_not_sign_any_more(
    paid: list[int], rita: User, reviewers: str, revoke: Callable[[User], None]
) -> None:
    run = signed(paying(gate=Gate(reviewers=[reviewers])), rita)
    revoke(rita)
    run = runs.advance(run.id)
    assert paid == []
    _nothing_began(run)


def test_a_permission_that_a_group_gave_is_lost_with_it(
    paid: list[int], rita: User
) -> None:
    permission = Permission.objects.get(codename="decide")
    group = Group.objects.create(name="deciders")
    group.permissions.add(permission)
    rita.groups.set([group])
    gate = Gate(reviewers=["perm:approvals.decide"])
    run = signed(paying(gate=gate), rita)
    group.permissions.remove(permission)
    run = runs.advance(run.id)
    assert paid == []
    _nothing_began(run)


def test_what_was_given_back_counts_again(paid: list[int], rita: User) -> None:
    run = signed(paying(), rita)
    leave(rita)
    run_actions.reviewer(rita)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert paid == [7]


def test_nothing_begins_without_any_approval(paid: list[int], rita: User) -> None:
    flow = paying()
    flow.edge("review", "wait", when="rejected")
    run = advanced(flow)
    run_actions.sign(run, rita, ["reject", "reject"])
    run = runs.advance(run.id)
    assert paid == []
    assert run.status == Status.FAILED
    error = read_value(run, "error")
    assert error["code"] == "authority_lost"
    assert error["cure"].startswith("The signatures on which")
    assert "nothing was approved at the gate of review" in error["message"]
    _nothing_began(run)


def test_an_earlier_round_is_no_authority_for_the_next(
    paid: list[int], rita: User
) -> None:
    flow = paying()
    flow.edges[:] = [edge for edge in flow.edges if edge.source != "pay"]
    flow.edge("pay", "review")
    flow.edge("pay", "refused", when="rejected")
    flow.edge("review", "wait", when="rejected")
    run = runs.advance(signed(flow, rita).id)
    assert paid == [7]
    run_actions.sign_open(run, rita, "reject")
    run = runs.advance(run.id)
    assert paid == [7]
    assert read_value(run, "error")["code"] == "authority_lost"


def test_what_a_gate_needed_nobody_for_is_authority_enough(paid: list[int]) -> None:
    gate = Gate(
        reviewers=["group:claims"],
        needs_approval=lambda state, proposal: False,
        recheck=lambda state, proposal: proposal["total"] == 7,
    )
    run = advanced(paying(gate=gate))
    assert run.status == Status.COMPLETED
    assert paid == [7]


def test_what_a_gate_needed_nobody_for_is_checked_again(paid: list[int]) -> None:
    gate = Gate(
        reviewers=["group:claims"],
        needs_approval=lambda state, proposal: False,
        recheck=lambda state, proposal: proposal["total"] > 7,
    )
    run = advanced(paying(gate=gate))
    assert paid == []
    _nothing_began(run)


@pytest.mark.parametrize("answer", [False, None, 1, "the customer withdrew"])
def test_a_recheck_lets_a_node_act_only_with_the_literal_true(
    paid: list[int], rita: User, answer: Any
) -> None:
    gate = Gate(reviewers=["group:claims"], recheck=lambda state, proposal: answer)
    run = runs.advance(signed(paying(gate=gate), rita).id)
    assert paid == []
    _nothing_began(run)


def test_a_recheck_sees_the_state_and_what_was_applied(
    paid: list[int], rita: User
) -> None:
    seen = []

    def recheck(state: Any, proposal: Any) -> bool:
        seen.append((state.letter, dict(proposal)))
        return True

    gate = Gate(reviewers=["group:claims"], recheck=recheck)
    run = advanced(paying(gate=gate))
    run_actions.sign(run, rita, ["reject", ("edit", 9)])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert paid == [9]
    assert seen == [("", {"total": 9})]


def test_a_recheck_that_fails_lets_nothing_begin(paid: list[int], rita: User) -> None:
    def recheck(state: Any, proposal: Any) -> bool:
        raise LookupError("the price list is gone")

    gate = Gate(reviewers=["group:claims"], recheck=recheck)
    run = runs.advance(signed(paying(gate=gate), rita).id)
    assert paid == []
    _nothing_began(run)


def test_a_fork_behind_the_gate_goes_by_the_decisions_that_it_inherits(
    paid: list[int], rita: User, people: cast.People
) -> None:
    run = signed(paying(), rita)
    forks = [runs.fork(str(run.head), by=people.steward) for _ in range(2)]
    runs.advance(forks[0].id)
    assert paid == [7]
    leave(rita)
    fork = runs.advance(forks[1].id)
    assert paid == [7]
    _nothing_began(fork)


def _signed_by_two(rita: User, ravi: User, mall: User) -> Run:
    """A run that is about to pay: mall was against it, rita and ravi for it."""
    gate = Gate(reviewers=["group:claims"], quorum=2, reject_quorum=2)
    run = advanced(paying(gate=gate))
    for person, verdict in ((mall, "reject"), (rita, "approve"), (ravi, "approve")):
        run_actions.sign(run, person, [verdict] * 2)
    turns = iter([False, False])
    return slice_of(run, draining=lambda: next(turns, True))


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_fork_does_not_act_where_a_decision_that_it_inherits_is_gone(
    paid: list[int], rita: User, people: cast.People, verdict: str
) -> None:
    ravi = run_actions.reviewer(people.second_reviewer)
    mall = run_actions.reviewer(people.nobody)
    run = _signed_by_two(rita, ravi, mall)
    fork = runs.fork(str(run.head), by=people.steward)
    remove(Decision.objects.filter(run=run.id, verdict=verdict)[0])
    fork = runs.advance(fork.id)
    assert paid == []
    assert fork.status == Status.TAMPERED


def test_a_fork_asks_again_once_fewer_count_than_its_gate_asks_for(
    paid: list[int], rita: User, people: cast.People
) -> None:
    ravi = run_actions.reviewer(people.second_reviewer)
    mall = run_actions.reviewer(people.nobody)
    run = _signed_by_two(rita, ravi, mall)
    fork = runs.fork(str(run.head), by=people.steward)
    leave(ravi)
    fork = runs.advance(fork.id)
    assert paid == []
    asked_again = ApprovalRequest.objects.get(run=fork, status="open")
    assert asked_again.quorum == 2
    run_actions.sign_open(fork, rita, "approve")
    fork = runs.advance(fork.id)
    assert paid == []
    assert fork.status == Status.PAUSED


def _two_rounds(name: str) -> Graph:
    """People are asked twice at `review` before anything is paid: one of its tokens comes
    later. Each answer leads to a payment of its own.
    """
    flow = graph(name)

    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": ["proposed"]}

    flow.node("later")(lambda state, ctx: None)
    flow.node(
        "review", effect="human", join="any", gate=Gate(reviewers=["group:claims"])
    )(propose)
    flow.node("wait")(lambda state, ctx: None)
    flow.node("pay", effect="external", authority="review")(pay)
    flow.edge(START, "review")
    flow.edge(START, "later")
    flow.edge("later", "review")
    flow.edge("review", "wait")
    flow.edge("wait", "pay")
    flow.edge("pay", END)
    return flow


def test_each_round_that_was_not_acted_on_yet_has_to_count(
    paid: list[int], rita: User, people: cast.People
) -> None:
    mall = run_actions.reviewer(people.second_reviewer)
    run = advanced(_two_rounds("two_rounds"))
    run_actions.sign_open(run, mall, "approve", requests=1)
    run_actions.sign_open(run, rita, "approve")
    leave(mall)
    run = runs.advance(run.id)
    # The round that rita approved leads to its own payment.
    assert paid == [0]
    asked_again = ApprovalRequest.objects.get(run=run, status="open")
    assert asked_again.task == "pay:1:0"
    assert run.status == Status.PAUSED


def test_a_round_that_was_rejected_keeps_nobody_from_acting_on_the_other(
    paid: list[int], rita: User
) -> None:
    run = advanced(_two_rounds("one_of_two_rounds"))
    run_actions.sign_open(run, rita, "approve", requests=1)
    run_actions.sign_open(run, rita, "reject")
    run = runs.advance(run.id)
    assert paid == [0]
    assert not ApprovalRequest.objects.filter(run=run, status="open").exists()


def test_who_signed_a_patched_value_has_to_count_too(
    paid: list[int], rita: User, people: cast.People
) -> None:
    mall = run_actions.reviewer(people.second_reviewer)
    run = signed(paying(), rita)
    fork = runs.fork(
        str(run.head), patch={"scratch": {"total": 999}}, by=people.steward
    )
    fork = runs.advance(fork.id)
    run_actions.sign_open(fork, mall, "approve")
    leave(mall)
    fork = runs.advance(fork.id)
    assert paid == []
    assert fork.status == Status.PAUSED


def test_an_atomic_attempt_that_was_cut_off_is_judged_anew(
    paid: list[int], rita: User
) -> None:
    run = signed(paying(effect="write", atomic=True), rita)
    cut_off = patch.object(Executor, "_make_attempt", side_effect=KeyboardInterrupt)
    with cut_off, pytest.raises(KeyboardInterrupt):
        runs.advance(run.id)
    assert TaskResult.objects.get(run=run, node="pay").outcome == Outcome.OPEN
    leave(rita)
    Run.objects.filter(id=run.id).update(lease_until="2000-01-01T00:00Z")
    run = runs.advance(run.id)
    assert paid == []
    assert read_value(run, "error")["code"] == "authority_lost"


def test_a_decision_that_was_changed_lets_nothing_begin(
    paid: list[int], rita: User
) -> None:
    run = signed(paying(), rita)
    tamper(Decision.objects.filter(run=run.id).first(), by_name="ravi")
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert paid == []


def test_the_queries_do_not_grow_with_the_writes(
    paid: list[int], rita: User, people: cast.People
) -> None:
    few = _statements_of_authority(signed(_paying_many(2), rita))
    many = _statements_of_authority(signed(_paying_many(60), rita))
    assert many == few
    assert few <= 20


def test_a_policy_whose_query_failed_is_named_as_one(
    paid: list[int], rita: User
) -> None:
    signing = Gate(reviewers=["group:claims"], auto=lambda state, proposal: True)
    flow = paying(gate=signing)
    with patch("approvals.authority.auto_of", side_effect=DatabaseError("no table")):
        run = advanced(flow)
    assert paid == []
    request = ApprovalRequest.objects.get(run=run, kind="authority")
    why = str(read_value(request, "why"))
    assert "its policy failed: DatabaseError: no table" in why
    assert verify_run(run.id) == []


def test_a_node_that_names_no_gate_costs_no_query(paid: list[int], rita: User) -> None:
    run = signed(paying(authority=()), rita)
    assert _statements_of_authority(run) == 0
    assert paid == [7]


def _paying_many(writes: int) -> Graph:
    def propose(state: Any, ctx: Any) -> list[Write]:
        return [Write("notes", [str(number)]) for number in range(writes)]

    return paying(f"paying_{writes}", propose=propose)


def _statements_of_authority(run: Run) -> int:
    """Return how many statements verify the authority of the run's payment."""
    counts: list[int] = []

    def counted(judge: Judge, *arguments: Any) -> None:
        with statements.counted() as sent:
            require(judge, *arguments)
        counts.append(len(sent))

    require = Judge.require
    with patch.object(Judge, "require", counted):
        runs.advance(run.id)
    return sum(counts)


def _kept_by_a_deadline(lena: User, rita: User, people: cast.People) -> Run:
    """A run that is about to pay: lena, whom a tier had asked too, signed the letter;
    a deadline closed the rest, which rita signed when it was asked anew.
    """
    gate = Gate(
        reviewers=["group:claims"],
        tiers=[(HOUR, "escalate", [LEADS])],
        deadline=timedelta(days=1),
        on_deadline="fail",
    )
    run = advanced(paying(gate=gate))
    let_tiers_come(run)
    assert meet_tiers(run)
    run_actions.sign(run, lena, ["approve", None])
    let_come(run)
    assert runs.advance(run.id).error_code == "deadline_passed"
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    run_actions.sign(run, rita, [None, "approve"])
    return run


@pytest.fixture
def lena() -> User:
    user = cast.UserFactory.create(username="lena")
    user.groups.add(Group.objects.create(name="leads"))
    return user


def test_whom_a_tier_had_asked_counts_where_a_deadline_kept_their_verdict(
    paid: list[int], rita: User, lena: User, people: cast.People
) -> None:
    run = runs.advance(_kept_by_a_deadline(lena, rita, people).id)
    assert run.status == Status.COMPLETED
    assert paid == [7]
    assert verify_run(run.id) == []


def test_whom_a_tier_had_asked_does_not_count_once_they_have_left(
    paid: list[int], rita: User, lena: User, people: cast.People
) -> None:
    run = _kept_by_a_deadline(lena, rita, people)
    lena.groups.clear()
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert paid == []
    request = ApprovalRequest.objects.get(run=run, status="open")
    why = "lena's signature does not count any more: not a reviewer of review"
    assert why in str(read_value(request, "why"))
    _nothing_began(run)


def test_what_a_deadline_kept_does_not_count_if_its_request_was_changed(
    paid: list[int], rita: User, lena: User, people: cast.People
) -> None:
    run = _kept_by_a_deadline(lena, rita, people)
    closed = ApprovalRequest.objects.get(run=run, status="expired")
    tamper(closed, passed_tiers=None)
    run = runs.advance(run.id)
    assert paid == []
    assert run.status == Status.TAMPERED
