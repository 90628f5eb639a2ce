"""A snapshot has a seal of its own: an old row can be given one, and its own seal and hashes stay as they are."""

from datetime import timedelta
from typing import Any

import pytest

from checkpoints import key_rotation, timeline
from checkpoints.core.keyring import Keyring
from checkpoints.key_rotation import Rotated
from checkpoints.ledger import locked_run
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing import data_keys, sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow, WrongKey
from tests.support.forging import tamper
from tests.support.large_states import large
from tests.support.removed_history import checkpoint_at, give_snapshot, remove_history
from tests.support.sealed_tables import ONE_KEY, TWO_KEYS
from tests.support.small_graphs import slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)
ONE, BOTH = {"one": b"1" * 32}, {"one": b"1" * 32, "two": b"2" * 32}


def a_run(**settings: Any) -> Run:
    return runs.advance(started(large("sealed", "abcdef", snapshot=1000, **settings)).id)


def sealed_in_format_1(row: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """The row as an older version wrote it: its seal covers where a load begins and the hash of the snapshot."""
    with monkeypatch.context() as older:
        older.setattr(sealed_rows, "_newest", lambda model: 1)
        sealed_rows.seal(row, PLAIN)
    tamper(row, seal=row.seal, seal_key=row.seal_key, snapshot_seal=None)
    row.refresh_from_db()
    return row


@pytest.mark.parametrize("seq", [0, 3])
def test_a_row_costs_one_hmac_and_one_with_a_snapshot_two(seq: int, monkeypatch: pytest.MonkeyPatch) -> None:
    row, made = checkpoint_at(a_run(), seq), []
    mac = Keyring.mac
    monkeypatch.setattr(Keyring, "mac", lambda *given: made.append(1) or mac(*given))
    for act in (sealed_rows.seal, sealed_rows.verify_row):
        made.clear()
        act(row, PLAIN)
        assert len(made) == (1 if seq else 2)


def test_an_old_row_that_is_given_a_snapshot_is_loaded_from_it_and_stays_as_it_was_sealed() -> None:
    run = a_run()
    before = checkpoint_at(run, 3)
    state = timeline.state_at(before.id)
    give_snapshot(before)
    after = checkpoint_at(run, 3)
    for name in ("seal", "seal_key", "content_hash", "change_hash"):
        assert getattr(after, name) == getattr(before, name)
    assert (after.anchor, checkpoint_at(run, 5).anchor) == (3, 3)
    assert timeline.state_at(after.id) == state
    assert verify_run(run.id) == []


def test_a_row_of_an_older_version_is_proven_by_its_own_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run()
    for seq in (0, 3):
        sealed_in_format_1(checkpoint_at(run, seq), monkeypatch)
    assert verify_run(run.id) == []
    for column, value in (("anchor", 2), ("snapshot_hash", "0" * 64)):
        for seq in (0, 3):
            row = checkpoint_at(run, seq)
            setattr(row, column, value)
            with pytest.raises(TamperedRow, match="is not as it was sealed"):
                sealed_rows.verify_row(row, PLAIN)


def test_a_row_of_an_older_version_that_is_sealed_again_has_a_seal_of_its_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = sealed_in_format_1(checkpoint_at(a_run(), 0), monkeypatch)
    names = sealed_rows.seal_again(row, PLAIN, anchor=0)
    assert set(names) == {"anchor", "seal", "seal_key", "snapshot_seal"}
    tamper(row, **{name: getattr(row, name) for name in names})
    assert verify_run(str(row.run_id)) == []


def test_history_of_an_older_version_is_removed_from_rows_that_are_then_sealed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = a_run()
    state = timeline.state_at(checkpoint_at(run, 5).id)
    for row in Checkpoint.objects.filter(run=run):
        sealed_in_format_1(row, monkeypatch)
    remove_history(run, checkpoints=(0, 2))
    assert verify_run(run.id) == []
    assert timeline.state_at(checkpoint_at(run, 5).id) == state


def test_the_last_row_of_an_older_version_stays_in_the_timeline(
    monkeypatch: pytest.MonkeyPatch, configure: Any
) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = slice_of(started(large("kept", "abcdef", checkpoints="none")))
    head = sealed_in_format_1(checkpoint_at(run, 1), monkeypatch)
    assert not head.kept
    runs.cancel(run.id)
    assert checkpoint_at(run, 1).kept
    assert verify_run(run.id) == []
    assert locked_run.keep_head(run) == []


# Keys


def test_a_snapshot_may_be_given_under_a_later_key_than_its_row_was_sealed_with(configure: Any) -> None:
    configure(SIGNING_KEYS=ONE)
    run = a_run()
    configure(SIGNING_KEYS=BOTH)
    give_snapshot(checkpoint_at(run, 3))
    assert bytes(checkpoint_at(run, 3).snapshot_seal or b"")[:4] == b"\x03two"
    assert verify_run(run.id) == []
    configure(SIGNING_KEYS={"two": BOTH["two"]})
    with pytest.raises(WrongKey):
        sealed_rows.verify_row(checkpoint_at(run, 3), PLAIN)
    configure(SIGNING_KEYS=ONE)
    with pytest.raises(WrongKey, match="'two' is not configured"):
        sealed_rows.verify_row(checkpoint_at(run, 3), PLAIN)


@pytest.mark.parametrize("days", [-1, 1], ids=["before", "after"])
def test_a_compromised_key_proves_no_snapshot_of_a_row_that_is_as_old_as_that(days: int, configure: Any) -> None:
    configure(SIGNING_KEYS=ONE)
    run = a_run()
    configure(SIGNING_KEYS=BOTH)
    give_snapshot(row := checkpoint_at(run, 3))
    configure(SIGNING_KEYS=BOTH, COMPROMISED_KEYS={"two": row.created_at + timedelta(days=days)})
    if days < 0:
        with pytest.raises(TamperedRow, match="compromised since"):
            sealed_rows.verify_row(row, PLAIN)
        assert any("snapshot_seal" in fault.reason for fault in verify_run(run.id))
    else:
        assert verify_run(run.id) == []


def test_encrypting_anew_leaves_a_given_snapshot_proven(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(**ONE_KEY)
    # As runs were that began before each had a key of its own.
    monkeypatch.setattr(data_keys, "make_data_key", lambda run: None)
    run = a_run(encrypted=True)
    give_snapshot(checkpoint_at(run, 3))
    before = bytes(checkpoint_at(run, 3).snapshot_seal or b"")
    configure(**TWO_KEYS)
    for _ in key_rotation.rotate(Rotated()):
        pass
    row = checkpoint_at(run, 3)
    assert bytes(row.snapshot_seal or b"") == before
    assert b"new" in bytes(row.snapshot)[:8]
    assert verify_run(run.id) == []
