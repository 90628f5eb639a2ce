"""Gates on the database: what is held, what a signature does, and that nothing goes
round.
"""

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from approvals import reviews
from approvals.models import Decision
from checkpoints.core.status import Status
from checkpoints.models import AuditLine, PendingWrite, Run
from checkpoints.queue import leases
from checkpoints.sealing.sealed_columns import pack_json, unpack_json
from orchestrator import runs
from orchestrator.engine.errors import (
    AlreadyDecided,
    InvalidValue,
    KeyConflict,
    NotAReviewer,
    StaleProposal,
    UnknownThing,
    WrongStatus,
)
from orchestrator.execution import loop
from tests.graphs_app import graphs
from tests.support import cast, run_actions
from tests.support.processes import calls
from tests.support.run_actions import log, pending, sign, sources, start, state

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def test_a_gate_pauses_the_run_and_holds_its_writes(tmp_path: Path, rita: User) -> None:
    run = start("gated", tmp_path)
    assert run.status == Status.PAUSED
    assert run.lease_until is None
    assert [row.label for row in pending(run)] == [
        "the payout",
        "the letter",
        "a note",
        "another note",
    ]
    assert state(run) == {
        "notes": [],
        "total": 0,
        "payout": None,
        "letter": "",
        "paid": "",
        "sent": "",
    }
    assert log(run)[-2:] == ["request_opened", "run_paused"]


def test_each_write_is_decided_on_its_own_and_the_settlement_applies_exactly_that(
    tmp_path: Path, rita: User
) -> None:
    run = start("gated", tmp_path)
    sign(run, rita, ["approve", ("edit", "Dear Marta"), "reject", "approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["payout"] == {"amount": "10"}
    assert state(run)["letter"] == "Dear Marta"
    assert state(run)["notes"] == ["second"]
    assert len(calls(tmp_path, "released")) == 1
    assert sources(run) == ["input", "superstep", "settlement", "superstep"]


def test_decisions_keep_what_was_old_proposed_and_final(
    tmp_path: Path, rita: User
) -> None:
    run = start("gated", tmp_path)
    sign(run, rita, ["approve", ("edit", "Dear Marta"), "reject", "approve"])
    letter = Decision.objects.get(run=run.id, channel="letter")
    assert unpack_json(letter.old_value) == ""
    assert unpack_json(letter.proposed_value) == "Dear customer"
    assert unpack_json(letter.final_value) == "Dear Marta"
    assert letter.by_name == rita.username
    rejected = Decision.objects.get(run=run.id, verdict="reject")
    assert bytes(rejected.final_value) == b""


@pytest.mark.parametrize(
    ("verdicts", "notes", "released"),
    [
        (["approve"] * 4, ["first", "second"], 1),
        (["reject"] * 4, ["refused"], 0),
        (["reject", "reject", "reject", "approve"], ["second"], 1),
    ],
)
def test_the_outcome_takes_the_edge_that_is_labelled_with_it(
    verdicts: list[str], notes: list[str], released: int, tmp_path: Path, rita: User
) -> None:
    run = start("gated", tmp_path)
    sign(run, rita, verdicts)
    run = runs.advance(run.id)
    assert state(run)["notes"] == notes
    assert len(calls(tmp_path, "released")) == released


def test_a_run_stays_paused_until_the_last_write_is_decided(
    tmp_path: Path, rita: User
) -> None:
    run = start("gated", tmp_path)
    sign(run, rita, ["approve", None, "approve", "approve"])
    assert runs.advance(run.id).status == Status.PAUSED
    assert state(run)["payout"] is None
    sign(run, rita, [None, "approve", None, None])
    assert runs.advance(run.id).status == Status.COMPLETED


def test_no_way_of_resuming_takes_an_undecided_run_past_its_gate(
    tmp_path: Path, people: cast.People
) -> None:
    run = runs.start("gated", {"folder": str(tmp_path)}, key="K", by=people.starter)
    run = runs.advance(run.id)
    with pytest.raises(WrongStatus):
        runs.resume(run.id, by=people.steward)
    runs.start(
        "gated",
        {"folder": str(tmp_path)},
        key="K",
        by=people.starter,
        resume_failed=True,
    )
    runs.advance(run.id)
    # Even a queued row, as a wake too many would make it, comes to rest at the gate
    # again.
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    claim = leases.claim_one(run.id)
    assert claim is not None
    loop.run_slice(claim.id, claim.epoch)
    run.refresh_from_db()
    assert run.status == Status.PAUSED
    assert not calls(tmp_path)


def test_a_decision_on_another_hash_is_stale_and_nothing_is_signed(
    tmp_path: Path, rita: User
) -> None:
    run = start("gated", tmp_path)
    row = pending(run)[0]
    with pytest.raises(StaleProposal) as refused:
        reviews.sign(
            run.id,
            [{"write": str(row.write), "hash": "0" * 64, "verdict": "approve"}],
            by=rita,
        )
    assert refused.value.facts["moved"] == [str(row.write)]
    assert not Decision.objects.exists()


def test_deciding_a_settled_write_again_names_who_settled_it(
    tmp_path: Path, rita: User, people: cast.People
) -> None:
    run = start("gated", tmp_path)
    sign(run, rita, ["approve", None, None, None])
    other = run_actions.reviewer(people.second_reviewer)
    with pytest.raises(AlreadyDecided) as refused:
        sign(run, other, ["reject", None, None, None])
    assert refused.value.facts["by"] == [rita.username]
    assert Decision.objects.count() == 1


def test_who_is_no_reviewer_decides_nothing_and_leaves_an_audit_line(
    tmp_path: Path, people: cast.People
) -> None:
    run = start("gated", tmp_path)
    with pytest.raises(NotAReviewer):
        sign(run, people.reviewer, ["approve"] * 4)
    assert not Decision.objects.exists()
    assert AuditLine.objects.get().actor == people.reviewer


@pytest.mark.parametrize("value", [17, {"a": 1}, None, ["x"]])
def test_an_edit_of_the_wrong_type_is_refused_by_name_and_changes_nothing(
    value: object, tmp_path: Path, rita: User
) -> None:
    run = start("gated", tmp_path)
    row = pending(run)[1]
    before = run.event_seq
    with pytest.raises(InvalidValue) as refused:
        sign(run, rita, ["approve", ("edit", value), None, None])
    assert refused.value.facts["write"] == str(row.write)
    run.refresh_from_db()
    assert run.event_seq == before
    assert not Decision.objects.exists()


@pytest.mark.parametrize(
    ("decision", "error"),
    [
        ({"verdict": "perhaps"}, InvalidValue),
        ({"hash": ""}, InvalidValue),
        ({"verdict": "edit"}, InvalidValue),
        ({"surprise": 1}, InvalidValue),
        ({"reason": 7}, InvalidValue),
        ({"write": "0199a1c2-0000-7000-8000-000000000000"}, UnknownThing),
        ({"write": "nonsense"}, UnknownThing),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(
    decision: dict[str, object], error: type[Exception], tmp_path: Path, rita: User
) -> None:
    run = start("gated", tmp_path)
    row = pending(run)[0]
    item = {"write": str(row.write), "hash": row.hash, "verdict": "approve", **decision}
    with pytest.raises(error):
        reviews.sign(run.id, [item], by=rita)
    assert not Decision.objects.exists()


def test_the_same_key_gives_the_same_receipt_and_another_body_is_a_conflict(
    tmp_path: Path, rita: User
) -> None:
    run = start("gated", tmp_path)
    first, second = pending(run)[:2]
    items = [{"write": str(first.write), "hash": first.hash, "verdict": "approve"}]
    other = [{"write": str(second.write), "hash": second.hash, "verdict": "approve"}]
    receipt = reviews.sign(run.id, items, by=rita, idempotency_key="click")
    assert (
        reviews.sign(run.id, items, by=rita, idempotency_key="click").id == receipt.id
    )
    with pytest.raises(KeyConflict):
        reviews.sign(run.id, other, by=rita, idempotency_key="click")
    assert Decision.objects.count() == 1


def test_a_moved_base_makes_a_new_revision_and_the_signature_comes_back(
    tmp_path: Path, rita: User
) -> None:
    run = start("beside", tmp_path)
    assert run.status == Status.PAUSED
    bound, free = pending(run)
    assert bound.channel == "letter"
    assert bound.revision == 2
    assert bound.reason == "rebase"
    assert free.channel == "notes", "an append is not bound to the list that it joins"
    assert free.revision == 1, "an append is not bound to the list that it joins"
    old = PendingWrite.objects.get(write=bound.write, revision=1)
    with pytest.raises(StaleProposal):
        reviews.sign(
            run.id,
            [{"write": str(old.write), "hash": old.hash, "verdict": "approve"}],
            by=rita,
        )
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == "proposed"
    assert state(run)["notes"][-2:] == ["from the gate", "after the gate"]


def test_a_gate_settled_between_supersteps_of_a_branch_beside_it_is_applied_before_the_next_one(
    tmp_path: Path, rita: User
) -> None:
    run = runs.start("beside", {"folder": str(tmp_path)})
    claim = leases.claim_one(run.id)
    assert claim is not None
    loop.run_slice(claim.id, claim.epoch, draining=_after(1))
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert sources(run)[:3] == ["input", "superstep", "settlement"]
    assert state(run)["letter"] == "moved by a branch"


def test_a_decision_signed_during_a_branch_comes_back_if_the_branch_moves_its_base(
    tmp_path: Path, rita: User
) -> None:
    run = runs.start("beside", {"folder": str(tmp_path)})
    during = {"rewrite": lambda: sign(run, rita, ["approve", "approve"])}
    with graphs.hooked(during):
        run = runs.advance(run.id)
    assert run.status == Status.PAUSED, (
        "the letter came back: its base moved while it was signed"
    )
    assert [row.revision for row in pending(run)] == [2, 1]
    assert state(run)["letter"] == "moved by a branch"
    sign(run, rita, ["approve", None])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == "proposed"
    assert state(run)["notes"][-2:] == ["from the gate", "after the gate"]


def test_a_decision_signed_during_a_branch_that_moves_no_base_is_applied_by_its_worker(
    tmp_path: Path, rita: User
) -> None:
    run = runs.start("beside", {"folder": str(tmp_path)})
    with graphs.hooked(
        {"move": lambda: sign(run, rita, ["approve", "approve"])}, times=1, from_visit=2
    ):
        claim = leases.claim_one(run.id)
        assert claim is not None
        loop.run_slice(claim.id, claim.epoch)
    run.refresh_from_db()
    assert run.status == Status.COMPLETED
    assert "settlement" in sources(run)
    assert run.epoch == 2, "claimed once and begun once"


def _after(looks: int) -> object:
    """A worker that is asked to drain after so many looks."""
    seen = iter(range(10_000))
    return lambda: next(seen) >= looks


def test_a_row_changed_after_it_was_shown_is_refused_and_makes_a_signed_run_tampered(
    tmp_path: Path, rita: User
) -> None:
    run = start("gated", tmp_path)
    sign(run, rita, ["approve"] * 4)
    row = pending(run)[0]
    PendingWrite.objects.filter(id=row.id).update(value=pack_json({"amount": "9999"}))
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert not calls(tmp_path)
    with pytest.raises(WrongStatus):
        sign(run, rita, ["approve"] * 4)
