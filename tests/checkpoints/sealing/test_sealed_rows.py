"""What seals and encryption are bound to: each field, the lengths of payloads, the
table, the column, the moment.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from checkpoints.core.keyring import Keyring
from checkpoints.models import MemoryRecord, MemoryTrace, Run, TaskResult
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import PLAIN, Protection
from orchestrator.engine.errors import TamperedRow, WrongKey
from tests.support.sealed_tables import COVER, TWO_KEYS

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
BEFORE = NOW - timedelta(microseconds=1)
AFTER = NOW + timedelta(microseconds=1)

pytestmark = pytest.mark.django_db


def a_run() -> Run:
    run = Run(
        key="k",
        graph="g",
        version="1",
        fingerprint="f" * 64,
        input_hash="0" * 64,
        payloads="database",
    )
    run.head = UUID(int=1)
    run.head_hash = "a" * 64
    run.event_seq = 3
    run.event_hash = "b" * 64
    columns = run_row.seal_columns(
        run,
        head=run.head,
        head_hash="a" * 64,
        event_seq=3,
        event_hash="b" * 64,
        decisions=run.decisions,
    )
    run.seal = columns["seal"]
    run.seal_key = columns["seal_key"]
    return run


CHANGED: dict[str, Any] = {
    "id": UUID(int=9),
    "key": "another",
    "graph": "another",
    "version": "2",
    "fingerprint": "e" * 64,
    "input_hash": "1" * 64,
    "started_by_id": 1,
    "on_behalf_of_id": 1,
    "encrypted": True,
    "hash_key": "old",
    "payloads": "cellar",
    "line": 2,
    "head": UUID(int=2),
    "head_hash": "c" * 64,
    "event_seq": 4,
    "event_hash": "c" * 64,
    "decisions": 1,
    "seal": b"",
}


def test_the_row_of_a_run_is_as_it_was_sealed() -> None:
    run_row.verify_run_row(a_run())


@pytest.mark.parametrize("column", CHANGED)
def test_the_row_of_a_run_is_refused_where_one_of_its_sealed_columns_was_changed(
    column: str,
) -> None:
    run = a_run()
    setattr(run, column, CHANGED[column])
    with pytest.raises(TamperedRow, match="not as it was sealed"):
        run_row.verify_run_row(run)


def test_the_row_of_a_run_proves_nothing_under_a_compromised_key(
    configure: Any,
) -> None:
    keys = {"SIGNING_KEYS": {"one": b"1" * 32}}
    configure(**keys)
    run = a_run()
    configure(**keys, COMPROMISED_KEYS={"one": NOW})
    with pytest.raises(TamperedRow, match="compromised since"):
        run_row.verify_run_row(run)


def a_result(**columns: Any) -> TaskResult:
    values = {
        "node": "n",
        "visit": 1,
        "index": 0,
        "attempt": 1,
        "intent_at": NOW,
        "over_at": NOW,
        **columns,
    }
    return TaskResult(run_id=UUID(int=7), line=1, outcome="done", superstep=1, **values)


def sealed(row: Any, protection: Protection = PLAIN) -> Any:
    (row,) = sealed_rows.seal_and_encrypt([row], protection)
    return row


def test_bytes_do_not_move_from_one_payload_to_the_next_under_one_seal() -> None:
    row = sealed(a_result(output=pack_json({"a": 1}), error=pack_json({"b": 2})))
    sealed_rows.verify_row(row, PLAIN)
    row.output = row.output + row.error
    row.error = b""
    with pytest.raises(TamperedRow):
        sealed_rows.verify_row(row, PLAIN)


def test_a_row_without_a_seal_or_with_a_value_that_no_column_holds_is_refused() -> None:
    row = sealed(a_result())
    row.visit = 2**70
    with pytest.raises(TamperedRow, match="is not as it was sealed: "):
        sealed_rows.verify_row(row, PLAIN)
    row.seal = None
    with pytest.raises(TamperedRow, match="has no seal"):
        sealed_rows.verify_row(row, PLAIN)


def test_a_seal_says_whether_its_run_is_encrypted_and_which_key_makes_its_hashes(
    configure: Any,
) -> None:
    configure(**TWO_KEYS)
    row = sealed(a_result(), Protection(False, "old"))
    sealed_rows.verify_row(row, Protection(False, "old"))
    for other in (Protection(True, "old"), Protection(False, "new"), PLAIN):
        with pytest.raises(TamperedRow):
            sealed_rows.verify_row(row, other)


@pytest.mark.parametrize(
    "covers", [(PLAIN, COVER), (COVER, PLAIN)], ids=["plain", "encrypted"]
)
def test_a_payload_is_encrypted_exactly_where_its_run_is(
    covers: tuple[Protection, Protection], configure: Any
) -> None:
    configure(**TWO_KEYS)
    row = sealed(a_result(output=pack_json({"a": 1})), covers[0])
    other = covers[1]
    with pytest.raises(TamperedRow, match="encrypted"):
        sealed_rows.require_protection(row, "output", bytes(row.output), other)
    with pytest.raises(TamperedRow, match="encrypted"):
        sealed_rows.verify_row(row, other)
    sealed_rows.require_protection(row, "output", b"", other)


def test_encrypted_bytes_open_in_their_own_table_row_and_column_alone(
    configure: Any,
) -> None:
    configure(**TWO_KEYS)
    row = a_result()
    ciphertext = sealed_rows.encrypted(row, "output", b"secret", COVER)
    assert sealed_rows.decrypted(row, "output", ciphertext) == b"secret"
    same = {
        "run_id": row.run_id,
        "line": 1,
        "node": "n",
        "visit": 1,
        "index": 0,
        "n": 1,
    }
    for other, column in (
        (row, "error"),
        (a_result(attempt=2), "output"),
        (MemoryRecord(**same), "asked"),
    ):
        with pytest.raises(TamperedRow, match="moved here"):
            sealed_rows.decrypted(other, column, ciphertext)


def test_what_is_empty_stays_empty_where_its_run_is_encrypted(configure: Any) -> None:
    configure(**TWO_KEYS)
    row = sealed(a_result(output=pack_json({"a": 1})), COVER)
    assert bytes(row.output)[:1] == b"\x03"
    assert bytes(row.error) == b""


def test_a_row_that_is_sealed_again_keeps_its_other_payloads_and_verifies(
    configure: Any,
) -> None:
    configure(**TWO_KEYS)
    row = sealed(a_result(output=pack_json({"a": 1})), COVER)
    stored_bytes = bytes(row.output)
    assert set(sealed_rows.seal_again(row, COVER, error=pack_json({"b": 2}))) == {
        "error",
        "seal",
        "seal_key",
    }
    assert bytes(row.output) == stored_bytes
    sealed_rows.verify_row(row, COVER)


# Compromised keys


@pytest.mark.parametrize(
    ("at", "refused"),
    [(BEFORE, False), (NOW, True), (AFTER, True), (None, True)],
    ids=str,
)
def test_a_compromised_key_proves_nothing_from_its_very_moment_on(
    at: datetime | None, refused: bool, configure: Any
) -> None:
    configure(SIGNING_KEYS={"one": b"1" * 32}, COMPROMISED_KEYS={"one": NOW})
    sealed_rows.refuse_compromised("another", at, "a row")
    if refused:
        with pytest.raises(TamperedRow, match="compromised since"):
            sealed_rows.refuse_compromised("one", at, "a row")
    else:
        sealed_rows.refuse_compromised("one", at, "a row")


def test_a_row_that_says_when_it_was_written_is_believed_if_that_was_before_the_key_was_compromised(
    configure: Any,
) -> None:
    keys = {"SIGNING_KEYS": {"one": b"1" * 32}}
    configure(**keys)
    early = sealed(
        MemoryTrace(namespace="a", key="b", content=pack_json("c"), at=BEFORE)
    )
    late = sealed(MemoryTrace(namespace="a", key="b", content=pack_json("c"), at=NOW))
    configure(**keys, COMPROMISED_KEYS={"one": NOW})
    sealed_rows.verify_row(early, PLAIN)
    with pytest.raises(TamperedRow, match="compromised"):
        sealed_rows.verify_row(late, PLAIN)
    with pytest.raises(TamperedRow, match="compromised"):
        sealed_rows.verify_row(early, PLAIN, at=AFTER)


# Keys


def ring(**options: Any) -> Keyring:
    return Keyring({"s": b"s" * 32}, {"old": b"o" * 32, "new": b"n" * 32}, **options)


def test_bytes_open_under_the_name_that_they_were_encrypted_under_alone() -> None:
    name = uuid4().bytes
    ciphertext = ring().lock(b"secret", name)
    assert ring().open(ciphertext, name) == b"secret"
    for other in (b"", name[:-1], name + b"x"):
        with pytest.raises(TamperedRow):
            ring().open(ciphertext, other)


def test_another_key_under_the_same_id_is_a_wrong_key_and_no_tampering() -> None:
    ciphertext = ring().lock(b"secret", b"name")
    with pytest.raises(WrongKey, match="not the one that made this"):
        Keyring({"s": b"s" * 32}, {"new": b"x" * 32}).open(ciphertext, b"name")


def test_keys_for_hashes_and_for_marks_are_derived_apart_and_differ_from_key_to_key() -> (
    None
):
    from checkpoints.core.keyring import derived

    keyring = ring()
    assert (
        len(
            {
                keyring.keyed_hash("old", b"x"),
                keyring.keyed_hash("new", b"x"),
                keyring.mac("s", b"x").hex(),
            }
        )
        == 3
    )
    assert (
        len(
            {
                derived(b"o" * 32, "a"),
                derived(b"o" * 32, "b"),
                derived(b"n" * 32, "a"),
                b"o" * 32,
            }
        )
        == 4
    )


def test_the_last_key_that_came_makes_and_seals() -> None:
    both = Keyring(
        {"first": b"1" * 32, "last": b"2" * 32}, {"old": b"o" * 32, "new": b"n" * 32}
    )
    assert both.signer == "last"
    assert both.encrypter == "new"
