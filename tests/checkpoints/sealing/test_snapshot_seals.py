"""A snapshot has a seal of its own: an old row can be given one, and its own seal and
hashes stay as they are.
"""

from datetime import timedelta
from typing import Any

import pytest

from checkpoints import key_rotation, timeline
from checkpoints.core.keyring import Keyring
from checkpoints.key_rotation import Rotated
from checkpoints.models import Run
from checkpoints.sealing import data_keys, sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow, WrongKey
from tests.support.large_states import large
from tests.support.removed_history import checkpoint_at, give_snapshot
from tests.support.sealed_tables import ONE_KEY, TWO_KEYS
from tests.support.small_graphs import started

pytestmark = pytest.mark.django_db(transaction=True)
ONE = {"one": b"1" * 32}
BOTH = {"one": b"1" * 32, "two": b"2" * 32}


def a_run(**settings: Any) -> Run:
    return runs.advance(
        started(large("sealed", "abcdef", snapshot=1000, **settings)).id
    )


@pytest.mark.parametrize("seq", [0, 3])
def test_a_row_costs_one_hmac_and_one_with_a_snapshot_two(
    seq: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = checkpoint_at(a_run(), seq)
    rows = []
    mac = Keyring.mac
    monkeypatch.setattr(
        Keyring, "mac", lambda *arguments: rows.append(1) or mac(*arguments)
    )
    for act in (sealed_rows.seal, sealed_rows.verify_row):
        rows.clear()
        act(row, PLAIN)
        assert len(rows) == (1 if seq else 2)


def test_an_old_row_that_is_given_a_snapshot_is_loaded_from_it_and_stays_as_it_was_sealed() -> (
    None
):
    run = a_run()
    before = checkpoint_at(run, 3)
    state = timeline.state_at(before.id)
    give_snapshot(before)
    after = checkpoint_at(run, 3)
    for name in ("seal", "seal_key", "content_hash", "change_hash"):
        assert getattr(after, name) == getattr(before, name)
    assert after.anchor == 3
    assert checkpoint_at(run, 5).anchor == 3
    assert timeline.state_at(after.id) == state
    assert verify_run(run.id) == []


def test_a_row_without_a_snapshot_has_no_seal_of_one() -> None:
    row = checkpoint_at(a_run(), 3)
    sealed_rows.seal_later(row)
    with pytest.raises(TamperedRow, match="does not prove its snapshot_hash"):
        sealed_rows.verify_row(row, PLAIN)


# Keys


def test_a_snapshot_may_be_given_under_a_later_key_than_its_row_was_sealed_with(
    configure: Any,
) -> None:
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
def test_a_compromised_key_proves_no_snapshot_of_a_row_that_is_as_old_as_that(
    days: int, configure: Any
) -> None:
    configure(SIGNING_KEYS=ONE)
    run = a_run()
    configure(SIGNING_KEYS=BOTH)
    give_snapshot(row := checkpoint_at(run, 3))
    configure(
        SIGNING_KEYS=BOTH,
        COMPROMISED_KEYS={"two": row.created_at + timedelta(days=days)},
    )
    if days < 0:
        with pytest.raises(TamperedRow, match="compromised since"):
            sealed_rows.verify_row(row, PLAIN)
        assert any("snapshot_seal" in fault.reason for fault in verify_run(run.id))
    else:
        assert verify_run(run.id) == []


def test_encrypting_anew_leaves_a_given_snapshot_proven(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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
