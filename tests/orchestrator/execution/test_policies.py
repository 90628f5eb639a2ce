"""A worker asks the policy under which a request was opened, about what people see."""

from typing import Any

import pytest

from approvals import reviews
from approvals.gates.request_state import why_of
from approvals.models import ApprovalRequest, Decision
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Show, registry
from orchestrator.runs.reopenings import reopen
from tests.support import cast, run_actions
from tests.support.deadlines import gated, let_come, paused_run
from tests.support.run_actions import pending, sign, sign_open
from tests.support.small_graphs import advanced
from tests.support.versioned_graphs import deployed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> Any:
    return run_actions.reviewer(people.reviewer)


def never(state: Any, proposal: Any) -> str:
    return "too much"


def always(state: Any, proposal: Any) -> bool:
    return True


def by_policy(run: Run) -> list[tuple[str, str, str]]:
    """Return what policies answered: the verdict, the name of the function, and the
    reason.
    """
    rows = Decision.objects.filter(run=run.id, by=None).order_by("event_seq")
    answers: list[tuple[str, str, str]] = []
    for row in rows:
        reason = read_value(row, "reason") or ""
        answers.append((row.verdict, row.checked["policy"], reason))
    return answers


def test_the_policy_of_another_version_signs_nothing_that_was_re_opened_under_it(
    rita: Any, people: cast.People
) -> None:
    run = paused_run("of-two", deadline=None, auto=never)
    # Something else has to change too, as long as a policy alone is no change.
    newer = gated("of-two", deadline=None, auto=always)
    newer.version = "2"
    registry.replace(newer)
    request = ApprovalRequest.objects.get(run=run, status="open")
    opened = reopen(request.id, by=people.steward, reason="it is small")
    assert opened.policy["auto"] == "always"
    run = runs.advance(run.id)
    assert (run.status, run.version) == ("paused", "1")
    for verdict, name, reason in by_policy(run)[-2:]:
        assert (verdict, name) == ("no_auto", "always")
        assert "another policy now" in reason
    assert verify_run(run.id) == []
    sign_open(run, rita, "approve")
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


def test_after_a_deadline_it_signs_nothing_that_a_person_had_rejected(
    rita: Any, people: cast.People
) -> None:
    answers: list[Any] = ["too much", True]

    def wavering(state: Any, proposal: Any) -> Any:
        return answers.pop(0)

    flow = gated("refused-late", on_deadline="fail", reject_quorum=2, auto=wavering)
    run = advanced(flow)
    sign(run, rita, ["reject", None])
    for _ in range(2):
        let_come(run)
        run = runs.advance(run.id)
        assert run.error_code == "deadline_passed"
        runs.resume(run.id, by=people.steward)
        run = runs.advance(run.id)
        assert run.status == "paused", "people alone decide"
    assert answers == [True]
    assert verify_run(run.id) == []


def test_after_a_deadline_it_signs_nothing_rejected_that_others_had_approved(
    rita: Any, people: cast.People
) -> None:
    answers: list[Any] = ["too much", True]

    def wavering(state: Any, proposal: Any) -> Any:
        return answers.pop(0)

    flow = gated("refused-moved", on_deadline="fail", reject_quorum=2, auto=wavering)

    @flow.node(effect="human", gate=Gate(reviewers=["group:claims"]))
    def replace(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "Dear Ada"}

    flow.edge(START, "replace")
    flow.edge("replace", END)
    run = advanced(flow)
    sign(run, rita, ["reject", None, None])
    ravi = run_actions.reviewer(people.second_reviewer)
    sign(run, ravi, ["approve", None, None])
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    # What the letter would replace has moved, so that people are asked about it again.
    sign(run, rita, [None, None, "approve"])
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    assert run.status == "paused"
    assert answers == [True]
    request = ApprovalRequest.objects.get(run=run, status="open")
    assert "rita had rejected letter" in why_of(request)
    assert verify_run(run.id) == []


@pytest.mark.parametrize("is_removed", [True, False])
def test_what_it_signed_before_a_deadline_is_kept_where_people_alone_are_asked_now(
    rita: Any, people: cast.People, is_removed: bool
) -> None:
    gate: dict[str, Any] = {"on_deadline": "fail", "quorum": 2, "reject_quorum": 2}
    run = paused_run("kept-of-policy", auto=always, **gate)
    sign(run, rita, ["approve", None])
    if is_removed:
        deployed(gated("kept-of-policy", **gate))
    else:
        sign(run, rita, [None, "reject"])
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    assert run.status == "paused"
    request = ApprovalRequest.objects.get(run=run, status="open")
    assert (request.policy["kept"], "auto" in request.policy) == ([0], False)
    assert verify_run(run.id) == []


def test_it_is_asked_once_the_patch_beside_it_is_signed(
    rita: Any, people: cast.People
) -> None:
    letters: list[str] = []

    def small(state: Any, proposal: Any) -> Any:
        letters.append(state.letter)
        return True if state.letter == "patched" else "not patched"

    gate: dict[str, Any] = {"deadline": None, "auto": small}
    run = paused_run("beside-patch", writes={"letter": Show()}, **gate)
    patch = {"scratch": {"letter": "patched"}}
    fork = runs.advance(runs.fork(run.head, patch=patch, by=people.steward).id)
    assert fork.status == "paused"
    assert letters == [""], "that of the origin"
    request = ApprovalRequest.objects.get(run=fork, node="$patch")
    items = [
        {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
        for row in pending(fork)
        if row.node == request.node
    ]
    reviews.sign(fork.id, items, by=rita)
    fork = runs.advance(fork.id)
    assert letters == ["", "patched"]
    assert fork.status == "completed"
    assert verify_run(fork.id) == []


def test_what_a_deadline_kept_of_it_is_acted_on_only_as_long_as_it_holds(
    rita: Any, people: cast.People
) -> None:
    lowered: list[bool] = []
    calls: list[str] = []

    def while_it_holds(state: Any, proposal: Any) -> Any:
        return "the limit was lowered" if lowered else True

    gate: dict[str, Any] = {"on_deadline": "fail", "quorum": 2, "reject_quorum": 2}
    flow = gated("kept-and-acted-on", auto=while_it_holds, **gate)

    @flow.node(effect="external", idempotent=True, authority="propose")
    def pay(state: Any, ctx: Any) -> None:
        calls.append("paid")

    flow.edge("finish", "pay")
    flow.edge("pay", END)
    run = advanced(flow)
    sign(run, rita, ["approve", "reject"])
    let_come(run)
    runs.advance(run.id)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    request = ApprovalRequest.objects.get(run=run, status="open")
    assert (request.policy["kept"], "auto" in request.policy) == ([0], False)
    ravi = run_actions.reviewer(people.second_reviewer)
    for person in (rita, ravi):
        sign(run, person, [None, "approve"])
    lowered.append(True)
    run = runs.advance(run.id)
    assert (run.status, calls) == ("paused", [])
    renewal = ApprovalRequest.objects.get(run=run, kind="authority")
    assert "the limit was lowered" in str(read_value(renewal, "why"))
