"""What came of what people decided, as the journal has it."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from approvals.results.effect_results import are_sound, effect_results, failure_in_words
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, Run, TaskResult
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Retry, Send
from tests.support import call_graphs, cast, run_actions
from tests.support.effect_graphs import fine, paying, refused
from tests.support.forging import tamper
from tests.support.small_graphs import advanced, graph
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def words(request: ApprovalRequest) -> dict[str, str]:
    """Return what came of a request, by node."""
    request = ApprovalRequest.objects.select_related("run").get(id=request.id)
    results = effect_results([request])[request.id]
    return {result.node: result.words for result in results}


def decided(flow: Graph, by: User, verdict: str = "approve") -> Run:
    run = advanced(flow)
    run_actions.sign_open(run, by, verdict)
    return run


def test_nothing_has_come_of_what_is_not_decided(rita: User) -> None:
    run = advanced(paying())
    assert words(run_actions.request(run)) == {}
    run_actions.sign_open(run, rita, "approve")
    # It is signed, and no worker has applied it yet.
    assert words(run_actions.request(run)) == {}


def test_each_effect_behind_the_gate_was_done(rita: User) -> None:
    run = runs.advance(decided(paying(), rita).id)
    assert run.status == Status.COMPLETED
    assert words(run_actions.request(run)) == {"pay": "done", "tell": "done"}


def test_what_failed_and_what_was_not_reached_after_it(rita: User) -> None:
    run = runs.advance(decided(paying(refused), rita).id)
    assert run.status == Status.FAILED
    request = run_actions.request(run)
    assert words(request) == {"pay": "failed", "tell": "not reached"}
    (pay, _) = effect_results([request])[request.id]
    assert failure_in_words(request, pay) == "the bank refused it"
    assert pay.failed is not None


def test_an_altered_row_is_not_taken_for_what_happened(rita: User) -> None:
    run = runs.advance(decided(paying(refused), rita).id)
    request = run_actions.request(run)
    (pay, tell) = effect_results([request])[request.id]
    assert are_sound(request, pay)
    assert are_sound(request, tell)
    tamper(TaskResult.objects.get(id=pay.failed), error=b"")
    (pay, _) = effect_results([request])[request.id]
    assert failure_in_words(request, pay) == "its error cannot be read"
    assert not are_sound(request, pay)


def test_an_effect_of_which_nobody_knows(rita: User) -> None:
    flow = paying(refused, idempotent=False)
    run = runs.advance(decided(flow, rita).id)
    assert run.status == Status.UNKNOWN
    assert words(run_actions.request(run)) == {"pay": "unknown", "tell": "not yet"}


def test_what_a_rejection_leads_to(rita: User) -> None:
    run = runs.advance(decided(paying(), rita, "reject").id)
    assert words(run_actions.request(run)) == {"refuse": "done"}


def test_each_round_has_its_own_effects(rita: User) -> None:
    failing = iter([True, False])

    def pay(state: Any, ctx: Any) -> None:
        if next(failing):
            raise ValueError("the bank refused it")

    flow = paying(pay)
    flow.node("settle")(fine)
    flow.edge("pay", "settle", when="error")
    flow.edge("settle", "review")
    run = runs.advance(decided(flow, rita).id)
    assert run.status == Status.PAUSED
    run_actions.sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    first, second = ApprovalRequest.objects.filter(run=run).order_by("visit")
    assert words(first) == {"pay": "failed", "tell": "not reached"}
    assert words(second) == {"pay": "done", "tell": "done"}


def test_a_fan_out_is_counted(rita: User) -> None:
    run = runs.advance(decided(paying(times=3), rita).id)
    assert run.status == Status.COMPLETED
    assert words(run_actions.request(run))["pay"] == "3 done"


def test_a_call_is_its_own_effect(rita: User) -> None:
    with call_graphs.calls() as calls:
        run = runs.advance(decided(call_graphs.paying_many(), rita).id)
        assert len(calls) == 3
    requests = ApprovalRequest.objects.filter(run=run).order_by("index")
    assert [words(request) for request in requests] == [{"pay": "done"}] * 3


def test_a_rejected_call_did_nothing(rita: User) -> None:
    run = runs.advance(decided(call_graphs.paying(), rita, "reject").id)
    assert words(run_actions.request(run)) == {}


def test_a_skipped_call_was_not_run_as_decided(rita: User) -> None:
    flow = call_graphs.paying(gate=call_graphs.call_gate(skip=True))
    run = runs.advance(decided(flow, rita, "skip").id)
    assert words(run_actions.request(run)) == {"pay": "not run, as decided"}


def test_what_is_done_after_a_rewind_belongs_to_the_approval_it_went_on_from(
    rita: User,
) -> None:
    failing = iter([True, False])

    def pay(state: Any, ctx: Any) -> None:
        if next(failing):
            raise ValueError("the bank refused it")

    run = runs.advance(decided(paying(pay), rita).id)
    assert run.status == Status.FAILED
    settlement = Checkpoint.objects.get(run=run, source="settlement")
    run = runs.rewind(run.id, settlement.id, allow_effects=["pay"])
    run = runs.advance(run.id)
    request = run_actions.request(run)
    assert Run.objects.get(id=run.id).line == 2
    assert words(request) == {"pay": "1 done, 1 failed", "tell": "done"}


def test_an_approval_that_a_rewind_left_behind_is_followed_by_nothing_more(
    rita: User,
) -> None:
    run = runs.advance(decided(paying(refused), rita).id)
    first = Checkpoint.objects.get(run=run, seq=0)
    run = runs.advance(runs.rewind(run.id, first.id, by=None).id)
    request = ApprovalRequest.objects.get(run=run, line=1)
    assert words(request) == {"pay": "failed", "tell": "not reached"}


def test_tasks_of_one_visit_that_were_decided_differently_follow_the_visit(
    rita: User,
) -> None:
    flow = graph("mixed")

    @flow.node("split", sends=["ask"])
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("ask", number) for number in range(2)]

    gate = Gate(reviewers=["group:claims"])

    @flow.node("ask", effect="human", gate=gate)
    def ask(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": [f"proposal {ctx.payload}"]}

    for name in ("all", "some", "none", "book"):
        flow.node(name, effect="external", idempotent=True)(fine)
        flow.edge(name, END)
    flow.edge(START, "split")
    flow.edge("ask", "all", when="approved")
    flow.edge("ask", "some", when="partial")
    flow.edge("ask", "none", when="rejected")
    flow.edge("ask", "book")
    run = advanced(flow)
    run_actions.sign(run, rita, ["approve", None])
    requests = ApprovalRequest.objects.filter(run=run).order_by("index")
    run_actions.sign(run, rita, [None, "reject"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert [words(request) for request in requests] == [
        {"some": "done", "book": "done"}
    ] * 2


def test_what_an_error_leads_to(rita: User) -> None:
    flow = paying(refused)
    flow.node("cheque", effect="external", idempotent=True)(fine)
    flow.edge("pay", "cheque", when="error")
    flow.edge("cheque", END)
    run = runs.advance(decided(flow, rita).id)
    assert words(run_actions.request(run)) == {
        "pay": "failed",
        "tell": "not reached",
        "cheque": "done",
    }


def test_an_effect_that_will_be_tried_again_has_not_failed(rita: User) -> None:
    retry = Retry(attempts=2, backoff=3600)
    run = runs.advance(decided(paying(refused, retry=retry), rita).id)
    assert run.status == Status.WAITING
    assert words(run_actions.request(run)) == {"pay": "under way", "tell": "not yet"}


def test_nothing_is_said_of_more_effects_than_are_counted(
    rita: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs.advance(decided(paying(), rita).id)
    monkeypatch.setattr("approvals.results.effect_results.MOST_ATTEMPTS", 1)
    assert words(run_actions.request(run)) == {}


def test_three_queries_however_many_requests(rita: User) -> None:
    for count in (1, 4):
        for _ in range(count):
            runs.advance(decided(paying(), rita).id)
        requests = list(ApprovalRequest.objects.select_related("run"))
        with counted() as sent:
            results = effect_results(requests)
        assert len(sent) == 3
        assert all(len(of_request) == 2 for of_request in results.values())
