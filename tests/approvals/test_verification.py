"""Nobody signs, and nothing applies, what is not as it was written: writes, requests
and decisions.
"""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from approvals import reviews
from approvals.models import (
    ApprovalRequest,
    Decision,
    Receipt,
    RequestReviewer,
    RequestViewer,
)
from checkpoints.core.status import Status
from checkpoints.ledger import pending_writes
from checkpoints.models import AuditLine, PendingWrite, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import NotAReviewer, TamperedRow, WrongStatus
from tests.support import cast
from tests.support import sealed_graphs as graphs
from tests.support.forging import remove, tamper
from tests.support.processes import calls
from tests.support.question_graphs import asking
from tests.support.run_actions import pending, reviewer, sign, state
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def one_key(configure: Any) -> None:
    configure(**ONE_KEY)


@pytest.fixture
def rita(people: cast.People) -> User:
    return reviewer(people.reviewer)


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return graphs.started(tmp_path, encrypted=request.param)


def _write(run: Run) -> PendingWrite:
    return pending(run)[0]


def _kept(row: PendingWrite, column: str, value: Any) -> bytes:
    """A payload as an intruder writes it who knows the code, and even the key of the
    encryption.
    """
    run = Run.objects.get(id=row.run_id)
    return sealed_rows.encrypted(row, column, pack_json(value), protection_of(run))


def _value_and_hash(row: PendingWrite) -> None:
    tamper(row, value=_kept(row, "value", {"amount": "9999"}))
    row.refresh_from_db()
    tamper(row, hash=pending_writes.hash_of(row, protection_of(row.run)))


def _moved_to_another_step(row: PendingWrite) -> None:
    tamper(row, visit=2)


def _cut_off(row: PendingWrite) -> None:
    tamper(row, value=bytes(row.value)[:-3])


def _of_an_unknown_format(row: PendingWrite) -> None:
    tamper(row, value=b"\x09" + bytes(row.value)[1:])


def _copied_from_its_neighbour(row: PendingWrite) -> None:
    tamper(row, value=bytes(pending(row.run)[1].value))


def _without_a_seal(row: PendingWrite) -> None:
    tamper(row, seal=b"", seal_key="")


def _said_to_be_by_somebody_else(row: PendingWrite) -> None:
    tamper(row, author=User.objects.create(username="mallory"))


def _deleted(row: PendingWrite) -> None:
    remove(row)


TAMPERED = [
    _value_and_hash,
    _moved_to_another_step,
    _cut_off,
    _of_an_unknown_format,
    _copied_from_its_neighbour,
    _without_a_seal,
    _said_to_be_by_somebody_else,
    _deleted,
]


@pytest.mark.parametrize("act", TAMPERED)
def test_a_write_that_was_tampered_with_cannot_be_signed_and_its_run_is_tampered(
    act: Any, run: Run, rita: User, tmp_path: Path
) -> None:
    shown = pending(run)
    act(_write(run))
    items = [
        {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
        for row in shown
    ]

    with pytest.raises(TamperedRow):
        reviews.sign(run.id, items, by=rita)
    run.refresh_from_db()
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"
    assert not Decision.objects.exists()
    assert AuditLine.objects.get().kind == "refused_tampered"
    with pytest.raises(WrongStatus):
        reviews.sign(run.id, items, by=rita)


@pytest.mark.parametrize("act", TAMPERED)
def test_a_write_that_was_tampered_with_after_it_was_signed_is_not_applied(
    act: Any, run: Run, rita: User, tmp_path: Path
) -> None:
    sign(run, rita, ["approve", "approve"])
    events, head = Run.objects.values_list("event_seq", "head").get(id=run.id)
    act(_write(run))
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"
    assert run.event_seq == events
    assert run.head == head
    assert calls(tmp_path) == []


def test_an_approval_is_not_lost_where_its_request_only_says_that_it_was_applied(
    run: Run, rita: User, tmp_path: Path
) -> None:
    sign(run, rita, ["approve", "approve"])
    tamper(ApprovalRequest.objects.get(run=run), status="applied")
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"
    assert calls(tmp_path) == []


def test_a_run_does_not_wait_for_ever_for_a_request_that_was_deleted(
    run: Run, tmp_path: Path
) -> None:
    request = ApprovalRequest.objects.get(run=run)
    RequestReviewer.objects.filter(request=request).delete()
    RequestViewer.objects.filter(request=request).delete()
    remove(request)
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"


def test_a_write_that_was_moved_to_another_run_is_refused_by_both(
    run: Run, rita: User, tmp_path: Path
) -> None:
    other = graphs.started(tmp_path)
    shown = pending(run)
    tamper(shown[0], run=other)
    with pytest.raises(TamperedRow):
        sign(run, rita, ["approve"])
    with pytest.raises(TamperedRow):
        sign(other, rita, ["approve"] * 3)


def test_a_plain_value_in_an_encrypted_run_is_refused_even_with_the_hash_of_the_right_key(
    tmp_path: Path, rita: User
) -> None:
    run = graphs.started(tmp_path, encrypted=True)
    row = _write(run)
    tamper(row, value=sealed_rows.decrypted(row, "value"))
    with pytest.raises(
        TamperedRow, match="value of .* is not encrypted, but its run is"
    ):
        sign(run, rita, ["approve", "approve"])


def test_an_encrypted_value_in_a_plain_run_is_refused(
    tmp_path: Path, rita: User
) -> None:
    run = graphs.started(tmp_path)
    row = _write(run)
    tamper(
        row,
        value=sealed_rows.encrypted(
            row, "value", bytes(row.value), sealed_rows.Protection(encrypted=True)
        ),
    )
    with pytest.raises(TamperedRow, match="is encrypted, but its run is not"):
        sign(run, rita, ["approve", "approve"])


# --- decisions ---


def _with_seal(decision: Decision) -> None:
    """A second decision of the same content, with the seal of the first."""
    decision.pk = uuid4()
    decision._state.adding = True
    decision.save(force_insert=True)


def _by_hand(decision: Decision) -> None:
    decision.seal = b""
    decision.seal_key = ""
    _with_seal(decision)


def _taken_away(decision: Decision) -> None:
    remove(decision)


def _turned_round(decision: Decision) -> None:
    tamper(decision, verdict="reject")


def _of_somebody_else(decision: Decision) -> None:
    tamper(decision, by_id=User.objects.create(username="mallory").pk)


@pytest.mark.parametrize(
    "act", [_by_hand, _with_seal, _taken_away, _turned_round, _of_somebody_else]
)
@pytest.mark.parametrize("by", ["signing", "the worker"])
def test_a_decision_that_was_forged_changed_or_deleted_is_found_and_nothing_is_applied(
    act: Any, by: str, tmp_path: Path, rita: User, people: cast.People
) -> None:
    run = graphs.started(tmp_path, encrypted=True, quorum=2)
    ravi = reviewer(people.second_reviewer)
    sign(run, rita, ["approve", "approve"])
    if by == "the worker":
        sign(run, ravi, ["approve", "approve"])
    act(Decision.objects.filter(run=run.id).order_by("event_seq")[0])
    if by == "signing":
        with pytest.raises(TamperedRow):
            sign(run, ravi, ["approve", "approve"])
    else:
        runs.advance(run.id)
    run.refresh_from_db()
    assert run.status == Status.TAMPERED
    assert calls(tmp_path) == []


@pytest.mark.parametrize("by", ["signing", "the worker"])
def test_a_deleted_decision_is_missed_even_where_the_verdict_does_not_hang_on_it(
    by: str, tmp_path: Path, rita: User, people: cast.People
) -> None:
    run = graphs.started(tmp_path, reject_quorum=2)
    ravi = reviewer(people.second_reviewer)
    sign(run, rita, ["reject", "reject"])
    if by == "the worker":
        sign(run, ravi, ["approve", "approve"])
    remove(Decision.objects.filter(run=run.id, by=rita)[0])
    if by == "signing":
        with pytest.raises(TamperedRow, match="has 1 decisions, and its row says 2"):
            sign(run, ravi, ["approve", "approve"])
    else:
        runs.advance(run.id)
    assert Run.objects.get(id=run.id).status == Status.TAMPERED
    assert calls(tmp_path) == []


def test_a_decision_without_the_revision_that_it_was_made_on_is_found(
    run: Run, rita: User, tmp_path: Path
) -> None:
    sign(run, rita, [("edit", {"amount": "1"}), "approve"])
    remove(PendingWrite.objects.get(run=run, revision=2))
    assert runs.advance(run.id).status == Status.TAMPERED
    assert calls(tmp_path) == []


def test_a_run_whose_row_counts_fewer_decisions_than_there_are_is_refused(
    run: Run, rita: User
) -> None:
    sign(run, rita, ["approve", None])
    Run.objects.filter(id=run.id).update(decisions=0)
    with pytest.raises(TamperedRow, match="the row of run"):
        sign(run, rita, [None, "approve"])
    assert Run.objects.get(id=run.id).status == Status.TAMPERED


# --- requests ---


@pytest.mark.parametrize(
    "changed",
    [
        {
            "policy": {
                "reviewers": ["user:mallory"],
                "quorum": 1,
                "reject_quorum": 1,
                "four_eyes": False,
            }
        },
        {"writes": 1},
        {"title": pack_json("Pay nothing?")},
    ],
    ids=lambda changed: " ".join(changed),
)
def test_a_request_that_was_changed_is_refused(
    changed: dict[str, Any], tmp_path: Path, rita: User
) -> None:
    run = graphs.started(tmp_path)
    row = ApprovalRequest.objects.get(run=run)
    shown = pending(run)
    tamper(row, **changed)

    items = [
        {"write": str(write.write), "hash": write.hash, "verdict": "approve"}
        for write in shown
    ]
    with pytest.raises(TamperedRow):
        reviews.sign(run.id, items, by=rita)
    assert not Decision.objects.exists()


def test_a_row_that_names_another_reviewer_lets_nobody_sign(
    run: Run, people: cast.People
) -> None:
    RequestReviewer.objects.create(
        request=ApprovalRequest.objects.get(run=run), principal="user:mallory"
    )
    with pytest.raises(NotAReviewer):
        sign(run, User.objects.create(username="mallory"), ["approve", "approve"])
    assert not Decision.objects.exists()


def test_what_people_sign_is_encrypted_and_its_hashes_are_keyed(
    tmp_path: Path, rita: User
) -> None:
    run = graphs.started(tmp_path, encrypted=True)
    row = _write(run)
    plain = sealed_rows.PLAIN
    assert (
        row.hash
        == pending_writes.hash_of(row, protection_of(run))
        != pending_writes.hash_of(row, plain)
    )
    assert row.bound_hash != pending_writes.base_of(row).hash(plain)
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["payout"] == {"amount": "10"}
    for sealed in (
        *Decision.objects.all(),
        *Receipt.objects.all(),
        *PendingWrite.objects.all(),
    ):
        sealed_rows.verify_row(sealed, protection_of(run))


def test_an_approval_of_what_nobody_answered_is_reported(
    rita: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking_run = advanced(asking())
    monkeypatch.setattr("approvals.signing._require_answered", lambda row: None)
    sign(asking_run, rita, ["approve", "approve"])
    [fault] = verify_run(asking_run.id)
    assert fault.reason.endswith("approves a question that nobody answered")
