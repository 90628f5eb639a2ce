"""The bytes of a stretch go with its rows, and none is read or put while the run is
locked.
"""

from typing import Any

import pytest
from django.db import connection

from checkpoints import payloads, timeline
from checkpoints.models import RunEvent
from checkpoints.retention import stretches
from tests.support.histories import faults, loaded, long_run, policy, pruned, seqs
from tests.support.large_states import large
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)
NODES = "abcdefgh"


def test_bytes_outside_the_rows_go_with_them(tmp_path: Any, configure: Any) -> None:
    folder = tmp_path / "bytes"
    options = {"backend": "files", "options": {"location": str(folder)}}
    configure(PAYLOADS={"files": options})
    run = long_run(payloads="files")
    before = loaded()
    pruned(policy("long", keep_last=2))
    assert {row: before[row] for row in loaded()} == loaded()
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 3
    assert faults() == []
    assert seqs(run) == [7, 8]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_no_bytes_outside_the_rows_are_read_or_put_under_the_lock(
    encrypted: bool, tmp_path: Any, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"backend": "files", "options": {"location": str(tmp_path / "bytes")}}
    configure(PAYLOADS={"files": options}, **ONE_KEY)
    run = long_run(payloads="files", encrypted=encrypted)
    put = payloads.put_payload
    get = payloads.get_payload
    held = []

    def watched(act: Any) -> Any:
        def watch(*args: Any, **kwargs: Any) -> Any:
            held.append(connection.in_atomic_block)
            return act(*args, **kwargs)

        return watch

    monkeypatch.setattr(payloads, "put_payload", watched(put))
    monkeypatch.setattr(payloads, "get_payload", watched(get))
    pruned(policy("long", keep_last=2))
    assert held
    assert not any(held)
    assert seqs(run) == [7, 8]
    assert faults() == []


def test_a_snapshot_that_was_made_before_the_run_went_on_is_made_anew(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = started(large("goes_on", NODES, snapshot=1000))
    for _ in range(3):
        run = slice_of(run)
    make = stretches.make_anchor
    rows = []

    def late(*args: Any) -> Any:
        rows.append(make(*args))
        if len(rows) == 1:
            slice_of(run)
        return rows[-1]

    monkeypatch.setattr(stretches, "make_anchor", late)
    pruned(policy("goes_on", keep_last=1))
    run.refresh_from_db()
    assert len(rows) == 2
    assert seqs(run) == [run.head_seq]
    assert faults() == []


def test_a_long_stretch_goes_in_pieces_from_its_end_each_with_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert stretches.MOST == 500
    monkeypatch.setattr(stretches, "MOST", 3)
    run = long_run()
    before = loaded()
    assert pruned(policy("long", keep_last=1)).progress["done"] == 8
    lines = RunEvent.objects.filter(run=run, type="history_removed").order_by("seq")
    gone = [timeline.payload_of(line)["checkpoints"] for line in lines]
    assert [(row["first"], row["last"], row["count"]) for row in gone] == [
        (5, 7, 3),
        (2, 4, 3),
        (0, 1, 2),
    ]
    assert {row: before[row] for row in loaded()} == loaded()
    assert seqs(run) == [8]
    assert faults() == []
