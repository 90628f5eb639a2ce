"""Nobody chooses his own reviewers: what a gate's functions read is guarded like what
the gate decides.
"""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from approvals.models import ApprovalRequest, Decision
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Show
from orchestrator.engine.errors import InvalidValue, NotAReviewer
from tests.support import cast, run_actions
from tests.support.small_graphs import Order, registered

pytestmark = pytest.mark.django_db(transaction=True)

PAID: list[str] = []


class Counter(BaseModel):
    lead: str = "rita"
    backup: str = "rita"


class Transfer(BaseModel):
    account: str = ""
    payee: str = "Ines"
    team: str = "rita"
    counter: Counter = Counter()
    risk: int = 9
    noted: str = ""


def by_attribute(state: Transfer) -> list[str]:
    return [f"user:{state.team}"]


def by_getattr(state: Transfer) -> list[str]:
    name = "".join(["te", "am"])
    return [f"user:{getattr(state, name)}"]


def by_dump(state: Transfer) -> list[str]:
    return [f"user:{state.model_dump()['team']}"]


def by_generator(state: Transfer) -> Any:
    return (f"user:{name}" for name in [state.team])


def by_nested(state: Transfer) -> list[str]:
    return [f"user:{state.counter.lead}"]


READERS = {
    chooser.__name__: chooser
    for chooser in (by_attribute, by_getattr, by_dump, by_generator)
}


def transfer(
    reviewers: Any = by_attribute, state: Any = Transfer, **gate: Any
) -> Graph:
    """begin -> ask (human, proposes an account) -> pay (external)"""
    flow = Graph("transfer", input=Order, state=state)
    flow.node("begin")(lambda state, ctx: {"noted": "begun"})
    shown: dict[str, Any] = {"writes": {"account": Show()}, **gate}
    flow.node("ask", effect="human", gate=Gate(reviewers=reviewers, **shown))(
        lambda state, ctx: {"account": "PT50"}
    )

    def pay(state: Any, ctx: Any) -> None:
        PAID.append(f"{state.account} {state.payee}")

    flow.node("pay", effect="external", idempotent=True)(pay)
    flow.edge(START, "begin")
    flow.edge("begin", "ask")
    flow.edge("ask", "pay", when=("approved", "partial"))
    flow.edge("pay", END)
    return registered(flow)


@pytest.fixture(autouse=True)
def nothing_is_paid() -> None:
    PAID.clear()


def done(people: cast.People, **options: Any) -> Run:
    """A run that rita signed and that has paid."""
    transfer(**options)
    run = runs.advance(runs.start("transfer", {}, by=people.second_reviewer).id)
    if run.status == Status.PAUSED:
        approve(run, people.reviewer)
        run = runs.advance(run.id)
    assert run.status == Status.COMPLETED, stored_error(run)
    assert len(PAID) == 1, stored_error(run)
    return run


def approve(run: Run, by: Any) -> None:
    run_actions.sign_open(run, by, "approve")


def fork(at: Any, patch: dict[str, Any] | None, by: Any) -> Run:
    return runs.advance(
        runs.fork(
            at,
            patch={"scratch": patch} if patch else None,
            allow_effects=["pay"],
            by=by,
        ).id
    )


def asked(run: Run) -> list[str]:
    """Return whom the open requests of a run ask."""
    rows = ApprovalRequest.objects.filter(run=run, status="open")
    return sorted({name for row in rows for name in row.policy["reviewers"]})


def behind(run: Run) -> Any:
    """The settlement of a run, behind its gate."""
    return next(
        row.id
        for row in timeline.list_checkpoints(run.id)
        if row.source == "settlement"
    )


@pytest.mark.parametrize("name", READERS)
def test_a_patch_of_what_names_the_reviewers_waits_for_those_whom_the_state_names_without_it(
    name: str, people: cast.People
) -> None:
    run = done(people, reviewers=READERS[name])
    olive = people.starter
    first = fork(behind(run), {"team": olive.username}, olive)
    assert asked(first) == ["user:rita"]
    assert len(PAID) == 1
    assert verify_run(first.id) == []


def test_a_nested_value_that_names_the_reviewers_is_guarded_as_its_channel(
    people: cast.People,
) -> None:
    run = done(people, reviewers=by_nested)
    olive = people.starter
    first = fork(behind(run), {"counter": {"lead": olive.username}}, olive)
    assert asked(first) == ["user:rita"]


@pytest.mark.parametrize("steps", [2, 3])
def test_an_operator_does_not_choose_his_reviewers_in_several_forks(
    steps: int, people: cast.People
) -> None:
    run = done(people)
    olive = people.starter
    last = fork(behind(run), {"team": olive.username}, olive)
    for _ in range(steps - 2):
        last = fork(last.head, {"team": olive.username}, olive)
    last = fork(last.head, {"account": "OLIVE"}, olive)
    assert asked(last) == ["user:rita"]
    with pytest.raises(NotAReviewer):
        approve(last, olive)
    assert len(PAID) == 1


def test_an_operator_does_not_choose_his_reviewers_by_a_rewind_and_a_fork(
    people: cast.People,
) -> None:
    run = done(people)
    olive = people.starter
    back = runs.rewind(
        run.id,
        f"{run.key}:initial",
        patch={"scratch": {"team": olive.username}},
        by=olive,
    )
    back = runs.advance(back.id)
    assert asked(back) == ["user:rita"]
    last = fork(back.head, {"account": "OLIVE"}, olive)
    assert asked(last) == ["user:rita"]
    assert len(PAID) == 1


def test_an_operator_does_not_choose_his_reviewers_by_resuming_a_run_that_waits(
    people: cast.People,
) -> None:
    transfer()
    run = runs.advance(runs.start("transfer", {}).id)
    olive = people.starter
    run = runs.advance(
        runs.resume(run.id, patch={"scratch": {"team": olive.username}}, by=olive).id
    )
    run = runs.advance(
        runs.resume(run.id, patch={"scratch": {"account": "OLIVE"}}, by=olive).id
    )
    assert asked(run) == ["user:rita"]


def test_a_gate_that_was_asked_on_another_line_guards_what_it_read(
    people: cast.People,
) -> None:
    transfer()
    run = runs.advance(runs.start("transfer", {}).id)
    olive = people.starter
    run = runs.advance(runs.rewind(run.id, f"{run.key}:initial", by=olive).id)
    forked = fork(f"{run.key}:line-1:step-0", {"team": olive.username}, olive)
    assert asked(forked) == ["user:rita"]
    assert [row.node for row in ApprovalRequest.objects.filter(run=forked)] == [
        "$patch"
    ]


def test_reviewers_who_sign_a_patch_of_their_names_are_followed_by_those_whom_it_names(
    people: cast.People,
) -> None:
    run = done(people)
    olive = people.starter
    first = fork(behind(run), {"team": olive.username}, olive)
    approve(first, people.reviewer)
    first = runs.advance(first.id)
    assert first.status == Status.COMPLETED
    second = fork(behind(first), {"account": "ELSE"}, people.second_reviewer)
    assert asked(second) == [f"user:{olive.username}"]


def test_what_decided_that_no_approval_is_needed_is_guarded(
    people: cast.People,
) -> None:
    run = done(people, needs_approval=lambda state, proposal: state.risk > 9)
    assert Decision.objects.get(run=run.id).checked == {"reads": ["risk"]}
    first = fork(f"{run.key}:initial", {"risk": 1}, people.starter)
    assert asked(first) == ["user:rita"]
    assert len(PAID) == 1


def test_who_makes_an_approval_unneeded_by_a_patch_is_named_and_people_are_asked(
    people: cast.People,
) -> None:
    transfer(needs_approval=lambda state, proposal: state.risk > 1)
    run = runs.start("transfer", {})
    run = runs.advance(
        runs.resume(run.id, patch={"scratch": {"risk": 0}}, by=people.starter).id
    )
    [request] = ApprovalRequest.objects.filter(run=run, status="open")
    assert read_value(request, "why").startswith(
        "olive set risk without a signature, which decided that no approval"
    )


def test_where_no_such_gate_was_ever_asked_the_request_says_who_patched_what_decided_it(
    people: cast.People,
) -> None:
    transfer(four_eyes=True)
    run = runs.start("transfer", {}, by=people.second_reviewer)
    olive = people.starter
    run = runs.advance(
        runs.resume(run.id, patch={"scratch": {"team": olive.username}}, by=olive).id
    )
    [request] = ApprovalRequest.objects.filter(run=run, status="open")
    assert (
        read_value(request, "why")
        == "olive set team without a signature, which decided whom it asks"
    )
    with pytest.raises(NotAReviewer, match="somebody else must sign"):
        approve(run, olive)


def test_who_patched_what_decides_the_deadline_is_said_to_have_set_that_alone(
    people: cast.People,
) -> None:
    transfer(deadline=lambda now, state: now + timedelta(hours=state.risk))
    run = runs.start("transfer", {}, by=people.second_reviewer)
    patch = {"scratch": {"risk": 5}}
    run = runs.advance(runs.resume(run.id, patch=patch, by=people.starter).id)
    [request] = ApprovalRequest.objects.filter(run=run, status="open")
    assert read_value(request, "why") == (
        "olive set risk without a signature, which decided until when it asks"
    )


def test_a_request_that_does_not_say_what_it_read_counts_as_if_it_had_read_everything(
    people: cast.People,
) -> None:
    run = done(people)
    [request] = ApprovalRequest.objects.filter(run=run)
    unrecorded(request)
    first = fork(behind(run), {"payee": "OLIVE"}, people.starter)
    assert asked(first) == ["user:rita"]


def test_a_request_of_a_gate_without_functions_has_read_nothing(
    people: cast.People,
) -> None:
    run = done(people, reviewers=["user:rita"])
    [request] = ApprovalRequest.objects.filter(run=run)
    unrecorded(request)
    assert (
        fork(behind(run), {"payee": "OLIVE"}, people.starter).status == Status.COMPLETED
    )


def unrecorded(request: ApprovalRequest) -> None:
    """The request as an earlier version wrote it."""
    request.policy = {
        name: value
        for name, value in request.policy.items()
        if name not in ("gate", "reads")
    }
    sealed_rows.seal_and_encrypt([request], protection_of(request.run))
    ApprovalRequest.objects.filter(id=request.id).update(
        policy=request.policy, seal=request.seal
    )


def test_what_a_gate_bound_by_shows_is_guarded_behind_its_signatures(
    people: cast.People,
) -> None:
    run = done(people, shows=["payee"])
    olive = people.starter
    plan = runs.plan(behind(run), patch={"scratch": {"payee": "OLIVE"}})
    assert plan.guarded == {"payee": "ask"}
    first = fork(behind(run), {"payee": "OLIVE"}, olive)
    assert asked(first) == ["user:rita"]
    second = fork(first.head, {"noted": "x"}, olive)
    assert asked(second) == ["user:rita"]
    assert len(PAID) == 1


def by_backup(state: Transfer) -> list[str]:
    return [f"user:{state.counter.backup}", f"user:{state.team}"]


def audited() -> Graph:
    """begin -> ask -> audit (asks whom `team` and `counter` name) -> pay"""
    flow = Graph("transfer", input=Order, state=Transfer)
    flow.node("begin")(lambda state, ctx: {"noted": "begun"})
    first = Gate(reviewers=by_attribute, writes={"account": Show()})
    flow.node("ask", effect="human", gate=first)(lambda state, ctx: {"account": "PT50"})
    second = Gate(reviewers=by_backup, writes={"noted": Show()})
    flow.node("audit", effect="human", gate=second)(
        lambda state, ctx: {"noted": "audited"}
    )
    flow.node("pay", effect="external", idempotent=True)(
        lambda state, ctx: PAID.append(state.account)
    )  # type: ignore[arg-type]
    flow.edge(START, "begin")
    flow.edge("begin", "ask")
    flow.edge("ask", "audit", when=("approved", "partial"))
    flow.edge("audit", "pay", when=("approved", "partial"))
    flow.edge("pay", END)
    return registered(flow)


def audited_run(people: cast.People) -> Run:
    audited()
    run = runs.advance(runs.start("transfer", {}).id)
    for _ in range(2):
        approve(run, people.reviewer)
        run = runs.advance(run.id)
    assert run.status == Status.COMPLETED, stored_error(run)
    assert PAID == ["PT50"], stored_error(run)
    return run


def test_what_two_gates_read_waits_for_the_people_of_both(people: cast.People) -> None:
    run = audited_run(people)
    plan = runs.plan(behind(run), patch={"scratch": {"team": "ravi"}})
    assert [task.node for task in plan.asks if task.node == "$patch"] == [
        "$patch",
        "$patch",
    ]
    forked = fork(behind(run), {"team": "ravi"}, people.starter)
    assert (
        ApprovalRequest.objects.filter(run=forked, node="$patch", status="open").count()
        == 2
    )


def test_a_patch_is_applied_once_each_of_its_gates_has_approved(
    people: cast.People,
) -> None:
    forked = fork(behind(audited_run(people)), {"team": "ravi"}, people.starter)
    run_actions.sign_open(forked, people.reviewer, "approve", requests=1)
    new_run = runs.advance(forked.id)
    assert new_run.status == Status.PAUSED
    assert run_actions.state(new_run)["team"] == "rita"
    approve(new_run, people.reviewer)
    new_run = runs.advance(new_run.id)
    assert new_run.status == Status.COMPLETED
    assert run_actions.state(new_run)["team"] == "ravi"
    assert verify_run(new_run.id) == []


def test_a_patch_that_one_of_its_gates_rejects_is_not_applied_at_all(
    people: cast.People,
) -> None:
    forked = fork(behind(audited_run(people)), {"team": "ravi"}, people.starter)
    run_actions.sign_open(forked, people.reviewer, "approve", requests=1)
    new_run = runs.advance(forked.id)
    approved = ApprovalRequest.objects.filter(
        run=new_run, status="settled"
    ).values_list("index", flat=True)
    verdicts = [
        None if row.index in approved else "reject"
        for row in run_actions.pending(new_run)
    ]
    run_actions.sign(new_run, people.reviewer, verdicts)
    new_run = runs.advance(new_run.id)
    assert new_run.status == Status.REJECTED
    assert run_actions.state(new_run)["team"] == "rita"
    assert verify_run(new_run.id) == []


def test_what_two_gates_sign_of_a_patch_is_not_edited_by_one_of_them(
    people: cast.People,
) -> None:
    forked = fork(behind(audited_run(people)), {"team": "ravi"}, people.starter)
    with pytest.raises(InvalidValue, match="another gate"):
        run_actions.sign(forked, people.reviewer, [("edit", "olive"), None])
    assert run_actions.state(forked)["team"] == "rita"
