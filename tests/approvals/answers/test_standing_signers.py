"""A standing policy signs within its limits, as itself, and people beat it."""

import base64
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from approvals import exported_receipt, reviews
from approvals.answers.standing_signers import (
    BEYOND,
    BY_MAKER,
    StandingSigners,
    signer_of,
)
from approvals.exported_receipt import export_receipt
from approvals.gates.request_state import load_states
from approvals.models import ApprovalRequest, Decision, StandingPolicy
from approvals.policies_in_force import take_uses
from checkpoints import bundle, lines
from checkpoints.bundle.receipt_verifier import verify_receipt
from checkpoints.bundle.verifier import verify
from checkpoints.models import AuditLine, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import PLAIN, seal_again
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import cast, run_actions
from tests.support.bundles import exported, forgotten, loaded
from tests.support.cast import UserFactory
from tests.support.run_actions import sign, sign_open
from tests.support.small_graphs import advanced, registered, slice_of
from tests.support.standing_policies import permitting, policy_of, uses, waiting
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> Any:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def reto(people: cast.People) -> Any:
    return run_actions.reviewer(people.steward)


def verdicts(run: Run) -> list[tuple[str, str]]:
    rows = Decision.objects.filter(run=run.id).order_by("event_seq")
    return [(row.signer_name, row.verdict) for row in rows]


def reason_of(run: Run) -> str:
    row = Decision.objects.get(run=run.id, verdict="no_auto")
    return str(read_value(row, "reason"))


def test_what_is_within_its_limits_passes_without_people(rita: Any) -> None:
    first = waiting()
    assert reason_of(first) == "no standing policy is in force that may sign it"
    policy = policy_of(first, rita)
    run = advanced(permitting())
    assert run.status == "completed"
    assert verdicts(run) == [(f"policy 1 of {rita.username}", "approve")]
    decision = Decision.objects.get(run=run.id)
    assert (decision.by, decision.receipt, decision.delegator) == (None, None, rita)
    assert decision.standing["id"] == str(policy.id)
    assert decision.standing["limits"] == {"total": {"value": "10"}}
    assert decision.standing["ends"] == policy.ends_at.isoformat()
    assert uses([policy]) == [1]
    assert verify_run(run.id) == []
    # What waited before it was made stays with people.
    assert runs.advance(first.id).status == "paused"


def test_the_audit_log_says_who_made_it_and_each_use(rita: Any) -> None:
    policy = policy_of(waiting(), rita)
    run = advanced(permitting())
    made = AuditLine.objects.get(kind="standing_policy_made")
    assert (made.actor, made.graph) == (rita, "permitting")
    assert made.facts["policy"] == str(policy.id)
    used = AuditLine.objects.get(kind="standing_policy_used")
    assert (used.actor, used.run, used.facts["uses"]) == (None, run.id, 1)


@pytest.mark.parametrize("total", [11, -1])
def test_what_is_beyond_its_limits_is_left_to_people(rita: Any, total: Any) -> None:
    policy = policy_of(waiting(), rita)
    run = advanced(permitting(total=total))
    assert run.status == "paused"
    # All who see the run read it, and learn neither whose limit it is nor how high.
    assert reason_of(run) == BEYOND
    assert uses([policy]) == [0]
    sign_open(run, rita, "approve")
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


def test_without_a_number_at_the_path_it_signs_nothing(rita: Any) -> None:
    policy_of(waiting(), rita, limits={"total": {"amount": 10}})
    run = advanced(permitting())
    assert reason_of(run) == BEYOND


def test_it_signs_so_often_and_no_more(rita: Any) -> None:
    policy = policy_of(waiting(), rita, most_uses=2)
    statuses = [advanced(permitting()).status for _ in range(3)]
    assert statuses == ["completed", "completed", "paused"]
    assert uses([policy]) == [2]


def test_before_it_begins_after_it_ends_and_once_revoked_it_signs_nothing(
    rita: Any,
) -> None:
    now = timezone.now()
    first = waiting()
    policy_of(first, rita, begins=now + timedelta(hours=1))
    over = policy_of(first, rita)
    over.save(update_fields=seal_again(over, PLAIN, ends_at=now - timedelta(minutes=1)))
    revoked = policy_of(first, rita)
    reviews.revoke_standing_policy(revoked.id, by=rita)
    assert advanced(permitting()).status == "paused"


def test_the_right_of_its_maker_is_judged_at_each_use(rita: Any) -> None:
    policy_of(waiting(), rita)
    assert advanced(permitting()).status == "completed"
    rita.groups.clear()
    run = advanced(permitting())
    assert run.status == "paused"
    run_actions.reviewer(rita)
    rita.is_active = False
    rita.save()
    assert advanced(permitting()).status == "paused"


def test_who_made_it_and_it_count_once(rita: Any, reto: Any) -> None:
    policy_of(waiting(), rita)
    run = advanced(permitting(quorum=2))
    assert run.status == "paused"
    sign(run, rita, ["approve"])
    assert runs.advance(run.id).status == "paused", "it is her right alone"
    sign(run, reto, ["approve"])
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


def test_who_decides_for_its_maker_beats_it(rita: Any) -> None:
    ben = UserFactory.create(username="ben")
    policy_of(waiting(), rita)
    ends = timezone.now() + timedelta(days=1)
    reviews.delegate(to=ben, ends=ends, by=rita)
    run = advanced(permitting(quorum=2))
    sign(run, ben, ["reject"])
    assert runs.advance(run.id).status == "rejected"
    assert verify_run(run.id) == []


def test_two_policies_count_as_one(rita: Any, reto: Any) -> None:
    first = waiting()
    pair = [policy_of(first, rita), policy_of(first, reto)]
    run = advanced(permitting(quorum=2))
    assert run.status == "paused"
    assert uses(pair) == [1, 0]


def test_the_rejection_of_a_person_beats_it(rita: Any, reto: Any) -> None:
    policy_of(waiting(), rita)
    run = advanced(permitting(quorum=2, reject_quorum=2))
    sign(run, reto, ["reject"])
    sign(run, rita, ["approve"])
    assert runs.advance(run.id).status == "paused"
    assert verify_run(run.id) == []


def test_it_does_not_sign_beside_the_edit_of_its_maker(rita: Any, reto: Any) -> None:
    policy = policy_of(waiting(), rita)
    run = advanced(permitting(total=11, quorum=2))
    sign(run, rita, [("edit", 7)])
    run = runs.advance(run.id)
    assert run.status == "paused"
    assert uses([policy]) == [0]
    # What another person edits is proposed anew, and within its limits.
    sign(run, reto, [("edit", 8)])
    run = runs.advance(run.id)
    assert (run.status, uses([policy])) == ("completed", [1])
    assert verify_run(run.id) == []


def test_four_eyes_exclude_the_maker_who_started_the_run(rita: Any) -> None:
    policy = policy_of(waiting(quorum=2, four_eyes=True), rita)
    run = runs.advance(runs.start("permitting", {}, by=rita).id)
    assert run.status == "paused"
    assert uses([policy]) == [0]


def test_who_went_back_is_asked_themselves(rita: Any, reto: Any) -> None:
    policy = policy_of(waiting(), rita)
    run = advanced(permitting())
    start = run.checkpoints.order_by("seq").first()
    fork = runs.advance(runs.fork(start, by=reto).id)
    assert fork.status == "paused"
    assert "none repeats that" in reason_of(fork)
    assert uses([policy]) == [1]
    sign_open(fork, rita, "approve")
    assert verify_run(fork.id) == []


def test_forks_of_one_point_together_never_pass_its_uses(rita: Any, reto: Any) -> None:
    first = waiting()
    policy = policy_of(first, rita, most_uses=1)
    start = first.checkpoints.order_by("seq").first()
    forks = [runs.fork(start, by=reto) for _ in range(2)]
    ended = [runs.advance(fork.id).status for fork in forks]
    assert ended == ["completed", "paused"]
    assert uses([policy]) == [1]


def test_nothing_begins_on_a_policy_that_was_revoked(rita: Any) -> None:
    paid: list[Any] = []
    policy = policy_of(waiting(), rita)
    turns = iter([False, False, False])
    run = runs.start(registered(permitting(paid=paid)).name, {})
    run = slice_of(run, draining=lambda: next(turns, True))
    assert verdicts(run)[0][1] == "approve"
    reviews.revoke_standing_policy(policy.id, by=rita)
    run = runs.advance(run.id)
    assert (run.status, paid) == ("paused", [])
    renewal = ApprovalRequest.objects.get(run=run.id, kind="authority")
    why = str(read_value(renewal, "why"))
    assert f"policy 1 of {rita.username}'s signature does not count" in why
    assert "standing" not in renewal.policy
    sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    assert (run.status, paid) == ("completed", [4])
    assert verify_run(run.id) == []


def test_a_deployment_that_forbids_it_leaves_it_to_people(rita: Any, reto: Any) -> None:
    policy = policy_of(waiting(), rita)
    run = advanced(permitting(total=11, quorum=2))
    registered(permitting(total=11, quorum=2, standing=False))
    sign(run, reto, [("edit", 7)])
    run = runs.advance(run.id)
    assert run.status == "paused"
    assert uses([policy]) == [0]


def test_a_policy_that_was_changed_or_put_back_signs_nothing(rita: Any) -> None:
    first = waiting()
    changed = policy_of(first, rita)
    StandingPolicy.objects.filter(id=changed.id).update(
        limits={"total": {"value": "1000"}}
    )
    assert advanced(permitting(total=11)).status == "paused"

    before = policy_of(first, rita, most_uses=1)
    run = advanced(permitting())
    assert run.status == "completed"
    # The whole row of before, with its seal.
    before.save(force_update=True)
    assert advanced(permitting()).status == "paused"
    [fault] = verify_run(run.id)
    assert "standing policy that does not verify" in fault.reason


def test_a_verification_finds_a_policy_that_is_not_there(rita: Any) -> None:
    policy = policy_of(waiting(), rita)
    run = advanced(permitting())
    number = policy.id
    policy.delete()
    [fault] = verify_run(run.id)
    assert fault.reason.endswith(f"has no standing policy {number}")


def test_bundles_and_receipts_with_its_answers_verify(
    rita: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy_of(waiting(), rita)
    run = advanced(permitting())
    data = exported(run)
    key = bundle.public_key()
    verdict = verify(io.BytesIO(data), key)
    assert verdict.ok, verdict.reason
    decision = Decision.objects.get(run=run.id)
    receipt = export_receipt(decision.id)
    assert verify_receipt(receipt, key).ok
    assert b"standing" in base64.b64decode(json.loads(receipt)["payload"])
    # A house that signs another limit than its policy kept is found out.
    lower = {**decision.standing, "limits": {"total": {"value": "1"}}}
    monkeypatch.setattr(exported_receipt, "_standing", lambda row: {"standing": lower})
    verdict_on_other = verify_receipt(export_receipt(decision.id), key)
    assert "within the limits of its policy" in verdict_on_other.reason
    forgotten(run)
    imported = loaded(data)
    assert verify_run(imported.id) == []


@pytest.mark.parametrize("what", ["revoked", "no reviewer", "inactive", "used up"])
def test_what_is_lost_while_it_is_asked_signs_nothing(
    rita: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    run_of_another = waiting()
    policy = policy_of(run_of_another, rita, most_uses=1)
    read = StandingSigners.usable_for
    calls: list[str] = []

    def lost_meanwhile(
        signers: StandingSigners, request: ApprovalRequest
    ) -> list[StandingPolicy]:
        usable = read(signers, request)
        calls.append(what)
        if len(calls) > 1:
            return usable
        if what == "revoked":
            reviews.revoke_standing_policy(policy.id, by=rita)
        elif what == "no reviewer":
            rita.groups.clear()
        elif what == "inactive":
            type(rita).objects.filter(pk=rita.pk).update(is_active=False)
        else:
            with transaction.atomic():
                take_uses({policy.id: 1}, run=run_of_another.id)
        return usable

    monkeypatch.setattr(StandingSigners, "usable_for", lost_meanwhile)
    run = advanced(permitting())
    assert len(calls) == 2, "it is looked at anew"
    assert run.status == "paused"
    assert not Decision.objects.filter(run=run.id, verdict="approve").exists()
    assert uses([policy]) == [1 if what == "used up" else 0]
    assert verify_run(run.id) == []


def test_it_does_not_sign_the_edit_of_its_maker_after_the_base_has_moved(
    rita: Any,
) -> None:
    policy = policy_of(waiting(quorum=2, four_eyes=True), rita)
    run = advanced(permitting(quorum=2, four_eyes=True))
    [state] = load_states([ApprovalRequest.objects.get(run=run.id)], PLAIN)
    [row] = state.writes
    row.revision += 1
    assert signer_of(state, row, [policy], {}) == (policy, "")
    # Such a revision keeps its author, and nobody has decided it yet.
    row.author_id = rita.pk
    assert signer_of(state, row, [policy], {}) == (None, BY_MAKER)


def test_many_requests_at_once_read_policies_and_people_once(rita: Any) -> None:
    policy = policy_of(waiting(quorum=2, four_eyes=True), rita)
    run = advanced(permitting(quorum=2, four_eyes=True))
    [state] = load_states([ApprovalRequest.objects.get(run=run.id)], PLAIN)

    def sent(requests: int) -> int:
        with counted() as statements:
            signers = StandingSigners(
                [state] * requests, lambda: lines.past(run.id, run.line)
            )
            for _ in range(requests):
                assert signers.usable_for(state.request) == [policy]
                assert not signers.was_signed_elsewhere(state)
        return len(statements)

    sent(1)
    assert sent(1) == sent(20)


def test_a_channel_that_its_maker_did_not_name_is_left_to_people(rita: Any) -> None:
    policy = policy_of(waiting(), rita, limits={"note": {"value": 10}})
    run = advanced(permitting())
    assert (run.status, reason_of(run)) == ("paused", BEYOND)
    assert uses([policy]) == [0]
