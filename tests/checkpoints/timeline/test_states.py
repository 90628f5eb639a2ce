"""A run's history is read as it was written."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints import timeline
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.errors import UnknownThing
from tests.support.chain import join_in_a_row
from tests.support.forging import remove
from tests.support.large_states import large
from tests.support.rows import a_checkpoint, a_run, an_event, missing
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    """Three supersteps: `fetch` sets notes, `assess` sets risk and adds a note, `look`
    changes a nested value.
    """
    run = a_run(key="CLM-7", input={"amount": "10.00"})
    a_checkpoint(run, 0, scratch={"notes": [], "risk": 0, "case": {}})
    a_checkpoint(
        run,
        1,
        scratch={"notes": ["a"], "risk": 0, "case": {}},
        versions={"notes": 1},
        nodes=[{"node": "fetch"}],
    )
    a_checkpoint(
        run,
        2,
        scratch={"notes": ["a", "b"], "risk": 3, "case": {"open": True}},
        versions={"notes": 2, "risk": 2, "case": 2},
        nodes=[{"node": "assess"}],
        diagnostics={"count": 1},
    )
    return run


def test_the_list_is_newest_first_and_goes_on_before_a_seq(run: Run) -> None:
    assert [c.seq for c in timeline.list_checkpoints(run.id)] == [2, 1, 0]
    assert [c.seq for c in timeline.list_checkpoints(run.id, limit=1, before=2)] == [1]


def test_the_list_reads_no_payload_and_takes_one_query(run: Run) -> None:
    with CaptureQueriesContext(connection) as queries:
        listed = timeline.list_checkpoints(run.id)
        assert [timeline.alias_of(c) for c in listed] == [
            "CLM-7:at-2",
            "CLM-7:at-1",
            "CLM-7:initial",
        ]
    assert len(queries) == 1
    assert 'snapshot"' not in queries[0]["sql"]
    assert {"snapshot", "change"} <= listed[0].get_deferred_fields()


def test_a_recovery_point_is_in_no_list_and_behind_no_alias(run: Run) -> None:
    point = a_checkpoint(run, 3, kept=False)
    assert [c.seq for c in timeline.list_checkpoints(run.id)] == [2, 1, 0]
    for name in (str(point.id), "CLM-7:at-3", "CLM-7:step-3"):
        with pytest.raises(UnknownThing):
            timeline.get_checkpoint(name)


def test_each_alias_names_its_checkpoint(run: Run) -> None:
    a_checkpoint(run, 3, superstep=2, source="settlement")
    wanted = {
        "initial": 0,
        "at-1": 1,
        "at-2": 2,
        "step-1": 1,
        "step-2": 3,
        "line-1:step-2": 3,
    }
    assert {
        name: timeline.get_checkpoint(f"CLM-7:{name}").seq for name in wanted
    } == wanted


def test_a_step_is_that_of_the_current_line_and_older_lines_are_named(run: Run) -> None:
    a_checkpoint(run, 3, superstep=2, line=2)
    Run.objects.filter(id=run.id).update(line=2)
    assert timeline.get_checkpoint("CLM-7:step-2").seq == 3
    assert timeline.get_checkpoint("CLM-7:line-1:step-2").seq == 2
    with pytest.raises(UnknownThing):
        timeline.get_checkpoint("CLM-7:step-1")


def test_all_aliases_of_a_checkpoint_lead_back_to_it(run: Run) -> None:
    a_checkpoint(run, 3, superstep=2, source="settlement")
    for checkpoint in timeline.list_checkpoints(run.id):
        names = timeline.aliases(checkpoint)
        assert f"CLM-7:at-{checkpoint.seq}" in names
        assert {timeline.get_checkpoint(name).id for name in names} == {checkpoint.id}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "CLM-7",
        "CLM-7:",
        "CLM-7:step-",
        "CLM-7:step-9",
        "CLM-8:initial",
        "CLM%:initial",
        "a:b:initial",
        "x" * 300,
    ],
)
def test_what_names_no_checkpoint_is_unknown(run: Run, name: str) -> None:
    with pytest.raises(UnknownThing):
        timeline.get_checkpoint(name)


def test_the_state_holds_the_four_partitions_and_takes_one_query(run: Run) -> None:
    checkpoint = timeline.get_checkpoint("CLM-7:at-2")
    with CaptureQueriesContext(connection) as queries:
        state = timeline.state_at(checkpoint.id)
    assert len(queries) == 1
    assert state == {
        "input": {"amount": "10.00"},
        "scratch": {"notes": ["a", "b"], "risk": 3, "case": {"open": True}},
        "artifacts": {},
        "diagnostics": {"count": 1},
    }


def test_the_state_now_is_that_of_the_recovery_point(run: Run) -> None:
    a_checkpoint(run, 3, kept=False, scratch={"risk": 9})
    assert timeline.head_state(run.id)["scratch"] == {"risk": 9}


def test_a_change_says_path_values_and_the_node_that_set_it(run: Run) -> None:
    changes = timeline.changes(timeline.get_checkpoint("CLM-7:at-2"))
    assert [
        (c.partition, c.path, c.kind, c.before, c.after, c.set_by) for c in changes
    ] == [
        ("scratch", "case.open", "added", None, True, "assess"),
        ("scratch", "notes[1]", "added", None, "b", "assess"),
        ("scratch", "risk", "changed", 0, 3, "assess"),
        ("diagnostics", "count", "added", None, 1, ""),
    ]


def test_the_changes_of_the_first_checkpoint_are_the_defaults(run: Run) -> None:
    changes = timeline.changes(timeline.get_checkpoint("CLM-7:initial"))
    assert [(c.path, c.kind, c.after) for c in changes] == [
        ("case", "added", {}),
        ("notes", "added", []),
        ("risk", "added", 0),
    ]


def test_a_diff_goes_from_the_first_to_the_second_whatever_their_order(
    run: Run,
) -> None:
    first = timeline.get_checkpoint("CLM-7:initial").id
    last = timeline.get_checkpoint("CLM-7:at-2").id
    assert [
        (c.path, c.before, c.after)
        for c in timeline.diff(first, last)
        if c.path == "risk"
    ] == [("risk", 0, 3)]
    assert [
        (c.path, c.before, c.after)
        for c in timeline.diff(last, first)
        if c.path == "risk"
    ] == [("risk", 3, 0)]
    assert timeline.diff(last, last) == []


def test_a_diff_of_two_runs_compares_their_inputs_too(run: Run) -> None:
    other = a_run(input={"amount": "20.00"})
    there = a_checkpoint(other, 0, scratch={"notes": [], "risk": 0, "case": {}})
    changes = timeline.diff(timeline.get_checkpoint("CLM-7:initial").id, there.id)
    assert [(c.partition, c.path, c.after) for c in changes] == [
        ("input", "amount", "20.00")
    ]


def test_a_diff_with_nothing_is_unknown_and_its_reads_are_bounded(run: Run) -> None:
    here = timeline.get_checkpoint("CLM-7:at-2").id
    with pytest.raises(UnknownThing):
        timeline.diff(here, missing())
    with CaptureQueriesContext(connection) as queries:
        timeline.diff(timeline.get_checkpoint("CLM-7:initial").id, here)
    assert len(queries) == 4  # the alias, both payloads, the nodes


def test_the_log_goes_on_after_the_line_that_was_seen(run: Run) -> None:
    for seq in (1, 2, 3):
        an_event(run, seq, payload={"n": seq})
    an_event(a_run(), 2)
    assert [
        (e.seq, read_value(e, "payload")) for e in timeline.events_after(run.id, 1)
    ] == [
        (2, {"n": 2}),
        (3, {"n": 3}),
    ]
    assert [e.seq for e in timeline.events_after(run.id, 0, limit=2)] == [1, 2]
    assert timeline.events_after(run.id, 3) == []


@pytest.mark.django_db(transaction=True)
def test_a_run_whose_first_event_is_gone_does_not_prove_how_it_was_started() -> None:
    flow = graph("beheaded")
    flow.node("only")(lambda state, ctx: None)
    join_in_a_row(flow, "only")
    run = advanced(flow)
    assert timeline.fault_of_run(run) is None
    remove(RunEvent.objects.get(run=run, seq=1))
    fault = timeline.fault_of_run(run)
    assert fault is not None
    assert fault.row == f"checkpoints_runevent {run.id} line 1"


def test_the_full_payload_can_be_read(run: Run) -> None:
    checkpoint = Checkpoint.objects.get(run=run, seq=1)
    assert timeline.snapshot_of(checkpoint)["versions"] == {"notes": 1}


def test_an_id_and_its_text_find_the_same_and_nonsense_finds_nothing_by_name(
    run: Run,
) -> None:
    head = timeline.list_checkpoints(run.id)[0].id
    for text in (str(run.id), run.id.hex, str(run.id).upper()):
        assert [c.seq for c in timeline.list_checkpoints(text)] == [2, 1, 0]
        assert timeline.head_state(text) == timeline.head_state(run.id)
        assert (
            list(timeline.events(text))
            == list(timeline.events(run.id))
            == timeline.events_after(text, 0)
        )
    assert timeline.state_at(str(head)) == timeline.state_at(head)
    assert timeline.diff(str(head), str(head)) == []
    assert timeline.get_checkpoint(str(head)).id == head
    for nothing in ("CLM-7", "", "\x00", "\ud800", 7, None):
        for ask in (
            timeline.list_checkpoints,
            timeline.head_state,
            timeline.events,
            timeline.state_at,
        ):
            with pytest.raises(UnknownThing):
                ask(nothing)  # type: ignore[operator]


@pytest.mark.django_db(transaction=True)
def test_where_supersteps_left_no_row_each_change_names_the_node_that_made_it() -> None:
    flow = graph("no_rows", checkpoints="none", snapshot=1000)
    flow.node("large", checkpoint="after")(
        lambda state, ctx: {"notes": [f"{n}" * 9 for n in range(300)]}
    )
    flow.node("first")(lambda state, ctx: {"letter": "Dear"})
    flow.node("second")(lambda state, ctx: {"total": 2})
    flow.node("third")(lambda state, ctx: {"notes": ["third"]})
    join_in_a_row(flow, "large", "first", "second", "third")
    run = advanced(flow)
    [last, _, _] = timeline.list_checkpoints(run.id)
    nodes = {
        change.path: change.set_by
        for change in timeline.changes(last)
        if change.partition == "scratch"
    }
    assert nodes == {"letter": "first", "total": "second", "notes[300]": "third"}
    assert {path: timeline.blame(last.id, path).node for path in nodes} == nodes


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("snapshot", [3, 1000])
def test_changes_are_a_diff_against_the_parent_and_read_no_row_again(
    snapshot: int,
) -> None:
    run = advanced(large("read_once", "abcdef", snapshot=snapshot))
    with_parent = timeline.list_checkpoints(run.id)[:-1]
    assert len(with_parent) > 4
    for row in with_parent:
        assert row.parent is not None
        expected = timeline.diff(row.parent, row.id)
        assert timeline.changes(timeline.get_checkpoint(row.id)) == expected

        checkpoint = timeline.read_checkpoint(row.id)
        assert checkpoint is not None
        timeline.snapshot_of(checkpoint)
        with CaptureQueriesContext(connection) as queries:
            assert timeline.changes(checkpoint) == expected
        # The parent, and who set each value.
        assert len(queries) == 2
