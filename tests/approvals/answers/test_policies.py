"""An automatic policy signs once for each revision, as itself; people beat it."""

import io
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.html import strip_tags
from pydantic import BaseModel

from approvals.exported_receipt import export_receipt
from approvals.gates import guarded_channels
from approvals.models import ApprovalRequest, Decision
from checkpoints import bundle
from checkpoints.bundle.receipt_verifier import verify_receipt
from checkpoints.bundle.verifier import verify
from checkpoints.lines import past
from checkpoints.models import AuditLine, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Show, registry
from orchestrator.runs import reopenings
from tests.support import cast, run_actions
from tests.support.bundles import exported, forgotten, loaded
from tests.support.deadlines import gated, let_come, work_off
from tests.support.question_graphs import asking
from tests.support.run_actions import pending, request, sign, sign_open, sources, state
from tests.support.small_graphs import advanced, graph, registered

pytestmark = pytest.mark.django_db(transaction=True)
POLICY = "the policy of propose"


@pytest.fixture
def rita(people: cast.People) -> Any:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def reto(people: cast.People) -> Any:
    return run_actions.reviewer(people.steward)


class Policy:
    """A policy that gives these answers in turn, the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def auto(self, state: Any, proposal: Any) -> Any:
        self.asked.append(dict(proposal))
        answer = self.answers[0]
        if len(self.answers) > 1:
            self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def asking_run(*answers: Any, **gate: Any) -> tuple[Run, Policy]:
    """A run at the gate of two writes, whose policy gives these answers."""
    policy = Policy(*answers)
    options = {"deadline": None, "auto": policy.auto, **gate}
    return advanced(gated("with-policy", **options)), policy


def verdicts(run: Run) -> list[tuple[str, str]]:
    rows = Decision.objects.filter(run=run.id, position=0).order_by("event_seq")
    return [(row.by_name, row.verdict) for row in rows]


def reasons(run: Run) -> set[str]:
    rows = Decision.objects.filter(run=run.id, verdict="no_auto")
    return {read_value(row, "reason") for row in rows}


def test_what_its_policy_signs_passes_without_people() -> None:
    run, policy = asking_run(True)
    assert run.status == "completed"
    assert policy.asked == [{"letter": "Dear Marta", "total": 4}]
    assert verdicts(run) == [(POLICY, "approve")]
    decision = Decision.objects.filter(run=run.id).first()
    assert decision is not None
    assert (decision.by, decision.receipt, decision.by_policy) == (None, None, True)
    assert decision.checked == {"reads": [], "policy": "Policy.auto"}
    assert sources(run) == ["input", "superstep", "settlement", "superstep"]
    assert verify_run(run.id) == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("above the limit", "above the limit"),
        (False, "its policy Policy.auto said False"),
        (None, "its policy Policy.auto said None"),
        (1, "its policy Policy.auto said int"),
        (ValueError("no list"), "its policy Policy.auto failed: ValueError: no list"),
    ],
)
def test_anything_but_true_leaves_it_to_people_and_is_shown(
    rita: Any, answer: Any, reason: str
) -> None:
    run, policy = asking_run(answer)
    assert run.status == "paused"
    assert reasons(run) == {reason}
    for _ in range(2):
        runs.advance(run.id)
    assert len(policy.asked) == 1, "once per revision"
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert verify_run(run.id) == []


def test_it_counts_as_one(rita: Any) -> None:
    run, policy = asking_run(True, quorum=2)
    assert run.status == "paused"
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert len(policy.asked) == 1
    assert verify_run(run.id) == []


def test_the_rejection_of_a_person_beats_it(rita: Any, reto: Any) -> None:
    run, _ = asking_run(True, quorum=2, reject_quorum=2)
    sign(run, rita, ["reject", "reject"])
    sign(run, reto, ["approve", "approve"])
    assert runs.advance(run.id).status == "paused", "one person and no policy"
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert verify_run(run.id) == []


def test_it_does_not_sign_what_a_person_has_rejected(rita: Any) -> None:
    run, policy = asking_run("no", True, reject_quorum=2, quorum=2)
    sign(run, rita, ["reject", ("edit", 5)])
    run = runs.advance(run.id)
    # The edit of one write is asked about, the rejected one was asked about before.
    rows = Decision.objects.filter(run=run.id, verdict="approve", by=None)
    assert [(row.position, row.revision) for row in rows] == [(1, 2)]
    assert state(run)["total"] == 0


def moved_after(rita: Any, verdicts: list[str], **gate: Any) -> Run:
    """A run whose letter was decided by her before another gate changes what it replaces;
    its policy says no first, and yes to what comes back.
    """
    policy = Policy("no", True)
    flow = gated("moved-policy", deadline=None, auto=policy.auto, **gate)

    @flow.node(effect="human", gate=Gate(reviewers=["group:claims"]))
    def replace(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "Dear Ada"}

    flow.edge(START, "replace")
    flow.edge("replace", END)
    run = advanced(flow)
    for verdict in verdicts:
        sign(run, rita, [verdict, None, None])
    sign(run, rita, [None, None, "approve"])
    return runs.advance(run.id)


def test_a_rejection_holds_though_what_it_replaces_has_moved(rita: Any) -> None:
    run = moved_after(rita, ["reject"], reject_quorum=2)
    assert [row.revision for row in pending(run)][0] == 2
    assert verdicts(run)[-1] == (POLICY, "no_auto")
    assert "a person has rejected this" in reasons(run)
    assert state(run)["letter"] == "Dear Ada"
    assert verify_run(run.id) == []


def test_a_rejection_that_was_taken_back_does_not_hold(rita: Any) -> None:
    run = moved_after(rita, ["reject", "approve"], quorum=2, reject_quorum=2)
    assert verdicts(run)[-1] == (POLICY, "approve")
    assert verify_run(run.id) == []


def test_a_rejection_holds_though_the_edit_of_another_write_changes_its_texts(
    rita: Any, reto: Any
) -> None:
    run, _ = asking_run("no", True, reject_quorum=2, title="Send {letter}?")
    sign(run, rita, [None, "reject"])
    sign(run, reto, [("edit", "Dear Ada"), None])
    run = runs.advance(run.id)
    assert run.status == "paused"
    assert [row.revision for row in pending(run)] == [2, 2]
    assert "a person has rejected this" in reasons(run)
    assert verify_run(run.id) == []


def test_an_edit_is_asked_about_anew_and_wakes_the_run(rita: Any) -> None:
    run, policy = asking_run("too much", True, quorum=2)
    sign(run, rita, [None, ("edit", 3)])
    run.refresh_from_db()
    assert run.status == "queued"
    run = runs.advance(run.id)
    assert policy.asked[1] == {"letter": "Dear Marta", "total": 3}
    assert run.status == "paused"
    sign(run, rita, ["reject", None])
    run = runs.advance(run.id)
    assert request(run).outcome == "partial"
    assert state(run)["total"] == 3
    assert verify_run(run.id) == []


def test_what_comes_back_is_asked_about_anew() -> None:
    policy = Policy("not on an empty letter", True)
    flow = graph("rebased-policy")

    @flow.node(
        effect="human",
        gate=Gate(reviewers=["group:claims"], shows=["letter"], auto=policy.auto),
    )
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": ["x"]}

    @flow.node()
    def first(state: Any, ctx: Any) -> None:
        pass

    @flow.node()
    def write(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "Dear Sir"}

    flow.edge(START, "propose")
    flow.edge("propose", END)
    flow.edge(START, "first")
    flow.edge("first", "write")
    flow.edge("write", END)
    run = advanced(flow)
    assert run.status == "completed"
    assert len(policy.asked) == 2
    assert verify_run(run.id) == []


def test_its_veto_has_the_last_word_and_leaves_it_to_people(rita: Any) -> None:
    run, policy = asking_run(
        True, veto=lambda state, proposal: bool(proposal.get("x", 1))
    )
    assert run.status == "paused"
    assert verdicts(run) == [(POLICY, "approve"), ("the veto", "veto")]
    assert len(policy.asked) == 1, "people decide now"
    sign(run, rita, ["reject", "reject"])
    assert runs.advance(run.id).status == "rejected"
    assert verify_run(run.id) == []


def test_where_nobody_is_needed_it_is_not_asked() -> None:
    run, policy = asking_run(True, needs_approval=lambda state, proposal: False)
    assert run.status == "completed"
    assert policy.asked == []


def test_it_signs_nothing_that_a_person_must_confirm() -> None:
    writes = {"total": Show(money="value"), "letter": Show(money="value")}
    run, _ = asking_run(True, confirm="password", confirm_above=10, writes=writes)
    assert run.status == "paused"
    assert "a person must confirm who they are to decide this" in reasons(run)
    assert verify_run(run.id) == []


def test_under_four_eyes_a_person_signs_beside_it(rita: Any) -> None:
    run, _ = asking_run(True, four_eyes=True, quorum=2)
    assert run.status == "paused"
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert verify_run(run.id) == []


def test_a_deadline_decides_what_it_left_open() -> None:
    run, _ = asking_run("no", deadline=timedelta(hours=1))
    let_come(run)
    work_off(run)
    run = runs.advance(run.id)
    assert run.status == "rejected"
    assert verify_run(run.id) == []


def test_what_it_read_is_guarded_from_then_on() -> None:
    def small(state: Any, proposal: Any) -> bool:
        return not state.notes

    run = advanced(gated("reading-policy", deadline=None, auto=small))
    assert run.status == "completed"
    compiled = registry.get("reading-policy")
    guards = guarded_channels.guards_of_each(past(run.id, 1), compiled, ["notes"])
    assert guards == {"notes": ("propose",)}


def test_nobody_makes_it_sign_by_a_value_that_they_set_themselves(
    people: cast.People,
) -> None:
    def with_note(state: Any, proposal: Any) -> Any:
        return True if state.notes else "there is no note"

    run = advanced(gated("patched-policy", deadline=None, auto=with_note))
    fork = runs.fork(run.head, patch={"scratch": {"notes": ["x"]}}, by=people.steward)
    fork = runs.advance(fork.id)
    assert fork.status == "paused"
    requests = ApprovalRequest.objects.filter(run=fork.id).order_by("node")
    # Nor does it sign the patch, which a person brought in.
    assert [("auto" in row.policy) for row in requests if row.node == "$patch"] == [
        False
    ]
    assert verdicts(fork) == [] or all(name != "approve" for _, name in verdicts(fork))


def test_a_fork_that_asks_again_asks_it_too(people: cast.People) -> None:
    run, policy = asking_run("no", True)
    fork = runs.fork(run.head, by=people.steward)
    fork = runs.advance(fork.id)
    assert fork.status == "completed"
    assert len(policy.asked) == 2
    assert verify_run(fork.id) == []


def test_a_deployment_that_removes_it_leaves_it_to_people(rita: Any) -> None:
    run, _ = asking_run("no", quorum=2)
    registered(gated("with-policy", deadline=None, quorum=2))
    sign(run, rita, ["approve", ("edit", 3)])
    run = runs.advance(run.id)
    assert run.status == "paused", run.error_code


def test_a_deployment_that_swaps_it_leaves_it_to_people(rita: Any) -> None:
    def another(state: Any, proposal: Any) -> bool:
        return True

    run, _ = asking_run("no", quorum=2)
    registered(gated("with-policy", deadline=None, quorum=2, auto=another))
    sign(run, rita, [None, ("edit", 3)])
    run = runs.advance(run.id)
    assert run.status == "paused", run.error_code
    assert any("has another policy now" in reason for reason in reasons(run))


def acting(policy: Any, calls: list[str]) -> Any:
    flow = graph("acting-on-policy")

    @flow.node(effect="human", gate=Gate(reviewers=["group:claims"], auto=policy))
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "Dear Marta"}

    @flow.node(effect="external", idempotent=True, authority="propose")
    def pay(state: Any, ctx: Any) -> None:
        calls.append("paid")

    flow.edge(START, "propose")
    flow.edge("propose", "pay")
    flow.edge("pay", END)
    return flow


def test_a_node_acts_on_its_yes_only_as_long_as_the_policy_holds(rita: Any) -> None:
    calls: list[str] = []
    policy = Policy(True, "the limit was lowered")
    run = advanced(acting(policy.auto, calls))
    assert (run.status, calls) == ("paused", [])
    renewal = ApprovalRequest.objects.get(run=run.id, kind="authority")
    assert "the limit was lowered" in str(read_value(renewal, "why"))
    assert "auto" not in renewal.policy
    sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    assert (run.status, calls) == ("completed", ["paid"])
    assert verify_run(run.id) == []


def test_a_node_acts_on_its_yes() -> None:
    calls: list[str] = []
    run = advanced(acting(Policy(True).auto, calls))
    assert (run.status, calls) == ("completed", ["paid"])


def test_a_call_that_it_approves_is_made() -> None:
    calls: list[int] = []
    flow = graph("policy-call")

    class Args(BaseModel):
        total: int

    @flow.node(
        effect="external",
        idempotent=True,
        approve="call",
        prepare=lambda state, ctx: Args(total=7),
        args=Args,
        gate=Gate(
            reviewers=["group:claims"],
            auto=lambda state, proposal: proposal.args.total < 10,
        ),
    )
    def pay(state: Any, ctx: Any) -> None:
        calls.append(ctx.args.total)

    flow.edge(START, "pay")
    flow.edge("pay", END)
    run = advanced(flow)
    assert (run.status, calls) == ("completed", [7])
    assert verify_run(run.id) == []


def test_pages_api_and_audit_log_name_it(people: cast.People) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run, _ = asking_run(True, quorum=2)
    browser = Client()
    browser.force_login(rita)
    page = browser.get(reverse("review", args=[run.id])).content.decode()
    assert "The policy of propose" in strip_tags(page)
    request_json = browser.get(f"/api/v1/requests/{request(run).id}/").json()
    [verdict] = request_json["writes"][0]["verdicts"]
    assert (verdict["by"], verdict["verdict"]) == (POLICY, "approve")
    [line] = AuditLine.objects.filter(run=run.id, kind="policy_asked")
    assert line.facts["verdicts"] == {"approve": 2}
    receipt = sign(run, rita, ["approve", "approve"])
    runs.advance(run.id)
    page = browser.get(reverse("receipt", args=[receipt.id])).content.decode()
    assert "The policy of the gate approved 2 writes at" in page
    page = browser.get(reverse("review", args=[run.id])).content.decode()
    assert "the policy of propose" in strip_tags(page).lower()
    assert browser.get(reverse("inbox") + "?folder=decided").status_code == 200


def test_a_review_shows_why_it_was_left_to_people(people: cast.People) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run, _ = asking_run("above <the> limit")
    browser = Client()
    browser.force_login(rita)
    page = browser.get(reverse("review", args=[run.id])).content.decode()
    assert "above &lt;the&gt; limit" in strip_tags(page)


def test_bundles_and_receipts_with_its_answers_verify(rita: Any) -> None:
    run, _ = asking_run("no", True, quorum=2)
    sign(run, rita, ["approve", ("edit", 5)])
    run = runs.advance(run.id)
    sign(run, rita, ["reject", None])
    run = runs.advance(run.id)
    data = exported(run)
    key = bundle.public_key()
    verdict = verify(io.BytesIO(data), key)
    assert verdict.ok, verdict.reason
    for decision in Decision.objects.filter(run=run.id):
        assert verify_receipt(export_receipt(decision.id), key).ok
    forgotten(run)
    imported = loaded(data)
    assert verify_run(imported.id) == []


def test_it_answers_no_question(rita: Any) -> None:
    policy = Policy(True)
    run = advanced(asking("policy-question", auto=policy.auto))
    assert run.status == "paused"
    assert policy.asked == [{"letter": "Dear"}]
    assert reasons(run) == {"only a person can answer this"}
    [row] = [row for row in pending(run) if row.channel == "total"]
    positions = [None, None]
    positions[row.position] = ("edit", 5)  # type: ignore[call-overload]
    sign(run, rita, positions)
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert state(run)["total"] == 5
    assert verify_run(run.id) == []


def test_a_review_that_is_re_opened_under_a_policy_asks_it(people: cast.People) -> None:
    run = advanced(gated("reopened-policy", deadline=None))
    registered(gated("reopened-policy", deadline=None, auto=Policy(True).auto))
    reopenings.reopen(request(run).id, by=people.steward, reason="a policy decides")
    run.refresh_from_db()
    assert run.status == "queued"


def test_a_policy_is_asked_about_an_answer(rita: Any) -> None:
    policy = Policy(True)
    run = advanced(asking(auto=policy.auto, quorum=2))
    sign(run, rita, ["approve", ("edit", 7)])
    run = runs.advance(run.id)
    assert policy.asked[-1] == {"letter": "Dear", "total": 7}
    assert (run.status, state(run)["notes"]) == ("completed", ["total 7"])
    assert verify_run(run.id) == []
