"""What a worker reads of a run that it takes over: each forgery that leaves all other
rows as they were is refused.
"""

from collections.abc import Callable
from typing import Any

import pytest

from checkpoints import timeline
from checkpoints.core import codec
from checkpoints.core.keyring import ENCRYPTED
from checkpoints.ledger import reader, run_error
from checkpoints.ledger.checkpoint_rows import content_hash
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import PLAIN, protection_of
from checkpoints.verification import verify_run
from orchestrator.engine import Interval
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.values import canonical, ops
from tests.support.forging import remove, rewrite, tamper
from tests.support.large_states import large, last
from tests.support.removed_history import give_snapshot
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(configure: Any) -> Run:
    """A queued run whose head is the fifth row behind its only snapshot."""
    configure(SLICE_SECONDS=1e-9)
    run = started(large("loads", "abcdefgh", snapshot=1000))
    for _ in range(5):
        run = slice_of(run)
    assert run.status == "queued"
    assert run.head_seq == 5
    assert last(run).anchor == 0
    return run


def row(run: Run, seq: int) -> Checkpoint:
    return Checkpoint.objects.get(run=run, seq=seq)


def forged_state(run: Run) -> dict[str, Any]:
    document = reader.document_at(row(run, 0).id)
    assert document is not None
    return {**document, "scratch": {**document["scratch"], "total": 7}}


def a_snapshot_with_its_hash(run: Run) -> None:
    forged = forged_state(run)
    tamper(
        row(run, 0),
        snapshot=pack_json(forged),
        snapshot_hash=PLAIN.digest(canonical.encode(forged)),
    )


def a_snapshot_alone(run: Run) -> None:
    tamper(row(run, 0), snapshot=pack_json(forged_state(run)))


def _forged_change(run: Run) -> list[ops.Op]:
    return [
        *canonical.loads(reader.bytes_of(row(run, 3), "change")),
        ops.within({"scratch": ops.put({})}),
    ]


def a_change_alone(run: Run) -> None:
    tamper(row(run, 3), change=pack_json(_forged_change(run)))


def a_change_with_its_hash(run: Run) -> None:
    forged = _forged_change(run)
    tamper(
        row(run, 3),
        change=pack_json(forged),
        change_hash=PLAIN.digest(canonical.encode(forged)),
    )


def a_change_with_all_hashes_of_its_row(run: Run) -> None:
    a_change_with_its_hash(run)
    stored_row = row(run, 3)
    tamper(
        stored_row,
        content_hash=content_hash(stored_row, row(run, 2).content_hash, PLAIN),
    )


def the_superstep_of_the_head(run: Run) -> None:
    stored_row = row(run, 5)
    stored_row.superstep += 1
    tamper(stored_row, superstep=stored_row.superstep)


def what_the_head_shows_of_its_nodes(run: Run) -> None:
    tamper(row(run, 5), nodes=[])


def a_row_is_gone(run: Run) -> None:
    remove(row(run, 3))


def the_row_with_the_snapshot_is_gone(run: Run) -> None:
    remove(row(run, 0))


def the_seal_of_the_snapshot_is_gone(run: Run) -> None:
    tamper(row(run, 0), snapshot_seal=None)


def the_seal_of_the_snapshot_is_that_of_another_row(run: Run) -> None:
    other = row(run, 3)
    give_snapshot(other)
    tamper(row(run, 0), snapshot_seal=other.snapshot_seal)
    tamper(row(run, 5), anchor=0)


def the_snapshot_of_another_row_with_its_hash_and_seal(run: Run) -> None:
    other = row(run, 3)
    give_snapshot(other)
    tamper(
        row(run, 0),
        **{
            name: getattr(other, name)
            for name in ("snapshot", "snapshot_hash", "snapshot_seal")
        },
    )
    tamper(row(run, 5), anchor=0)


def the_snapshot_is_gone_with_its_hash_and_seal(run: Run) -> None:
    tamper(row(run, 1), snapshot=b"", snapshot_hash="", snapshot_seal=None)
    tamper(row(run, 5), anchor=1)


def the_load_begins_at_a_row_without_a_snapshot(run: Run) -> None:
    tamper(row(run, 5), anchor=3)


def the_load_begins_behind_the_head(run: Run) -> None:
    tamper(row(run, 5), anchor=1000)


def the_head_is_another_row(run: Run) -> None:
    Run.objects.filter(id=run.id).update(head=row(run, 4).id)


def the_head_has_another_seal(run: Run) -> None:
    tamper(row(run, 5), seal=row(run, 4).seal)


FORGERIES: list[Callable[[Run], None]] = [
    a_snapshot_with_its_hash,
    a_snapshot_alone,
    a_change_alone,
    a_change_with_its_hash,
    a_change_with_all_hashes_of_its_row,
    the_superstep_of_the_head,
    what_the_head_shows_of_its_nodes,
    a_row_is_gone,
    the_row_with_the_snapshot_is_gone,
    the_seal_of_the_snapshot_is_gone,
    the_seal_of_the_snapshot_is_that_of_another_row,
    the_snapshot_of_another_row_with_its_hash_and_seal,
    the_snapshot_is_gone_with_its_hash_and_seal,
    the_load_begins_at_a_row_without_a_snapshot,
    the_load_begins_behind_the_head,
    the_head_is_another_row,
    the_head_has_another_seal,
]


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_no_worker_goes_on_from_what_was_forged(
    forge: Callable[[Run], None], run: Run
) -> None:
    forge(run)
    before = Checkpoint.objects.filter(run=run).count()
    stopped = slice_of(run)
    assert stopped.status == "tampered"
    assert stopped.error_code == "tampered_row"
    assert Checkpoint.objects.filter(run=run).count() == before
    assert run_error.stored_error(stopped)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_verification_names_what_was_forged(
    forge: Callable[[Run], None], run: Run
) -> None:
    assert verify_run(run.id) == []
    forge(run)
    assert verify_run(run.id) != []


@pytest.mark.parametrize("begin", [0, 1, -7])
def test_a_load_that_was_made_to_begin_earlier_comes_to_the_same_state_and_is_named(
    begin: int, configure: Any
) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = started(large("earlier", "abcdefgh", snapshot=2))
    for _ in range(5):
        run = slice_of(run)
    head = row(run, 5)
    assert head.anchor == 4
    before = timeline.state_at(head.id)
    tamper(head, anchor=begin)
    if begin == 1:
        with pytest.raises(
            TamperedRow, match="is not the whole of a state to load from"
        ):
            timeline.state_at(head.id)
        return
    assert timeline.state_at(head.id) == before
    assert any("cannot be loaded from" in fault.reason for fault in verify_run(run.id))
    again = slice_of(run)
    assert again.status == "queued"
    assert again.head_seq == 6
    assert row(run, 6).anchor == 6


def test_a_load_never_begins_on_another_line(run: Run) -> None:
    before = timeline.state_at(row(run, 3).id)
    rows = Checkpoint.objects.filter(run=run, seq__gte=4)
    protection = protection_of(run)
    # As if line 2 had departed from checkpoint 3.
    first, second = rows.order_by("seq")
    document = reader.document_at(row(run, 3).id)
    give_snapshot(first, document)
    rewrite(first, line=2, change=pack_json([ops.put(document)]), parent=row(run, 3).id)
    rewrite(second, line=2, change=pack_json([]), change_hash=protection.digest(b"[]"))
    stored_row = row(run, 5)
    rewrite(
        stored_row,
        content_hash=content_hash(stored_row, row(run, 4).content_hash, protection),
    )
    for begin in (4, 3, 0):
        tamper(stored_row, anchor=begin)
        assert [one.seq for one in reader.range_of(stored_row.id)] == [4, 5]
        assert timeline.state_at(stored_row.id) == before


def test_a_row_whose_load_begins_behind_it_is_tampered_and_not_unknown(
    run: Run,
) -> None:
    tamper(row(run, 3), anchor=1000)
    with pytest.raises(TamperedRow, match="is not the whole of a state to load from"):
        timeline.state_at(row(run, 3).id)


def test_rows_behind_a_row_that_says_another_begin_are_loaded_from_where_the_worker_was(
    configure: Any,
) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = started(large("goes_on", "abcdefgh", snapshot=1000, checkpoints=Interval(2)))
    for _ in range(5):
        run = slice_of(run)
    head = last(run)
    assert head.kept is False
    assert head.seq == 3
    assert head.anchor == 1
    assert row(run, 2).anchor == 1
    tamper(row(run, 2), anchor=1000)
    assert slice_of(run).status == "queued"
    assert last(run).anchor == 1


def test_a_recovery_point_that_was_cut_off_from_the_row_before_it_is_refused(
    configure: Any,
) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = slice_of(started(large("cut_off", "abcdefgh", checkpoints="none")))
    head = row(run, 1)
    assert head.kept is False
    assert head.anchor == 0
    assert reader.bytes_of(head, "change").startswith(reader.WHOLE)
    tamper(head, anchor=1)
    assert slice_of(run).status == "tampered"


def test_a_run_that_nobody_forged_goes_on_from_where_it_was(run: Run) -> None:
    again = slice_of(run)
    assert again.status == "queued"
    assert again.head_seq == 6


def test_a_head_that_was_written_anew_under_a_good_seal_is_not_the_one_that_the_run_names(
    run: Run,
) -> None:
    head = row(run, 5)
    forged = [ops.put(forged_state(run))]
    tamper(head, change=pack_json(forged))
    head.change_hash = protection_of(run).digest(canonical.encode(forged))
    head.content_hash = content_hash(head, row(run, 4).content_hash, protection_of(run))
    rewrite(head, change_hash=head.change_hash, content_hash=head.content_hash)
    assert slice_of(run).status == "tampered"


@pytest.mark.parametrize("seq", [0, 3, 5])
def test_a_plain_payload_in_an_encrypted_run_is_refused_though_it_says_the_same(
    configure: Any, seq: int
) -> None:
    configure(**ONE_KEY, SLICE_SECONDS=1e-9)
    run = started(large("secret", "abcdefgh", snapshot=1000, encrypted=True))
    for _ in range(5):
        run = slice_of(run)
    stored_row = row(run, seq)
    column = "change" if seq else "snapshot"
    assert bytes(getattr(stored_row, column))[:1] == ENCRYPTED
    tamper(stored_row, **{column: codec.pack(reader.bytes_of(stored_row, column))})
    assert slice_of(run).status == "tampered"
