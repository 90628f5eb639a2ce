"""Keys are changed under the feet of everybody: contents, seals and hashes stay, the
older key is needed no more.
"""

from typing import Any

import pytest
from django.db import DatabaseError, transaction

from approvals.models import Decision
from checkpoints import key_rotation
from checkpoints.core.keyring import key_of
from checkpoints.key_rotation import Rotated
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import unpack_json
from orchestrator.engine.errors import WrongKey
from orchestrator.models import IdempotencyRecord
from tests.support import cast, rows
from tests.support.sealed_tables import (
    COVER,
    NEW,
    ONE_KEY,
    TWO_KEYS,
    an_encrypted_decision,
    an_encrypted_run,
    encrypted_writes,
    run_sql,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def one_key_at_first(configure: Any) -> None:
    configure(**ONE_KEY)


def _two_keys(configure: Any) -> None:
    configure(**TWO_KEYS)


def _rotate() -> Rotated:
    result = Rotated()
    for _ in key_rotation.rotate(result):
        pass
    return result


def test_what_the_older_key_encrypts_is_encrypted_under_the_newest_and_says_the_same(
    configure: Any,
) -> None:
    run = an_encrypted_run()
    encrypted_writes(run, 3)
    _two_keys(configure)
    assert key_rotation.behind() == {
        "checkpoints_run": 1,
        "checkpoints_pendingwrite": 3,
    }
    assert _rotate().rows == {"checkpoints_run": 1, "checkpoints_pendingwrite": 3}
    assert key_rotation.behind() == {}
    for n, row in enumerate(PendingWrite.objects.order_by("index")):
        assert {
            key_of(bytes(row.value)),
            key_of(bytes(row.base)),
            key_of(bytes(row.shown)),
        } == {"new"}
        assert unpack_json(sealed_rows.decrypted(row, "value")) == f"secret {n}"


def test_a_rotation_changes_no_seal_and_no_hash(configure: Any) -> None:
    encrypted_writes(an_encrypted_run(), 2)
    before = list(
        PendingWrite.objects.values(
            "id", "seal", "seal_key", "hash", "bound_hash", "policy_hash"
        )
    )
    _two_keys(configure)
    _rotate()
    after = list(
        PendingWrite.objects.values(
            "id", "seal", "seal_key", "hash", "bound_hash", "policy_hash"
        )
    )
    assert [
        {k: bytes(v) if k == "seal" else v for k, v in row.items()} for row in after
    ] == [{k: bytes(v) if k == "seal" else v for k, v in row.items()} for row in before]
    for row in PendingWrite.objects.all():
        sealed_rows.verify_row(row, COVER)


def test_after_a_rotation_only_hashes_need_the_older_key(configure: Any) -> None:
    encrypted_writes(an_encrypted_run(), 1)
    _two_keys(configure)
    _rotate()
    configure(ENCRYPTION_KEYS={"new": NEW})
    assert (
        unpack_json(sealed_rows.decrypted(PendingWrite.objects.get(), "value"))
        == "secret 0"
    )
    with pytest.raises(WrongKey, match="'old'"):
        COVER.digest(b"")


def test_a_rotation_that_was_cut_off_goes_on_where_it_was(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encrypted_writes(an_encrypted_run(), 10)
    monkeypatch.setattr(key_rotation, "BATCH_ROWS", 3)
    _two_keys(configure)
    cut = key_rotation.rotate(Rotated())
    next(cut)
    assert next(cut).done == 6
    cut.close()
    assert key_rotation.behind() == {
        "checkpoints_pendingwrite": 4,
        "checkpoints_run": 1,
    }
    assert _rotate().done == 5
    assert key_rotation.behind() == {}


def test_a_batch_is_limited_by_bytes_too(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encrypted_writes(an_encrypted_run(), 4)
    monkeypatch.setattr(key_rotation, "BATCH_BYTES", 1)
    _two_keys(configure)
    steps = [step.done for step in key_rotation.rotate(Rotated())]
    assert steps == [1, 2, 3, 4, 5]


def test_a_row_that_does_not_open_is_named_and_the_others_are_done(
    configure: Any,
) -> None:
    broken, *_ = encrypted_writes(an_encrypted_run(), 3)
    stored_bytes = bytes(broken.value)[:-1] + bytes([bytes(broken.value)[-1] ^ 1])
    run_sql(
        "UPDATE checkpoints_pendingwrite SET value = %s WHERE id = %s",
        stored_bytes,
        broken.pk,
    )
    _two_keys(configure)
    result = _rotate()
    assert result.done == 3
    assert result.failed == 1
    assert result.faults[0].startswith(f"checkpoints_pendingwrite {broken.pk}: ")
    broken.refresh_from_db()
    assert bytes(broken.value) == stored_bytes


def test_a_row_that_changed_meanwhile_keeps_what_it_has_now(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = an_encrypted_run()
    _two_keys(configure)
    locked = sealed_rows.encrypted

    def somebody_clears_it(row: Any, *args: Any) -> bytes:
        Run.objects.filter(id=run.id).update(input=b"")
        return locked(row, *args)

    monkeypatch.setattr(sealed_rows, "encrypted", somebody_clears_it)
    assert _rotate().done == 0
    run.refresh_from_db()
    assert bytes(run.input) == b""


def test_a_plain_row_is_left_alone(configure: Any) -> None:
    rows.a_run()
    _two_keys(configure)
    assert key_rotation.behind() == {}
    assert _rotate().rows == {}


def test_without_an_encryption_key_rotation_is_refused_by_name(configure: Any) -> None:
    configure(ENCRYPTION_KEYS={})
    with pytest.raises(WrongKey, match="there is no encryption key"):
        key_rotation.behind()


def test_decisions_are_encrypted_anew_though_they_are_append_only(
    configure: Any, people: cast.People
) -> None:
    made = an_encrypted_decision(an_encrypted_run(), people.reviewer)
    _two_keys(configure)
    assert _rotate().rows["approvals_decision"] == 1
    row = Decision.objects.get()
    sealed_rows.verify_row(row, COVER)
    assert bytes(row.seal or b"") == bytes(made.seal or b"")
    assert key_of(bytes(row.final_value)) == "new"
    assert unpack_json(sealed_rows.decrypted(row, "final_value")) == "secret"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("final_value = %s, verdict = 'reject'", "another column rides along"),
        ("final_value = %s, seal_key = 'mine'", "the seal's key rides along"),
        ("final_value = %s, seal = NULL", "the seal rides along"),
        ("final_value = %s, event_seq = event_seq + 1", "its number rides along"),
        ("reason = %s, by_id = NULL", "the person rides along"),
    ],
)
def test_nothing_else_passes_with_an_encryption(
    change: str, why: str, people: cast.People
) -> None:
    row = an_encrypted_decision(an_encrypted_run(), people.reviewer)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        run_sql(
            f"UPDATE approvals_decision SET {change}", bytes(row.final_value) + b"x"
        )


@pytest.mark.parametrize("kept", [b"", b"\x01null", b"\x02", b"\x04\x03"])
def test_an_encrypted_column_of_a_decision_never_becomes_anything_else(
    kept: bytes, people: cast.People
) -> None:
    an_encrypted_decision(an_encrypted_run(), people.reviewer)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        run_sql("UPDATE approvals_decision SET final_value = %s", kept)


def test_a_plain_column_of_a_decision_does_not_become_encrypted(
    people: cast.People,
) -> None:
    run = rows.a_run()
    request = rows.a_request(run, "user:rita")
    write = rows.a_write(
        request,
        0,
        channel="letter",
        value="x",
        base=rows.pending_writes.StoredBase("", {}, bound=True),
    )
    rows.a_decision(write, request, by=people.reviewer, verdict="approve", seq=1)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        run_sql("UPDATE approvals_decision SET final_value = %s", b"\x03abc")


def test_an_update_of_a_decision_that_changes_nothing_is_refused_too(
    people: cast.People,
) -> None:
    an_encrypted_decision(an_encrypted_run(), people.reviewer)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        run_sql("UPDATE approvals_decision SET verdict = verdict")


def test_kept_answers_of_the_api_are_rotated_too(
    configure: Any, people: cast.People
) -> None:
    row = IdempotencyRecord(
        user=people.starter,
        method="POST",
        path="/api/v1/runs/",
        key="k",
        body_hash="b",
        created_at=rows.START,
    )
    row.answer = sealed_rows.encrypted(row, "answer", b"\x01{}", COVER)
    row.save()
    _two_keys(configure)
    assert _rotate().rows == {IdempotencyRecord._meta.db_table: 1}
    record = IdempotencyRecord.objects.get()
    assert key_of(bytes(record.answer)) == "new"
    assert sealed_rows.decrypted(record, "answer") == b"\x01{}"
