"""The log is the source: the state at any kept checkpoint is what the changes come to
that its lines refer to.
"""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints import event_log, timeline
from checkpoints.core import codec
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.sealing import run_row
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification import verify_run
from checkpoints.verification.log_fold import document_by_log
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow, UnknownThing
from orchestrator.engine.values import canonical
from tests.support import cast
from tests.support.forging import rewrite, tamper
from tests.support.large_states import large
from tests.support.paid_claims import paid
from tests.support.removed_history import checkpoint_at, delete_rows, remove_history
from tests.support.small_graphs import started

pytestmark = pytest.mark.django_db(transaction=True)
NODES = "abcdefgh"


def a_run(**settings: Any) -> Run:
    """A run of checkpoints 0 to 8."""
    return runs.advance(started(large("long", NODES, **settings)).id)


def compared(
    run: Run, monkeypatch: pytest.MonkeyPatch, *, anchored: int | None = None
) -> int:
    """Rebuild the state at each kept checkpoint, and compare; no snapshot is read but
    the one that is given.
    """
    rows = list(Checkpoint.objects.filter(run=run, kept=True).order_by("seq"))
    known = {row.id: canonical.encode(reader.document_at(row.id)) for row in rows}
    plain = reader.bytes_of

    def watched(row: Checkpoint, column: str, *rest: Any) -> bytes:
        assert column == "change" or row.seq == anchored, (
            f"reads the snapshot of {row.seq}"
        )
        return plain(row, column, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(reader, "bytes_of", watched)
        for row in rows:
            assert canonical.encode(document_by_log(row.id)) == known[row.id], row.seq
    return len(rows)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"snapshot": 2},
        {"checkpoints": "none"},
        {"checkpoints": "explicit"},
        {"encrypted": True},
    ],
    ids=str,
)
def test_each_state_is_rebuilt_from_the_log_without_a_snapshot(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, configure: Any
) -> None:
    if options.get("encrypted"):
        configure(ENCRYPTION_KEYS={"k1": bytes(range(32))})
    assert compared(a_run(**options), monkeypatch) >= 2


def test_forks_and_lines_of_a_run_are_rebuilt_each_from_its_own_log(
    people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = paid("by_log", people)
    fork = runs.advance(runs.fork(f"{run.key}:at-1", by=people.starter).id)
    runs.rewind(run.id, f"{run.key}:at-1", by=people.starter, reason="r")
    runs.advance(run.id)
    assert Run.objects.get(id=run.id).line == 2
    assert compared(run, monkeypatch) > compared(fork, monkeypatch) > 1


def test_it_begins_with_the_snapshot_that_a_row_was_given_when_what_came_before_was_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = a_run(snapshot=1000)
    remove_history(run, checkpoints=(0, 3), events=(1, checkpoint_at(run, 3).event_seq))
    assert compared(run, monkeypatch, anchored=4) == 5
    assert verify_run(run.id) == []


def test_a_state_whose_lines_were_removed_cannot_be_rebuilt_and_says_so() -> None:
    run = a_run(snapshot=1000)
    remove_history(run, events=(2, checkpoint_at(run, 3).event_seq))
    with pytest.raises(UnknownThing, match="was removed"):
        document_by_log(checkpoint_at(run, 2).id)
    with pytest.raises(UnknownThing, match="were removed"):
        document_by_log(checkpoint_at(run, 6).id)


def test_a_change_that_is_not_what_the_log_says_is_named() -> None:
    run = a_run()
    row = checkpoint_at(run, 3)
    other = codec.pack(
        canonical.dumps([{"op": "replace", "path": ["scratch", "n"], "value": 1}])
    )
    Checkpoint.objects.filter(id=row.id).update(change=other)
    with pytest.raises(TamperedRow, match="is not what the log says"):
        document_by_log(checkpoint_at(run, 5).id)


def test_a_forged_snapshot_is_named_and_rebuilds_nothing_else() -> None:
    run = a_run(snapshot=2)
    row = (
        Checkpoint.objects.filter(run=run, seq__gt=1)
        .exclude(snapshot_hash="")
        .order_by("seq")
        .first()
    )
    assert row is not None
    document = reader.document_at(row.id)
    assert document is not None
    data = canonical.encode({**document, "scratch": {"forged": True}})
    tamper(
        row, snapshot=codec.pack(data), snapshot_hash=protection_of(run).digest(data)
    )
    assert "forged" not in document_by_log(row.id)["scratch"]
    assert any("snapshot" in fault.reason for fault in verify_run(run.id))


def test_checkpoints_in_another_order_than_the_log_says_are_named() -> None:
    run = a_run()
    lines = RunEvent.objects.filter(run=run, type="checkpoint_saved").order_by("seq")
    first = lines[2]
    second = lines[3]
    first_payload = timeline.payload_of(first)
    second_payload = timeline.payload_of(second)
    _rewritten(run, {first.seq: second_payload, second.seq: first_payload})
    reasons = [fault.reason for fault in verify_run(run.id)]
    assert any("in another order than its log says" in reason for reason in reasons), (
        reasons
    )
    with pytest.raises(TamperedRow, match="names another checkpoint before"):
        document_by_log(checkpoint_at(run, 6).id)


def _rewritten(run: Run, payloads: dict[int, Any]) -> None:
    """The log with other payloads, chained and sealed anew as only who has the key can."""
    protection = protection_of(run)
    before = ""
    for line in RunEvent.objects.filter(run=run).order_by("seq"):
        facts = payloads.get(line.seq, timeline.payload_of(line))
        line.hash = event_log.line_hash(
            before, line, canonical.dumps(facts), protection
        )
        rewrite(line, payload=pack_json(facts), hash=line.hash)
        before = line.hash
    run.refresh_from_db()
    sealed = run_row.seal_columns(
        run,
        head=run.head,
        head_hash=run.head_hash,
        decisions=run.decisions,
        event_seq=run.event_seq,
        event_hash=before,
    )
    Run.objects.filter(id=run.id).update(event_hash=before, **sealed)


def test_a_checkpoint_that_is_gone_or_was_never_saved_is_named() -> None:
    run = a_run()
    with pytest.raises(UnknownThing):
        document_by_log(run.id)
    delete_rows(run, checkpoints=(3, 3))
    with pytest.raises(TamperedRow, match="is gone"):
        document_by_log(checkpoint_at(run, 6).id)


def test_its_cost_is_linear_in_what_the_log_says() -> None:
    run = a_run(snapshot=1000)
    counts = []
    for seq in (2, 8):
        with CaptureQueriesContext(connection) as seen:
            document_by_log(checkpoint_at(run, seq).id)
        counts.append(len(seen))
    assert counts[0] == counts[1] <= 8, (
        "two queries for a hundred changes, whatever the checkpoint"
    )
