"""A run is pinned to the graph that it was started with; another content under the same
name stops it, by name.
"""

from typing import Any

import pytest

from approvals.models import ApprovalRequest, Decision
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Ending
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Run, RunEvent, Worker
from checkpoints.queue import leases
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import discovery, runs
from orchestrator.engine import (
    END,
    START,
    Fact,
    Gate,
    Graph,
    Interval,
    Retry,
    Send,
    Show,
    Task,
    registry,
)
from orchestrator.engine.errors import IncompatibleGraph, WrongStatus
from orchestrator.worker import claimable
from tests.support import cast, run_actions
from tests.support.chain import join_in_a_row
from tests.support.rows import a_worker
from tests.support.small_graphs import (
    Notes,
    Order,
    advanced,
    graph,
    held,
    registered,
    slice_of,
    started,
)
from tests.support.versioned_graphs import Copied, Texts, deployed, in_euros, paying

pytestmark = pytest.mark.django_db(transaction=True)


def _graph(*nodes: str) -> Graph:
    flow = graph("versioned")
    for name in nodes:
        flow.node(name)(lambda state, ctx: {"notes": [ctx.node]})
    join_in_a_row(flow, *nodes)
    return flow


def test_a_run_whose_graph_has_other_content_stops_as_incompatible_with_the_cure() -> (
    None
):
    run = started(_graph("a"))
    registered(_graph("b"))
    run = runs.advance(run.id)
    assert run.status == Status.INCOMPATIBLE
    assert run.error_code == "incompatible_graph"
    error = stored_error(run)
    assert error is not None
    assert (
        "node `a`: was removed, and the run was about to go on there"
        in error["message"]
    )
    assert {change["what"] for change in error["changes"]} > {
        "node `a`",
        "node `b`",
        "edge `START>a`",
    }
    assert verify_run(run.id) == []


def test_an_incompatible_run_goes_on_where_its_graph_is_registered_again() -> None:
    run = started(_graph("a"))
    registered(_graph("b"))
    runs.advance(run.id)
    registered(_graph("a"))
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED


def _gone() -> None:
    """Leave this process without any graph."""
    registry.clear()


def _older() -> None:
    """Give this process the older graph, and let it be noted."""
    registered(_graph("a"))


@pytest.mark.parametrize("lacking", [_gone, _older])
def test_a_process_that_lacks_the_version_of_a_run_leaves_it_to_others_whoever_asks(
    lacking: Any,
) -> None:
    discovery.note_version(registry.replace(_graph("a")))
    run = started(_graph("a", "b"))
    lacking()
    assert leases.claim(worker=None, limit=9, only=claimable.claimable()) == []
    for _ in range(2):
        advanced_run = runs.advance(run.id)
        assert advanced_run.status == Status.QUEUED
        assert advanced_run.epoch == 0
        assert advanced_run.event_seq == run.event_seq
        assert advanced_run.error_code == ""
    slice_of(run)
    assert run.status == Status.QUEUED
    assert run.claims_since_progress == 0
    assert run.error_code == ""
    registered(_graph("a", "b"))
    assert runs.advance(run.id).status == Status.COMPLETED


def test_a_start_notes_every_version_of_its_graph_so_that_no_old_process_takes_the_run() -> (
    None
):
    registered(paying("1"))
    run = started(paying("2"))
    assert run.version == "2"
    registry.clear()
    registered(paying("1"))
    advanced_run = runs.advance(run.id)
    assert advanced_run.status == Status.QUEUED
    assert advanced_run.version == "2"
    assert advanced_run.event_seq == run.event_seq


def _asking(**corrected: Any) -> Graph:
    """A run of it waits for people; then words, limits and retries are corrected."""
    flow = graph("corrected", **corrected.pop("graph", {}))
    flow.node(
        "propose",
        effect="human",
        gate=Gate(reviewers=["group:claims"], **corrected.pop("gate", {})),
    )(lambda state, ctx: {"letter": "Dear"})
    flow.node("send", **corrected)(
        lambda state, ctx: {"notes": [f"sent {state.letter}"]}
    )
    for source, target in ((START, "propose"), ("propose", "send"), ("send", END)):
        flow.edge(source, target)
    return flow


def test_a_run_that_waits_goes_on_when_texts_limits_and_retries_of_its_graph_are_corrected(
    people: cast.People,
) -> None:
    old = {"writes": {"letter": Show(label="Lettre")}, "title": "Sned?"}
    run = advanced(
        _asking(gate=old, graph={"checkpoints": "none", "max_supersteps": 1})
    )
    assert run.status == Status.PAUSED
    shown = {
        "letter": Show(
            label="Letter", reversible="It can be called back.", money="amount"
        )
    }
    new = {"writes": shown, "title": "Send?", "facts": [Fact("Letter", "letter")]}
    kept = {
        "checkpoints": Interval(2),
        "snapshot": 1,
        "label": "Letter",
        "max_supersteps": 9,
        "on_save_error": "continue",
    }
    registered(
        _asking(
            gate=new,
            graph=kept,
            timeout=3,
            retry=Retry(),
            max_visits=3,
            checkpoint="both",
        )
    )
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["sent Dear"]
    assert read_value(ApprovalRequest.objects.get(), "title") == "Sned?", (
        "a request keeps what it was opened with"
    )
    assert verify_run(run.id) == []


def test_a_runaway_goes_on_under_a_higher_limit() -> None:
    def looping(most: int) -> Graph:
        flow = graph("looping", max_supersteps=most)
        flow.node("step")(lambda state, ctx: {"total": state.total + 1})
        flow.edge(START, "step")
        flow.branch("step", lambda state: state.total < 4, {True: "step", False: END})
        return flow

    run = advanced(looping(2))
    assert run.status == Status.FAILED
    assert run.error_code == "runaway"
    registered(looping(5))
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert verify_run(Run.objects.get().id) == []


def test_a_superstep_with_too_many_tasks_starts_none_and_goes_on_under_a_higher_limit() -> (
    None
):
    ran = []

    def fanning(most: int) -> Graph:
        flow = graph("fanning", max_tasks=most)
        flow.node("split", sends="work")(
            lambda state, ctx: [Send("work", n) for n in range(5)]
        )
        flow.node("work")(lambda state, ctx: ran.append(ctx.payload))
        flow.edge(START, "split")
        flow.edge("split", END)
        flow.edge("work", END)
        return flow

    run = advanced(fanning(4))
    assert run.status == Status.FAILED
    assert run.error_code == "runaway"
    assert run.superstep == 1
    assert ran == []
    registered(fanning(5))
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert sorted(ran) == [0, 1, 2, 3, 4]
    assert verify_run(run.id) == []


# Going on with another version


def _marked(state: Any) -> None:
    state["scratch"]["total"] = f"{state['scratch']['total']}!"


def _sources(run: Run) -> list[str]:
    return [row.source for row in timeline.list_checkpoints(run.id)][::-1]


def _version_facts(run: Run) -> dict[str, Any]:
    facts: dict[str, Any] = read_value(
        RunEvent.objects.get(run=run, type="version_changed"), "payload"
    )
    return facts


def test_a_run_goes_on_with_a_version_that_only_adds_and_its_log_says_what_was_added(
    people: cast.People,
) -> None:
    run = advanced(paying("1"))
    discovery.note_versions()
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    new = deployed(paying("2", Copied))
    run = runs.advance(run.id)
    state = run_actions.state(run)
    assert run.status == Status.COMPLETED
    assert state["notes"] == ["sent Dear 3"]
    assert state["copy_to"] == "archive"
    assert run.version == "2"
    assert run.fingerprint == registry.current(new.name).fingerprint
    assert _sources(run) == [
        "input",
        "superstep",
        "superstep",
        "version",
        "settlement",
        "superstep",
    ]
    document = _version_facts(run)
    assert document["version"] == "2"
    assert document["before"]["version"] == "1"
    assert document["migrations"] == []
    assert document["warnings"] == [
        "channel `copy_to`: is new, with the default archive"
    ]
    assert verify_run(run.id) == []


def test_a_migration_brings_the_state_into_its_new_types_and_says_so(
    people: cast.People,
) -> None:
    run = advanced(paying("1"))
    new = paying("2", Texts)
    new.migration(from_version="1")(in_euros)
    deployed(new)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED, stored_error(run)
    assert run_actions.state(run)["notes"] == ["sent Dear 3 euros"]
    assert _version_facts(run)["migrations"] == ["1 to 2"]
    assert _version_facts(run)["changed"] == ["copy_to", "total"]
    assert "channel `total`: number became text" in _version_facts(run)["warnings"]
    assert verify_run(run.id) == []


def test_steps_follow_each_other_to_the_version_that_is_here(
    people: cast.People,
) -> None:
    run = advanced(paying("1"))
    new = paying("3", Texts)
    new.migration(from_version="1", to_version="2")(_marked)
    new.migration(from_version="2")(in_euros)
    deployed(new)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run_actions.state(run)["notes"] == ["sent Dear 3! euros"]
    assert _version_facts(run)["migrations"] == ["1 to 2", "2 to 3"]


def _raising(state: Any) -> Any:
    raise KeyError("amount")


NONSENSE: dict[str, Any] = {
    "the migration from 1 to 2 failed: KeyError: 'amount'": _raising,
    "the migration from 1 to 2 failed: TypeError": lambda state: 7,
    "gave wrong; a state has scratch and artifacts": lambda state: {
        **state,
        "wrong": {},
    },
    "nothing is no channel of scratch in version 2": lambda state: state[
        "scratch"
    ].update(nothing=1),
    "the migration lost the channel letter": lambda state: {
        "scratch": {"notes": [], "total": "3"}
    },
    "total": lambda state: None,
}


@pytest.mark.parametrize("said", NONSENSE)
def test_a_migration_that_fails_or_returns_nonsense_leaves_the_run_as_it_was(
    said: str,
) -> None:
    run = started(paying("1"))
    new = paying("2", Texts)
    new.migration(from_version="1")(NONSENSE[said])
    deployed(new)
    before = timeline.state_at(run.head)
    run = runs.advance(run.id)
    error = stored_error(run)
    assert error is not None
    assert run.status == Status.INCOMPATIBLE
    assert run.version == "1"
    assert run.head_seq == 0
    assert said in error["message"]
    assert timeline.state_at(run.head) == before
    assert verify_run(run.id) == []


def test_what_a_migration_makes_of_a_guarded_channel_waits_for_signatures(
    people: cast.People,
) -> None:
    run = started(paying("1"))
    new = paying("2", Texts, guards=("letter", "total"))
    new.migration(from_version="1")(in_euros)
    deployed(new)
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert run.at_node == "$patch"
    assert _version_facts(run)["changed"] == ["copy_to"]
    assert _version_facts(run)["held"] == ["total"]
    assert run_actions.state(run)["total"] == 0, "nothing counts before it is signed"
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    (settled,) = [
        row for row in timeline.list_checkpoints(run.id) if row.source == "settlement"
    ]
    assert timeline.state_at(settled.id)["scratch"]["total"] == "0 euros"
    assert verify_run(run.id) == []


def test_a_rejected_migration_ends_the_run(people: cast.People) -> None:
    run = started(paying("1"))
    new = paying("2", Texts, guards=("letter", "total"))
    new.migration(from_version="1")(in_euros)
    deployed(new)
    runs.advance(run.id)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["reject"])
    assert runs.advance(run.id).status == Status.REJECTED


def test_what_people_are_asked_keeps_the_rule_under_which_it_was_asked(
    people: cast.People,
) -> None:
    run = advanced(paying("1"))
    deployed(paying("2", quorum=2))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run.version == "2"


def test_a_value_that_waits_to_be_signed_is_not_migrated(people: cast.People) -> None:
    run = advanced(paying("1"))
    rita = run_actions.reviewer(people.reviewer)
    run_actions.sign(run, rita, ["approve"])
    discovery.note_versions()

    class Number(Notes):
        letter: int = 0  # type: ignore[assignment]

    new = paying("2", Number)
    new.migration(from_version="1")(lambda state: state["scratch"].update(letter=1))
    deployed(new)
    run = runs.advance(run.id)
    error = stored_error(run)
    assert error is not None
    assert run.status == Status.INCOMPATIBLE
    assert (
        "channel `letter`: text became number, and a value of the old kind waits to be written"
        in error["message"]
    )


def test_a_failed_run_keeps_what_finished_in_its_open_superstep_when_the_version_changes() -> (
    None
):
    calls: list[str] = []

    def made(version: str, *, fails: bool, state: Any = Notes) -> Graph:
        flow = Graph("halves", version=version, input=Order, state=state)

        def pay(state: Any, ctx: Any) -> Any:
            calls.append(ctx.idempotency_key)
            return {"notes": ["paid"]}

        def call(state: Any, ctx: Any) -> Any:
            if fails:
                raise RuntimeError("no line")
            return {"notes": ["called"]}

        flow.node("pay", effect="external")(pay)
        flow.node("call")(call)
        for node in ("pay", "call"):
            flow.edge(START, node)
            flow.edge(node, END)
        return flow

    run = advanced(made("1", fails=True))
    assert run.status == Status.FAILED
    deployed(made("2", fails=False, state=Copied))
    runs.resume(run.id)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["paid", "called"]
    assert len(calls) == 1
    assert verify_run(run.id) == []


def test_while_a_live_worker_has_the_version_of_a_run_nobody_else_judges_it() -> None:
    run = started(_graph("a"))
    old = registry.current("versioned").fingerprint
    discovery.note_versions()
    registered(_graph("b"))
    worker = a_worker(fingerprints=[old])
    assert leases.claim(worker=None, limit=9, only=claimable.claimable()) == []
    assert runs.advance(run.id).status == Status.QUEUED
    Worker.objects.filter(id=worker.id).update(stopped_at=worker.heartbeat_at)
    assert len(leases.claim(worker=None, limit=9, only=claimable.claimable())) == 1


def test_workers_go_forwards_only_and_a_steward_lets_a_run_go_back(
    people: cast.People,
) -> None:
    deployed(paying("1"))
    discovery.note_versions()
    deployed(paying("2"))
    run = started(paying("2"))
    deployed(paying("1"))
    assert runs.advance(run.id).status == Status.QUEUED
    assert leases.claim(worker=None, limit=9, only=claimable.claimable()) == []
    resumed = runs.resume(run.id, by=people.steward)
    run.refresh_from_db()
    assert resumed.id == run.id
    assert run.version == "1"
    assert run.status == Status.QUEUED
    assert runs.advance(run.id).status == Status.PAUSED
    assert verify_run(run.id) == []


def test_a_steward_lets_no_run_go_back_whose_version_a_live_worker_has(
    people: cast.People,
) -> None:
    deployed(paying("1"))
    deployed(paying("2"))
    run = started(paying("2"))
    a_worker(fingerprints=[run.fingerprint])
    deployed(paying("1"))
    with pytest.raises(WrongStatus):
        runs.resume(run.id, by=people.steward)
    run.refresh_from_db()
    assert run.version == "2"


def test_what_waits_for_people_can_be_edited_where_another_version_takes_the_run(
    people: cast.People,
) -> None:
    run = advanced(paying("1"))
    deployed(paying("2", Copied))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), [("edit", "Hello")])
    run = runs.advance(run.id)
    assert run_actions.state(run)["letter"] == "Hello"


def test_nobody_edits_by_a_version_that_reads_what_is_signed_otherwise(
    people: cast.People,
) -> None:
    class Numbered(Notes):
        letter: int = 0  # type: ignore[assignment]

    run = advanced(paying("1"))
    reviewer = run_actions.reviewer(people.reviewer)
    migrated = paying("3", Numbered)
    migrated.migration(from_version="1")(
        lambda state: state["scratch"].update(letter=0)
    )
    for other in (paying("2", Numbered), migrated):
        deployed(other)
        with pytest.raises(
            IncompatibleGraph, match="channel `letter`: text became number"
        ):
            run_actions.sign(run, reviewer, [("edit", 7)])
    converted = paying("4", Texts)
    converted.migration(from_version="1")(in_euros)
    deployed(converted)
    with pytest.raises(IncompatibleGraph, match="is not installed here"):
        run_actions.sign(run, reviewer, [("edit", "Hello")])
    assert not Decision.objects.filter(run=run.id).exists()


def test_a_recorded_result_of_the_old_kind_is_never_written_into_the_new_type() -> None:
    flow = paying("1", nodes=("fetch", "send"), effect="write")
    run = started(flow)
    lease = held(run)
    entry = Ending(
        Task("send", 1, 0),
        1,
        "done",
        {"writes": [{"channel": "total", "value": 3, "label": None}]},
    )
    journal.write_intents(lease, [Intent(Task("send", 1, 0), 1, "write", "", 9.0)])
    journal.write_results(lease, [entry])
    leases.give_back(lease.id, lease.epoch)
    new = paying("2", Texts, nodes=("fetch", "send"), effect="write")
    new.migration(from_version="1")(in_euros)
    deployed(new)
    error = stored_error(runs.advance(run.id))
    assert error is not None
    assert "a value of the old kind waits to be written" in error["message"]


def test_workers_with_old_and_new_code_take_the_runs_of_their_versions() -> None:
    deployed(paying("1"))
    old_run = started(paying("1"))
    ours = claimable.claimable()
    old = a_worker(fingerprints=claimable.fingerprints())
    deployed(paying("2"))
    new_run = started(paying("2"))
    theirs = claimable.claimable()
    a_worker(fingerprints=claimable.fingerprints())
    discovery.note_versions()
    theirs = claimable.claimable()
    assert [lease.id for lease in leases.claim(worker=None, limit=9, only=theirs)] == [
        new_run.id
    ]
    assert [lease.id for lease in leases.claim(worker=None, limit=9, only=ours)] == [
        old_run.id
    ]
    Run.objects.update(status=Status.QUEUED)
    Worker.objects.filter(id=old.id).update(draining=True)
    claimed = leases.claim(worker=None, limit=9, only=claimable.claimable())
    assert {one.id for one in claimed} == {old_run.id, new_run.id}, (
        "the old one begins nothing new"
    )
