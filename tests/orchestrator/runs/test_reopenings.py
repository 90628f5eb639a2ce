"""A steward re-opens an open request under the policy that its graph has now."""

import json
from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone
from pydantic import BaseModel

from approvals import deadlines, folders
from approvals.drafts import DraftChoice, save_drafts
from approvals.exported_receipt import export_receipt
from approvals.gates.request_state import why_of
from approvals.models import ApprovalRequest, Decision, Draft, RequestStatus
from checkpoints.models import AuditLine, Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Show, Write, registry
from orchestrator.engine.errors import (
    CountersignError,
    Forbidden,
    IncompatibleGraph,
    InvalidValue,
    NotAReviewer,
    StaleProposal,
    WrongStatus,
)
from orchestrator.runs.reopenings import changes_of_reopening, reopen
from tests.support import cast, notices, run_actions, secret_claim
from tests.support.bundles import PUBLIC, exported, forgotten, loaded
from tests.support.chain import join_in_a_row
from tests.support.deadlines import HOUR, gated, let_come, paused_run
from tests.support.reopening import reopen_between_reads
from tests.support.run_actions import (
    event_payloads,
    log,
    pending,
    sign,
    sign_open,
    state,
)
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)
WHY = "the rules are stricter now"


@pytest.fixture
def rita(people: cast.People) -> Any:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def ravi(people: cast.People) -> Any:
    return run_actions.reviewer(people.second_reviewer)


def waiting_run(**gate: Any) -> Run:
    """A run that waits under one signature; its graph asks for two by now."""
    run = paused_run(**{"deadline": None, "reviewers": ["group:claims"], **gate})
    deploy(quorum=2)
    return run


def deploy(**gate: Any) -> None:
    """Register the graph with another gate."""
    options = {"deadline": None, "reviewers": ["group:claims"], **gate}
    registry.replace(gated("with-deadline", **options))


def open_request(run: Run) -> ApprovalRequest:
    return ApprovalRequest.objects.select_related("run").get(run=run, status="open")


def test_it_is_asked_anew_under_the_new_policy_and_old_signatures_do_not_count(
    rita: Any, ravi: Any, people: cast.People
) -> None:
    run = waiting_run()
    sign(run, rita, ["approve", None])
    old = open_request(run)
    opened = reopen(old.id, by=people.steward, reason=WHY)
    assert verify_run(run.id) == []
    old.refresh_from_db()
    assert (old.status, old.quorum) == (RequestStatus.WITHDRAWN, 1)
    assert open_request(run).id == opened.id
    assert (opened.quorum, opened.ordinal) == (2, 1)
    assert [row.revision for row in pending(run)] == [2, 2]
    assert Decision.objects.filter(request=old).count() == 1

    sign(run, rita, ["approve", "approve"])
    assert open_request(run).id == opened.id
    sign(run, ravi, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert state(run)["letter"] == "Dear Marta"
    assert verify_run(run.id) == []


def test_what_was_on_the_screen_before_is_stale(rita: Any, people: cast.People) -> None:
    run = waiting_run()
    items = [
        {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
        for row in pending(run)
    ]
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    with pytest.raises(StaleProposal):
        run_actions.reviews.sign(run.id, items, by=rita)
    assert not Decision.objects.filter(run=run.id).exists()


def test_an_edit_is_put_back_to_what_the_node_proposed(
    rita: Any, ravi: Any, people: cast.People
) -> None:
    run = waiting_run(quorum=3)
    sign(run, rita, [("edit", "Dear Mallory"), "approve"])
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    for person in (rita, ravi):
        sign(run, person, ["approve", "approve"])
    assert state(runs.advance(run.id))["letter"] == "Dear Marta"
    assert verify_run(run.id) == []


def test_other_reviewers_are_asked_and_the_others_no_more(
    rita: Any, people: cast.People
) -> None:
    run = waiting_run()
    deploy(reviewers=["user:ravi"])
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    with pytest.raises(NotAReviewer):
        sign(run, rita, ["approve", "approve"])
    sign(run, people.second_reviewer, ["approve", "approve"])
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


def test_its_deadline_and_tiers_begin_anew(people: cast.People) -> None:
    run = waiting_run()
    deploy(deadline=2 * HOUR, tiers=[(HOUR, "remind", None)])
    opened = reopen(open_request(run).id, by=people.steward, reason=WHY)
    assert opened.deadline is not None
    assert opened.tier_at == opened.deadline - HOUR
    assert verify_run(run.id) == []
    let_come(run)
    assert deadlines.meet_deadline(run.id, opened.id)
    assert runs.advance(run.id).status == "rejected"
    assert verify_run(run.id) == []


def test_it_is_in_log_and_audit_with_who_and_why_and_signers_hear_of_it(
    rita: Any, people: cast.People
) -> None:
    run = waiting_run()
    sign(run, rita, ["approve", None])
    old = open_request(run)
    opened = reopen(old.id, by=people.steward, reason=WHY)
    assert log(run)[-3:] == ["request_reopened", "request_withdrawn", "request_opened"]
    facts = {"request": str(old.id), "opened": str(opened.id), "reason": WHY}
    assert event_payloads(run, "request_reopened") == [facts]
    line = AuditLine.objects.get(kind="request_reopened")
    assert (line.actor_name, line.request) == ("stella", old.id)
    assert line.facts["changed"] == ["quorum"]
    assert ("request.reopened", "") in notices.events()


def test_it_says_before_what_would_change(people: cast.People) -> None:
    run = waiting_run()
    deploy(quorum=2, four_eyes=True, reviewers=["group:claims", "group:leads"])
    changes = changes_of_reopening(open_request(run), at=timezone.now())
    assert changes == [
        "reviewers: group:claims became group:claims, group:leads",
        "signatures needed: 1 became 2",
        "four eyes: no became yes",
    ]
    assert log(run).count("request_opened") == 1


def test_drafts_of_it_are_gone(rita: Any, people: cast.People) -> None:
    run = waiting_run()
    [row, _] = pending(run)
    chosen = DraftChoice(
        write=str(row.write),
        revision=row.revision,
        hash=row.hash,
        verdict="approve",
        reason="",
        fields={},
    )
    assert save_drafts(rita, run, [chosen], number=1)
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    assert not Draft.objects.exists()

    # The request that was closed asked about the same writes.
    [row, _] = pending(run)
    chosen = replace(chosen, revision=row.revision, hash=row.hash)
    assert save_drafts(rita, run, [chosen], number=2)
    assert [*folders.drafted_by(rita)] == [open_request(run)]
    assert save_drafts(rita, run, [replace(chosen, verdict="")], number=3)
    assert not folders.drafted_by(rita).exists()


def test_only_stewards_may_and_only_with_a_reason(
    rita: Any, people: cast.People
) -> None:
    run = waiting_run()
    with pytest.raises(Forbidden):
        reopen(open_request(run).id, by=rita, reason=WHY)
    with pytest.raises(InvalidValue, match="say why"):
        reopen(open_request(run).id, by=people.steward, reason="  ")
    assert log(run).count("request_reopened") == 0
    assert AuditLine.objects.filter(kind="refused_right").count() == 1


def test_where_the_policy_asks_for_the_same_it_is_refused(people: cast.People) -> None:
    run = waiting_run()
    deploy()
    with pytest.raises(WrongStatus, match="asks for already"):
        reopen(open_request(run).id, by=people.steward, reason=WHY)


def test_a_policy_under_which_silence_approves_is_refused(people: cast.People) -> None:
    run = waiting_run()
    deploy(deadline=HOUR, on_deadline="approve")
    with pytest.raises((WrongStatus, IncompatibleGraph)):
        reopen(open_request(run).id, by=people.steward, reason=WHY)


def test_a_veto_that_the_version_of_the_run_lacks_is_refused(
    people: cast.People,
) -> None:
    run = waiting_run()
    deploy(quorum=2, veto=lambda state, proposal: False)
    with pytest.raises((WrongStatus, IncompatibleGraph)):
        reopen(open_request(run).id, by=people.steward, reason=WHY)


def test_where_the_gate_or_the_version_is_gone_it_is_refused(
    people: cast.People,
) -> None:
    run = waiting_run()
    flow: Graph = graph("with-deadline")

    @flow.node()
    def finish(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": ["finished"]}

    flow.edge(START, "finish")
    flow.edge("finish", END)
    registry.replace(flow)
    with pytest.raises((WrongStatus, IncompatibleGraph)):
        reopen(open_request(run).id, by=people.steward, reason=WHY)


def test_a_request_that_was_decided_is_not_re_opened(
    rita: Any, people: cast.People
) -> None:
    run = waiting_run()
    waiting_request = open_request(run)
    sign(run, rita, ["approve", "approve"])
    with pytest.raises(WrongStatus):
        reopen(waiting_request.id, by=people.steward, reason=WHY)


def test_what_asks_about_a_patch_is_not_re_opened(people: cast.People) -> None:
    run = paused_run(deadline=None, writes={"letter": Show()})
    fork = runs.fork(run.head, patch={"scratch": {"letter": "x"}}, by=people.steward)
    deploy(quorum=2, writes={"letter": Show()})
    request = ApprovalRequest.objects.get(run=fork, node="$patch")
    with pytest.raises(WrongStatus, match="about a patch"):
        reopen(request.id, by=people.steward, reason=WHY)


def test_twice_and_then_a_rewind_and_a_fork(
    rita: Any, ravi: Any, people: cast.People
) -> None:
    run = waiting_run()
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    deploy(quorum=1, four_eyes=True)
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    assert open_request(run).ordinal == 2
    assert verify_run(run.id) == []
    fork = runs.fork(run.head, by=people.steward)
    assert verify_run(fork.id) == []
    deploy()
    runs.rewind(run.id, run.head, by=people.steward)
    assert verify_run(run.id) == []
    sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert verify_run(run.id) == []


def test_a_run_that_waits_in_a_second_slice_goes_on_after_it(
    rita: Any, ravi: Any, people: cast.People
) -> None:
    run = waiting_run()
    Run.objects.filter(id=run.id).update(status="failed")
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    assert run.status == "paused"
    for person in (rita, ravi):
        sign(run, person, ["approve", "approve"])
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


def test_a_worker_that_reads_across_a_re_opening_goes_on(
    monkeypatch: pytest.MonkeyPatch, rita: Any, ravi: Any, people: cast.People
) -> None:
    run = waiting_run()
    Run.objects.filter(id=run.id).update(status="failed")
    runs.resume(run.id, by=people.steward)
    opened = reopen_between_reads(monkeypatch, run, by=people.steward)
    run = runs.advance(run.id)
    assert run.status == "paused", run.error_code
    assert [open_request(run)] == opened
    assert verify_run(run.id) == []
    for person in (rita, ravi):
        sign(run, person, ["approve", "approve"])
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


def test_a_verification_across_a_re_opening_finds_nothing(
    monkeypatch: pytest.MonkeyPatch, people: cast.People
) -> None:
    run = waiting_run()
    opened = reopen_between_reads(monkeypatch, run, by=people.steward)
    assert verify_run(run.id) == []
    assert len(opened) == 1


def expired_and_asked_again(run: Run, people: cast.People) -> Run:
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    runs.resume(run.id, by=people.steward)
    return runs.advance(run.id)


def test_what_it_made_void_does_not_count_again_after_a_deadline(
    rita: Any, ravi: Any, people: cast.People
) -> None:
    timed = {"deadline": HOUR, "on_deadline": "fail"}
    run = paused_run(reviewers=["group:claims"], **timed)
    sign(run, rita, ["reject", None])
    deploy(quorum=2, **timed)
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    for person in (rita, ravi):
        sign(run, person, ["approve", None])
    # It may pass again and again.
    for _ in range(2):
        run = expired_and_asked_again(run, people)
        assert run.status == "paused", run.error_code
        assert verify_run(run.id) == []
    waiting_request = open_request(run)
    assert (waiting_request.policy["kept"], waiting_request.policy["kept_since"]) == (
        [0],
        1,
    )
    for person in (rita, ravi):
        sign(run, person, [None, "approve"])
    run = runs.advance(run.id)
    assert (run.status, state(run)["letter"]) == ("completed", "Dear Marta")
    assert verify_run(run.id) == []


def test_a_process_of_an_older_version_re_opens_nothing(people: cast.People) -> None:
    run = waiting_run()
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    registry.clear()
    # The first version of this graph, as a process that was not restarted has it.
    deploy()
    with pytest.raises(IncompatibleGraph, match="not the newest"):
        reopen(open_request(run).id, by=people.steward, reason=WHY)
    assert open_request(run).quorum == 2


def test_it_keeps_the_reason_of_the_newest_re_opening_only(people: cast.People) -> None:
    run = waiting_run()
    for quorum in (2, 3, 4):
        deploy(quorum=quorum)
        opened = reopen(open_request(run).id, by=people.steward, reason=f"now {quorum}")
    assert why_of(opened) == "stella re-opened it under another policy: now 4"


def test_a_fork_does_not_repeat_why_it_was_re_opened(people: cast.People) -> None:
    run = waiting_run(needs_approval=lambda state, proposal: "it is much")
    for quorum in (2, 3):
        deploy(quorum=quorum, needs_approval=lambda state, proposal: "it is much")
        opened = reopen(open_request(run).id, by=people.steward, reason=WHY)
    assert (
        why_of(opened) == f"it is much. stella re-opened it under another policy: {WHY}"
    )
    run.refresh_from_db()
    fork = runs.advance(runs.fork(str(run.head), by=people.steward).id)
    assert why_of(open_request(fork)) == "it is much"
    assert verify_run(fork.id) == []


@pytest.mark.parametrize("status", ["closed", "cancelling"])
def test_a_closed_request_announces_no_changes(
    people: cast.People, status: str
) -> None:
    run = waiting_run()
    waiting_request = open_request(run)
    if status == "closed":
        ApprovalRequest.objects.filter(id=waiting_request.id).update(status="withdrawn")
    else:
        Run.objects.filter(id=run.id).update(cancel_at=timezone.now())
    request = ApprovalRequest.objects.select_related("run").get(id=waiting_request.id)
    with pytest.raises(WrongStatus, match="can be decided|left to decide"):
        changes_of_reopening(request, at=timezone.now())


def test_an_output_that_a_person_settled_is_refused_by_its_own_reason(
    people: cast.People,
) -> None:
    def settling(quorum: int) -> Graph:
        flow = graph("settled-output")
        gate = Gate(
            reviewers=["group:claims"], quorum=quorum, writes={"letter": Show()}
        )

        @flow.node(effect="human", gate=gate)
        def ask(state: Any, ctx: Any) -> dict[str, Any]:
            return {"letter": "Dear"}

        @flow.node(effect="external")
        def pay(state: Any, ctx: Any) -> None:
            raise RuntimeError("the line broke")

        join_in_a_row(flow, "ask", "pay")
        return flow

    run = advanced(settling(1))
    sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run.status == "unknown"
    runs.settle(
        run.id,
        "pay:1:0",
        happened=True,
        output={"letter": "Yours"},
        by=people.steward,
        reason="seen",
    )
    assert runs.advance(run.id).status == "paused"
    registry.replace(settling(2))
    with pytest.raises(WrongStatus, match="an output that a person gave"):
        reopen(open_request(run).id, by=people.steward, reason=WHY)


def test_the_old_request_put_back_decides_nothing(
    rita: Any, people: cast.People
) -> None:
    run = waiting_run()
    old = open_request(run)
    opened = reopen(old.id, by=people.steward, reason=WHY)
    ApprovalRequest.objects.filter(id=old.id).update(status="open")
    assert verify_run(run.id) != []
    ApprovalRequest.objects.filter(id=opened.id).update(status="withdrawn")
    assert verify_run(run.id) != []
    with pytest.raises(CountersignError):
        sign(run, rita, ["approve", "approve"])
    assert runs.advance(run.id).status != "completed"


def test_bundles_and_receipts_of_the_old_signatures_still_verify(
    configure: Any, rita: Any, ravi: Any, people: cast.People
) -> None:
    configure(**ONE_KEY, TRUSTED_KEYS={"north": PUBLIC.hex()})
    run = waiting_run()
    sign(run, rita, ["approve", None])
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    for person in (rita, ravi):
        sign(run, person, ["approve", "approve"])
    run = runs.advance(run.id)
    for row in Decision.objects.filter(run=run.id):
        assert json.loads(export_receipt(row.id))
    data = exported(run)
    forgotten(run)
    imported = loaded(data)
    assert verify_run(imported.id) == []


def test_a_call_is_asked_about_anew_with_what_was_prepared(
    rita: Any, ravi: Any, people: cast.People
) -> None:
    run = advanced(paying(quorum=1))
    registry.replace(paying(quorum=2))
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    assert verify_run(run.id) == []
    for person in (rita, ravi):
        sign(run, person, ["approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert state(run)["total"] == 4
    assert verify_run(run.id) == []


class Payment(BaseModel):
    amount: int = 4


def paying(*, quorum: int) -> Graph:
    """pay, which people approve before it runs."""
    flow = graph("paying-anew")

    def prepare(state: Any, ctx: Any) -> Payment:
        return Payment()

    @flow.node(
        effect="external",
        approve="call",
        args=Payment,
        prepare=prepare,
        gate=Gate(reviewers=["group:claims"], quorum=quorum),
    )
    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        return {"total": ctx.args.amount}

    flow.edge(START, "pay")
    flow.edge("pay", END, when=("approved", "partial", "rejected"))
    return flow


def branched(*, quorum: int, meanwhile: Any) -> Graph:
    """propose, which waits, and beside it two nodes; the second one lets something
    happen meanwhile.
    """
    flow = graph("branched-anew")
    gate = Gate(reviewers=["group:claims"], quorum=quorum)

    @flow.node(effect="human", gate=gate)
    def propose(state: Any, ctx: Any) -> list[Write]:
        return [Write("letter", "Dear Marta")]

    @flow.node()
    def first(state: Any, ctx: Any) -> None:
        return None

    @flow.node()
    def second(state: Any, ctx: Any) -> dict[str, Any]:
        meanwhile()
        return {"notes": ["second"]}

    flow.edge(START, "propose")
    flow.edge(START, "first")
    flow.edge("first", "second")
    flow.edge("second", END)
    flow.edge("propose", END, when=("approved", "partial", "rejected"))
    return flow


def test_a_worker_that_has_the_run_meanwhile_commits_beside_it(
    rita: Any, ravi: Any, people: cast.People
) -> None:
    stella = people.steward
    done: list[Any] = []

    def meanwhile() -> None:
        if not done:
            registry.replace(branched(quorum=2, meanwhile=meanwhile))
            request = ApprovalRequest.objects.get(graph="branched-anew", status="open")
            done.append(reopen(request.id, by=stella, reason=WHY))

    run = advanced(branched(quorum=1, meanwhile=meanwhile))
    assert run.status == "paused"
    assert verify_run(run.id) == []
    assert open_request(run).id == done[0].id
    sign(run, rita, ["approve"])
    assert open_request(run).id == done[0].id
    sign(run, ravi, ["approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert state(run)["letter"] == "Dear Marta"
    assert verify_run(run.id) == []


def test_in_an_encrypted_run_the_reason_is_no_plain_text(
    settings: Any, rita: Any, people: cast.People
) -> None:
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, **secret_claim.keys()}

    def secret(quorum: int) -> Graph:
        flow = graph("secret-anew", encrypted=True)
        gate = Gate(reviewers=["group:claims"], quorum=quorum, title="{letter}?")

        @flow.node(effect="human", gate=gate)
        def propose(state: Any, ctx: Any) -> list[Write]:
            return [Write("letter", "SECRET-LETTER")]

        flow.edge(START, "propose")
        flow.edge("propose", END, when=("approved", "partial", "rejected"))
        return flow

    run = advanced(secret(1))
    registry.replace(secret(2))
    opened = reopen(open_request(run).id, by=people.steward, reason="SECRET-REASON")
    assert verify_run(run.id) == []
    row = ApprovalRequest.objects.filter(id=opened.id).values_list().get()
    assert b"SECRET" not in b"".join(
        bytes(v) for v in row if isinstance(v, bytes | memoryview)
    )
    line = AuditLine.objects.get(kind="request_reopened")
    assert "SECRET" not in str(line.facts)
    assert [row.label for row in pending(run)] == ["letter"]


def test_an_automatic_policy_of_the_new_gate_is_asked_by_a_worker(
    ravi: Any, people: cast.People
) -> None:
    run = waiting_run()
    deploy(quorum=2, auto=lambda state, proposal: True)
    reopen(open_request(run).id, by=people.steward, reason=WHY)
    run.refresh_from_db()
    assert run.status == "queued"
    run = runs.advance(run.id)
    assert run.status == "paused"
    assert verify_run(run.id) == []
    sign(run, ravi, ["approve", "approve"])
    runs.advance(run.id)
    assert verify_run(run.id) == []
