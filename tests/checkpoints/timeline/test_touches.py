"""What set a channel is found at the cost of what set it, along lines, and nothing that
was altered is believed.
"""

from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints import timeline
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow
from tests.support import forks, naive_history
from tests.support.cast import People
from tests.support.forging import tamper
from tests.support.long_runs import finished, head_of, long_graph
from tests.support.removed_history import delete_rows, remove_history
from tests.support.rows import a_checkpoint, a_run, sealed

pytestmark = pytest.mark.django_db(transaction=True)


def test_blame_reads_only_payloads_from_which_three_states_are_folded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = finished(long_graph(40, snapshot=4))
    read: list[int] = []
    bytes_of = reader.bytes_of

    def noted(row: Checkpoint, column: str, *rest: Any) -> bytes:
        read.append(row.seq)
        return bytes_of(row, column, *rest)

    monkeypatch.setattr(reader, "bytes_of", noted)
    blamed = timeline.blame(head_of(run).id, "letter")
    rows = {row.seq: row for row in naive_history.rows_of(run)}
    setting = max(seq for seq, row in rows.items() if "letter" in row.changed)
    assert blamed.checkpoint.seq == setting
    folded = set()
    for seq in (head_of(run).seq, setting, setting - 1):
        folded |= {*range(rows[seq].anchor, seq + 1)}
    assert set(read) <= folded
    read.clear()
    with CaptureQueriesContext(connection) as queries:
        timeline.blame(head_of(run).id, "letter")
    assert len(queries) <= 6


def test_the_cost_of_blame_does_not_grow_with_the_run() -> None:
    counts = []
    for steps in (5, 150):
        run = finished(long_graph(steps))
        head = head_of(run)
        with CaptureQueriesContext(connection) as queries:
            assert timeline.blame(head.id, "n").checkpoint.seq == head.seq - 1
        counts.append(len(queries))
    assert counts[1] <= counts[0]


@pytest.mark.parametrize("column", ["changed", "nodes", "change", "parent"])
def test_a_row_that_was_altered_is_refused_by_name(column: str) -> None:
    run = finished(long_graph())
    row = naive_history.rows_of(run)[-2]
    tamper(
        row,
        **{
            column: {"changed": [], "nodes": [], "change": b"\x00[]", "parent": run.id}[
                column
            ]
        },
    )
    with pytest.raises(TamperedRow) as refused:
        timeline.blame(head_of(run).id, "n")
    assert str(row.id) in str(refused.value.facts)


def test_a_checkpoint_that_is_gone_is_noticed() -> None:
    run = finished(long_graph())
    naive_history.rows_of(run)[-3].delete()
    with pytest.raises(TamperedRow, match="lost the checkpoints before it"):
        timeline.blame(head_of(run).id, "case.amount")


def rewound() -> Run:
    """Line 1 sets risk to 1, 2 and 3 and a note at 1; line 2 leaves at 1 and sets risk
    to 9; line 3 leaves line 2.
    """
    run = a_run(key="rewound")
    states: list[tuple[int, int, str, list[str]]] = [
        (1, 0, "", []),
        (1, 1, "noted", ["risk", "note"]),
        (1, 2, "noted", ["risk"]),
        (1, 3, "lost", ["risk", "note"]),
        (2, 1, "noted", []),
        (2, 9, "noted", ["risk"]),
        (3, 9, "noted", []),
        (3, 9, "last", ["note"]),
    ]
    parents: dict[int, int] = {4: 1, 6: 5}
    for seq, (line, risk, note, changed) in enumerate(states):
        more: dict[str, Any] = (
            {"source": "rewind", "superstep": parents[seq]} if seq in parents else {}
        )
        a_checkpoint(
            run,
            seq,
            line=line,
            scratch={"risk": risk, "note": note},
            changed=changed,
            nodes=entries(seq),
            **more,
        )
        if seq in parents:
            forks.began(run, line, Checkpoint.objects.get(run=run, seq=parents[seq]))
    sealed(run, line=3)
    return run


def entries(seq: int) -> list[dict[str, Any]]:
    return (
        [
            {
                "node": f"node{seq}",
                "visit": 1,
                "effect": "pure",
                "tasks": 1,
                "ms": 0,
                "outcome": "done",
            }
        ]
        if seq
        else []
    )


def test_a_line_goes_back_to_its_departure_and_not_through_superseded_checkpoints() -> (
    None
):
    run = rewound()
    at = {row.seq: row for row in naive_history.rows_of(run)}
    assert [step.checkpoint.seq for step in timeline.history(run.id, "risk")] == [
        0,
        1,
        5,
    ]
    assert [step.checkpoint.seq for step in timeline.history(run.id, "note")] == [
        0,
        1,
        7,
    ]
    wanted = {
        0: (0, 0),
        1: (1, 1),
        2: (2, 1),
        3: (3, 3),
        4: (1, 1),
        5: (5, 1),
        6: (5, 1),
        7: (5, 7),
    }
    for seq, (risk, note) in wanted.items():
        assert timeline.blame(at[seq].id, "risk").checkpoint.seq == risk
        assert timeline.blame(at[seq].id, "note").checkpoint.seq == note
    assert timeline.blame(at[7].id, "risk").node == "node5"
    assert timeline.neighbours(at[3], "risk") == (2, None)
    assert timeline.neighbours(at[6], "risk") == (5, None)
    assert timeline.neighbours(at[1], "risk") == (0, 5)


def test_where_a_line_lost_its_beginning_that_is_noticed() -> None:
    run = rewound()
    at = {row.seq: row for row in naive_history.rows_of(run)}
    at[4].delete()
    with pytest.raises(TamperedRow, match="lost the checkpoints before it"):
        timeline.blame(at[5].id, "note")


def test_behind_removed_history_a_value_is_traced_as_far_as_rows_are_left() -> None:
    run = finished(long_graph(12))
    before = {
        path: timeline.blame(head_of(run).id, path).checkpoint.seq
        for path in ("n", "case.by", "letter")
    }
    assert before["case.by"] == 1
    remove_history(run, checkpoints=(1, 9))
    at = head_of(run).id
    assert timeline.blame(at, "n").checkpoint.seq == before["n"]
    assert timeline.blame(at, "letter").checkpoint.seq == before["letter"]
    blamed = timeline.blame(at, "case.by")
    assert blamed.checkpoint.seq == 10, "the first that is left behind what was removed"
    assert blamed.node == "", "the first that is left behind what was removed"
    assert timeline.history(run.id, "n")[0].checkpoint.seq == 10
    delete_rows(run, checkpoints=(12, 13))
    with pytest.raises(TamperedRow, match="lost the checkpoints before it"):
        timeline.blame(at, "case.by")


def test_an_anchor_that_would_pass_over_rows_is_refused() -> None:
    run = finished(long_graph(12, snapshot=4))
    last = naive_history.rows_of(run)[-1]
    assert last.anchor > 4
    tamper(last, anchor=4)
    with pytest.raises(TamperedRow, match="not loaded from where it says"):
        timeline.blame(last.id, "case.by")


@pytest.mark.parametrize(
    "how", [{"encrypted": True}, {"payloads": "cellar"}], ids=["encrypted", "in files"]
)
def test_a_value_is_traced_wherever_its_bytes_are_and_however_they_are_kept(
    how: dict[str, Any], configure: Any, cellar: Path, people: People
) -> None:
    if "encrypted" in how:
        configure(ENCRYPTION_KEYS={"one": b"e" * 32})
    run = finished(long_graph(12, **how))
    states = naive_history.states_of(run)
    for path, seqs in list(naive_history.changed_at(states).items())[::5]:
        assert timeline.blame(head_of(run).id, path).checkpoint.seq == seqs[-1], path
    fork = runs.advance(
        forks.forked(run, 9, {"scratch": {"case": {"by": "x"}}}, by=people.starter).id
    )
    alignment = timeline.align(run.id, fork.id)
    assert alignment.split == ((run.id, 9), (run.id, 9))
    assert (
        timeline.blame(
            timeline.list_checkpoints(fork.id)[-1].id, "case.by"
        ).checkpoint.run_id
        == fork.id
    )
