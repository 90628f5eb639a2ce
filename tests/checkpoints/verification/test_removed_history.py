"""A stretch of history that was removed on purpose leaves one line, and all that is
left verifies and is read from there on. Any other gap is named, and so is a line that
nobody of ours wrote.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from approvals.models import Decision
from checkpoints import timeline
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.queue import jobs
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.store import CheckpointStore
from checkpoints.verification import audit, verify_run
from checkpoints.verification.removed_history import RemovedStretch, RemovedStretches
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.values import canonical
from orchestrator.jobs import kinds
from orchestrator.views.run_details import TABS
from tests.support import api_graphs, cast, run_actions
from tests.support import full_installation as full
from tests.support.forging import rewrite, tamper
from tests.support.large_states import large
from tests.support.memory_graphs import remember
from tests.support.paid_claims import paid
from tests.support.removed_history import (
    append_line,
    checkpoint_at,
    delete_rows,
    facts_of,
    give_snapshot,
    remove_history,
)
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)
NODES = "abcdefgh"


def a_run(**settings: Any) -> Run:
    """A run of checkpoints 0 to 8, of which only the first has a snapshot."""
    run = runs.advance(started(large("long", NODES, snapshot=1000, **settings)).id)
    assert run.head_seq == len(NODES)
    return run


@pytest.fixture
def run() -> Run:
    return a_run()


def states(run: Run) -> dict[int, Any]:
    """The state at each checkpoint that is there."""
    return {
        row.seq: timeline.state_at(row.id) for row in Checkpoint.objects.filter(run=run)
    }


def seals(run: Run) -> dict[int, tuple[bytes, str, str]]:
    rows = Checkpoint.objects.filter(run=run)
    return {
        row.seq: (bytes(row.seal or b""), row.content_hash, row.change_hash)
        for row in rows
    }


def reasons(run: Run) -> list[str]:
    return [fault.reason for fault in verify_run(run.id)]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize(
    ("checkpoints", "events"),
    [
        ((1, 3), None),
        ((0, 4), None),
        (None, (2, 6)),
        ((2, 5), (3, 9)),
        ((0, 7), (2, 9)),
        ((4, 4), (1, 1)),
    ],
    ids=str,
)
def test_what_is_left_verifies_and_is_read_as_it_was(
    checkpoints: Any, events: Any, encrypted: bool, configure: Any
) -> None:
    configure(**ONE_KEY)
    run = a_run(encrypted=encrypted)
    before = states(run)
    sealed = seals(run)
    remove_history(run, checkpoints=checkpoints, events=events)
    assert verify_run(run.id) == []
    after = states(run)
    assert len(after) == len(before) - (
        checkpoints[1] - checkpoints[0] + 1 if checkpoints else 0
    )
    assert {seq: before[seq] for seq in after} == after
    assert seals(run).items() <= sealed.items()


def test_stretches_that_lie_beside_each_other_are_followed_one_after_the_other(
    run: Run,
) -> None:
    for checkpoints, events in (((1, 2), (2, 3)), ((3, 4), (4, 6)), ((6, 7), (8, 9))):
        remove_history(run, checkpoints=checkpoints, events=events)
        assert verify_run(run.id) == []
    assert set(states(run)) == {0, 5, 8}


def test_a_later_line_may_cover_what_earlier_lines_removed(run: Run) -> None:
    remove_history(run, checkpoints=(2, 3), events=(3, 4))
    end = Run.objects.get(id=run.id).event_seq
    facts = facts_of(run, checkpoints=(1, 5), events=(2, end))
    delete_rows(run, checkpoints=(1, 5), events=(2, end))
    append_line(run, facts)
    assert [
        line
        for line in reasons(run)
        if "ended" not in line and "log does not say so" not in line
    ] == []
    assert set(states(run)) == {0, 6, 7, 8}


def test_the_line_that_says_how_a_run_ended_is_not_removed(run: Run) -> None:
    end = Run.objects.get(id=run.id).event_seq
    remove_history(run, events=(2, end))
    assert reasons(run) == [
        f"checkpoints_run {run.id} is completed, but its log does not say so"
    ]


def test_the_first_checkpoint_behind_a_stretch_says_what_it_holds_and_against_nothing(
    run: Run,
) -> None:
    remove_history(run, checkpoints=(1, 3))
    row = checkpoint_at(run, 4)
    assert timeline.parent_of(row) is None
    assert {
        (change.partition, change.path, change.kind) for change in timeline.changes(row)
    } >= {
        ("scratch", "letter", "added"),
        ("scratch", "notes", "added"),
    }
    assert [
        change.path
        for change in timeline.changes(checkpoint_at(run, 5))
        if change.partition == "scratch"
    ] == ["notes[3]"]


def test_a_run_goes_on_behind_what_was_removed_of_it(configure: Any) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = started(large("goes_on", NODES, snapshot=1000))
    for _ in range(5):
        run = slice_of(run)
    remove_history(run, checkpoints=(0, 3), events=(2, 4))
    while run.status == "queued":
        run = slice_of(run)
    assert run.status == "completed"
    assert run_actions.state(run)["notes"] == list(NODES[1:])
    assert verify_run(run.id) == []
    assert checkpoint_at(run, 8).anchor == 4


def test_stretches_are_removed_of_a_run_of_two_lines(people: cast.People) -> None:
    other_run = paid("two_lines", people)
    runs.rewind(
        other_run.id, f"{other_run.key}:at-1", allow_effects=["pay"], by=people.starter
    )
    first = runs.advance(other_run.id).head_seq
    run_actions.sign_open(other_run, people.reviewer, "approve")
    done = runs.advance(other_run.id)
    assert done.line == 2
    assert done.status == "completed"
    assert verify_run(done.id) == []
    before = states(done)
    begins = Checkpoint.objects.filter(run=done, line=2).order_by("seq")[0].seq
    remove_history(done, checkpoints=(2, begins - 1), events=(2, 6))
    assert verify_run(done.id) == []
    remove_history(done, checkpoints=(begins, first), events=(7, 9))
    assert verify_run(done.id) == []
    assert states(done) == {
        seq: before[seq] for seq in (0, 1, *range(first + 1, done.head_seq + 1))
    }


def test_the_pages_of_a_run_show_what_is_left(run: Run, people: cast.People) -> None:
    remove_history(run, checkpoints=(1, 3), events=(2, 5))
    browser = Client()
    browser.force_login(people.auditor)
    for tab in TABS:
        for at in (0, 4, 8):
            page = browser.get(reverse("run", args=[run.id]), {"tab": tab, "at": at})
            assert page.status_code == 200, (tab, at)
            assert "tampered" not in page.content.decode()


def test_a_head_that_was_anchored_in_the_audit_log_may_be_among_removed_lines(
    people: cast.People,
) -> None:
    api_graphs.register()
    other_run = runs.advance(
        runs.start("gated", {"claim_id": "C"}, by=people.starter).id
    )
    assert other_run.status == "paused"
    assert kinds.advance(jobs.add_job("anchor_heads", name="anchor_heads")).error == ""
    run_actions.sign(other_run, people.reviewer, ["approve"] * 3)
    done = runs.advance(other_run.id)
    for last in (other_run.event_seq, other_run.event_seq + 1):
        remove_history(done, events=(2 if last == other_run.event_seq else last, last))
        assert list(filter(None, audit())) == []
        assert verify_run(done.id) == []


def test_the_hash_of_the_last_removed_line_is_known() -> None:
    gone = RemovedStretches([RemovedStretch(3, 5, "b", "a")])
    assert [
        gone.ends_with(*line) for line in ((4, "x"), (5, "a"), (5, "x"), (6, "a"))
    ] == [True, True, False, False]
    assert [seq for seq in range(9) if seq in gone] == [3, 4, 5]
    assert gone.count == 3
    assert gone.last == 5
    assert bool(gone)
    assert not bool(RemovedStretches())


# Other gaps


def one_checkpoint_more_is_gone(run: Run) -> None:
    delete_rows(run, checkpoints=(5, 5))


def a_checkpoint_of_the_stretch_is_there_again(run: Run) -> None:
    row = checkpoint_at(run, 4)
    row.id = uuid4()
    row.seq = 2
    row.save(force_insert=True)


def one_line_more_is_gone(run: Run) -> None:
    delete_rows(run, events=(6, 6))


def the_line_is_gone(run: Run) -> None:
    line = RunEvent.objects.get(run=run, type="history_removed")
    delete_rows(run, events=(line.seq, line.seq))


def the_line_says_a_larger_stretch(run: Run) -> None:
    line = RunEvent.objects.get(run=run, type="history_removed")
    facts = timeline.payload_of(line)
    for part in ("checkpoints", "events"):
        facts[part] |= {
            "last": facts[part]["last"] + 1,
            "count": facts[part]["count"] + 1,
        }
    tamper(line, payload=pack_json(facts))
    delete_rows(run, checkpoints=(4, 4), events=(6, 6))


def another_line_became_one(run: Run) -> None:
    line = RunEvent.objects.get(run=run, type="history_removed")
    facts = timeline.payload_of(line)
    tamper(
        RunEvent.objects.get(run=run, seq=7),
        type="history_removed",
        payload=pack_json(facts),
    )
    delete_rows(run, events=(line.seq, line.seq))


OTHER_GAPS: list[Callable[[Run], None]] = [
    one_checkpoint_more_is_gone,
    a_checkpoint_of_the_stretch_is_there_again,
    one_line_more_is_gone,
    the_line_is_gone,
    the_line_says_a_larger_stretch,
    another_line_became_one,
]


@pytest.mark.parametrize("forge", OTHER_GAPS, ids=lambda forge: forge.__name__)
def test_any_other_gap_is_named(forge: Callable[[Run], None], run: Run) -> None:
    remove_history(run, checkpoints=(1, 3), events=(2, 5))
    assert verify_run(run.id) == []
    forge(run)
    assert verify_run(run.id) != []


def test_rows_of_a_stretch_that_are_back_leave_another_gap(run: Run) -> None:
    rows = [checkpoint_at(run, 3), RunEvent.objects.get(run=run, seq=5)]
    remove_history(run, checkpoints=(1, 3), events=(2, 5))
    for row in rows:
        row.save(force_insert=True)
    assert {
        f"checkpoints_checkpoint {run.id} from 1 to 2 are gone",
        f"checkpoints_runevent {run.id} lines 2 to 4 are gone",
    } <= {*reasons(run)}


def test_a_gap_that_a_forged_line_tells_of_is_named_beside_the_line(run: Run) -> None:
    remove_history(run, checkpoints=(1, 3))
    line = RunEvent.objects.get(run=run, type="history_removed")
    tamper(line, actor="mallory")
    run_reasons = reasons(run)
    assert (
        f"checkpoints_runevent {run.id} {line.seq} is not as it was sealed"
        in run_reasons
    )
    assert f"checkpoints_checkpoint {run.id} from 1 to 3 are gone" in run_reasons


WRONG: dict[str, dict[str, Any]] = {
    "a hash that no row before it had": {"before": "0" * 64},
    "a hash that the next row does not go on from": {"after": "0" * 64},
    "more rows than its numbers": {"count": 4},
    "a later beginning": {"first": 2, "count": 2},
    "a later end": {"last": 4, "count": 4},
    "numbers that are none": {"first": "1"},
    "an end before its beginning": {"first": 3, "last": 1, "count": -1},
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("part", ["checkpoints", "events"])
def test_a_line_that_says_something_else_than_what_is_gone_is_not_followed(
    part: str, wrong: str, run: Run
) -> None:
    stretch: Any = {part: (2, 4)}
    facts = facts_of(run, **stretch)
    delete_rows(run, **stretch)
    facts[part] |= WRONG[wrong]
    append_line(run, facts)
    assert verify_run(run.id) != []


def test_a_stretch_behind_which_no_row_can_be_loaded_is_named(run: Run) -> None:
    facts = facts_of(run, checkpoints=(1, 3))
    bare = {"snapshot": b"", "snapshot_hash": "", "snapshot_seal": None}
    tamper(checkpoint_at(run, 4), **bare)
    delete_rows(run, checkpoints=(1, 3))
    append_line(run, {**facts, "snapshots": []})
    assert any("cannot be loaded from 4" in reason for reason in reasons(run))
    with pytest.raises(TamperedRow):
        timeline.state_at(checkpoint_at(run, 8).id)


def test_a_snapshot_that_a_row_was_given_stays_the_one_that_the_line_says(
    run: Run,
) -> None:
    remove_history(run, checkpoints=(1, 3))
    row = checkpoint_at(run, 4)
    document = reader.document_at(row.id)
    assert document is not None
    forged = {**document, "scratch": {**document["scratch"], "total": 7}}
    data = canonical.encode(forged)
    # Even under a good seal.
    give_snapshot(row, forged)
    rewrite(row, snapshot_hash=protection_of(run).digest(data))
    assert any(
        "has another snapshot than its log says" in reason for reason in reasons(run)
    )


# Whoever else counts rows


def test_a_cancelled_run_verifies_though_the_line_that_asked_for_it_was_removed(
    people: cast.People,
) -> None:
    api_graphs.register()
    other_run = runs.advance(
        runs.start("gated", {"claim_id": "C"}, by=people.starter).id
    )
    other_run = runs.cancel(other_run.id, by=people.starter, reason="no more")
    line = RunEvent.objects.get(run=other_run, type="cancel_requested")
    remove_history(other_run, events=(2, line.seq))
    assert verify_run(other_run.id) == []


def test_a_fork_that_a_store_made_verifies_where_its_beginning_was_removed(
    run: Run,
) -> None:
    forked = CheckpointStore().fork(checkpoint_at(run, 4).id)
    other_run = runs.advance(runs.resume(forked.run).id)
    assert other_run.status == "completed"
    assert verify_run(other_run.id) == []
    begins = (
        Checkpoint.objects.filter(run=other_run, source="fork").order_by("-seq")[0].seq
    )
    remove_history(other_run, checkpoints=(begins, begins + 1))
    assert verify_run(other_run.id) == []


def test_decisions_requests_and_results_whose_lines_were_removed_verify(
    tmp_path: Path, people: cast.People
) -> None:
    run = full.a_full_run(tmp_path, people.reviewer)
    assert verify_run(run.id) == []
    remove_history(
        run, checkpoints=(1, run.head_seq - 1), events=(2, run.event_seq - 1)
    )
    assert verify_run(run.id) == []


def test_a_decision_is_missed_though_its_line_was_removed(
    tmp_path: Path, people: cast.People
) -> None:
    run = full.a_full_run(tmp_path, people.reviewer)
    remove_history(run, events=(2, run.event_seq - 1))
    full.remove(Decision.objects.filter(run=run.id)[0])
    assert f"checkpoints_run {run.id} counts 4 decisions, but 3 are there" in reasons(
        run
    )


def test_what_landed_in_memory_under_removed_lines_verifies() -> None:
    run = remember("key", "content")
    remove_history(run, events=(2, run.event_seq - 1))
    assert verify_run(run.id) == []
