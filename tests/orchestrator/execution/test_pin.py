"""Going on with another version is one fenced commit: whole, or not at all, whoever
else writes meanwhile.
"""

from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from approvals.gates import lost_version
from approvals.models import ApprovalRequest
from checkpoints.core.status import Status
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Ending
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import head_loader
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Checkpoint, Run, RunEvent, TaskResult
from checkpoints.queue import leases
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Show, Sum, Task, registry
from orchestrator.engine.errors import (
    IncompatibleGraph,
    InvalidValue,
    StaleLease,
    WrongStatus,
)
from orchestrator.execution import loop
from orchestrator.execution.adoption import pin
from orchestrator.runs.forecast import forecast_runs
from orchestrator.runs.version_choice import ways_out
from tests.crash.abort import watching
from tests.support import cast, run_actions
from tests.support.deadlines import HOUR, let_come
from tests.support.small_graphs import Notes, Order, advanced, graph, held, started
from tests.support.statements import Breaks
from tests.support.versioned_graphs import Copied, Texts, deployed, in_euros, paying

pytestmark = pytest.mark.django_db(transaction=True)


def asked() -> Run:
    """A run that waits for people, in the hands of a worker that has the next version."""
    run = advanced(paying("1"))
    deployed(paying("2", Copied))
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    return run


def rows(run: Run) -> tuple[int, int, str]:
    row = Run.objects.get(id=run.id)
    return (
        Checkpoint.objects.filter(run=run).count(),
        RunEvent.objects.filter(run=run).count(),
        row.fingerprint,
    )


def test_a_signature_that_comes_in_between_is_kept_and_the_commit_made_anew(
    people: cast.People,
) -> None:
    run = asked()
    lease = held(run)
    head = head_loader.load_head(lease)
    run_input = head_loader.input_of(lease)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    after = pin.adopt_version(lease, head, run_input, registry.current("paying"))
    assert after.source == "version"
    assert lease.version == "2"
    assert RunEvent.objects.filter(run=run, type="version_changed").count() == 1
    Run.objects.filter(id=run.id).update(lease_until=run.created_at)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["sent Dear 3"]
    assert verify_run(run.id) == []


def test_who_lost_the_lease_pins_nothing() -> None:
    run = asked()
    lease = held(run)
    before = rows(run)
    head = head_loader.load_head(lease)
    run_input = head_loader.input_of(lease)
    Run.objects.filter(id=run.id).update(epoch=lease.epoch + 1)
    with pytest.raises(StaleLease):
        pin.adopt_version(lease, head, run_input, registry.current("paying"))
    assert rows(run) == before
    assert lease.version == "1"


@pytest.mark.parametrize("table", ["checkpoints_checkpoint", "checkpoints_runevent"])
def test_a_commit_that_breaks_leaves_the_run_on_its_own_version_and_the_next_worker_takes_it_on(
    table: str, people: cast.People
) -> None:
    run = asked()
    before = rows(run)
    with watching(Breaks(f'INSERT INTO "{table}"', after=False)):
        claimed = held(run)
        head = head_loader.load_head(claimed)
        run_input = head_loader.input_of(claimed)
        with pytest.raises(Exception, match="cut off|connection was cut"):
            pin.adopt_version(claimed, head, run_input, registry.current("paying"))
    assert rows(run) == before
    assert claimed.fingerprint == before[2]
    Run.objects.filter(id=run.id).update(lease_until=run.created_at)
    assert runs.advance(run.id).version == "2"
    assert verify_run(run.id) == []


def test_the_lease_knows_what_the_ledger_wrote() -> None:
    run = asked()
    lease = held(run)
    head = head_loader.load_head(lease)
    run_input = head_loader.input_of(lease)
    pin.adopt_version(lease, head, run_input, registry.current("paying"))
    ledger.refresh_lease(lease)
    row = Run.objects.get(id=run.id)
    assert row.head == lease.head
    assert row.version == lease.version
    assert row.fingerprint == lease.fingerprint


def test_an_effect_begun_before_a_crash_stays_with_its_version_if_the_new_one_delays_it() -> (
    None
):
    """Else its result would be left behind with the superstep, and it would happen
    again.
    """
    happened: list[str] = []

    def side_by_side(version: str, *more: tuple[str, str]) -> Graph:
        flow = graph("beside", version=version)
        flow.node("a")(lambda state, ctx: None)
        flow.node("pay", effect="external", idempotent=True)(
            lambda state, ctx: happened.append("paid")
        )
        for source, target in (
            (START, "a"),
            (START, "pay"),
            ("a", END),
            ("pay", END),
            *more,
        ):
            flow.edge(source, target)
        return flow

    run = started(side_by_side("1"))
    lease = held(run)
    task = Task("pay", 1, 0)
    journal.write_intents(lease, [Intent(task, 1, "external", "", 9.0)])
    journal.write_results(lease, [Ending(task, 1, "done", {"writes": []})])
    leases.give_back(lease.id, lease.epoch)
    deployed(side_by_side("2", ("a", "pay")))
    run = runs.advance(run.id)
    error = stored_error(run)
    assert error is not None
    assert run.status == Status.INCOMPATIBLE
    assert (
        error["because"]
        == "pay:1:0 began in the superstep in hand, and would not begin in it in version 2"
    )
    assert happened == []
    assert TaskResult.objects.filter(run=run, outcome="done").count() == 1


class Added(BaseModel):
    total: Annotated[int, Sum] = 0
    free: int = 0


class Beside(Notes):
    free: int = 0


def billing(
    version: str,
    state: type[BaseModel] = Beside,
    *,
    begins: int = 7,
    fails: bool = False,
    **policy: Any,
) -> Graph:
    """fetch sets the total, people are asked to set 120, beside a node that may fail;
    version 2 counts cents.
    """
    flow = Graph("billing", version=version, input=Order, state=state)
    gate = Gate(reviewers=["group:claims"], writes={"total": Show()}, **policy)
    flow.node("fetch")(lambda state, ctx: {"total": begins} if begins else None)
    flow.node("propose", effect="human", gate=gate)(lambda state, ctx: {"total": 120})

    def call(state: Any, ctx: Any) -> None:
        if fails:
            raise RuntimeError("no line")

    flow.node("call")(call)
    for source, target in (
        (START, "fetch"),
        ("fetch", "propose"),
        ("fetch", "call"),
        ("propose", END),
        ("call", END),
    ):
        flow.edge(source, target)
    if version == "2":
        flow.migration(from_version="1")(_in_cents)
    return flow


def _in_cents(state: Any) -> None:
    state["scratch"]["total"] *= 100


@pytest.mark.parametrize("state", [Beside, Added])
@pytest.mark.parametrize("begins", [7, 0])
@pytest.mark.parametrize("signs", ["before", "after"])
def test_what_was_proposed_in_euros_is_never_set_as_cents(
    state: type[BaseModel], begins: int, signs: str, people: cast.People
) -> None:
    run = advanced(billing("1", state, begins=begins))
    assert run.status == Status.PAUSED
    if signs == "before":
        run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    deployed(billing("2", state))
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    run = runs.advance(run.id)
    error = stored_error(run)
    assert error is not None
    assert run.status == Status.INCOMPATIBLE
    assert run_actions.state(run)["total"] == begins
    assert (
        "changes what `total` means, and a value of version 1 waits to be written there"
        in error["because"]
    )
    assert (
        "let the run end on version 1, registered beside the new one, or fork it"
        in error["because"]
    )
    with pytest.raises(InvalidValue, match="no migration sees it"):
        runs.fork(run.head or "")
    deployed(billing("1", state), billing("2", state))
    runs.resume(run.id)
    run = runs.advance(run.id)
    if signs == "after":
        run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
        run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run.version == "1"
    assert run_actions.state(run)["total"] == (120 + begins if state is Added else 120)
    assert verify_run(run.id) == []


def test_what_expired_in_euros_is_never_asked_about_as_cents(
    people: cast.People,
) -> None:
    policy = {"deadline": HOUR, "on_deadline": "fail"}
    run = advanced(billing("1", **policy))
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    deployed(billing("2", **policy))
    [group] = forecast_runs()
    assert (group.judgement.verdict, group.waiting) == ("migrated", 1)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    error = stored_error(run)
    assert error is not None
    assert run.status == Status.INCOMPATIBLE
    assert "changes what `total` means" in error["because"]
    assert ApprovalRequest.objects.filter(run=run).count() == 1


def test_what_an_open_superstep_keeps_in_euros_is_never_set_as_cents(
    people: cast.People,
) -> None:
    def paid(version: str, *, fails: bool) -> Graph:
        made = billing(version, fails=fails)
        made.node("pay")(lambda state, ctx: {"total": 120})
        made.edge("fetch", "pay")
        made.edge("pay", END)
        return made

    run = advanced(paid("1", fails=True))
    assert run.status == Status.FAILED
    deployed(paid("2", fails=False))
    runs.resume(run.id)
    run = runs.advance(run.id)
    error = stored_error(run)
    assert error is not None
    assert run.status == Status.INCOMPATIBLE
    assert "changes what `total` means" in error["because"]


def test_what_was_proposed_is_set_where_the_migration_leaves_its_channel_alone(
    people: cast.People,
) -> None:
    run = advanced(billing("1", Added))
    new = billing("3", Added)
    new.migration(from_version="1")(lambda state: state["scratch"].update(free=1))
    deployed(new)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run) == {"total": 127, "free": 1}


def test_a_migration_that_kills_its_process_is_not_tried_for_ever() -> None:
    run = started(paying("1"))
    tried = [0]
    new = paying("2")

    def killing(state: Any) -> None:
        tried[0] += 1
        raise KeyboardInterrupt

    new.migration(from_version="1")(killing)
    deployed(new)
    for _ in range(8):
        if (claim := leases.claim_one(run.id)) is None:
            break
        with suppress(KeyboardInterrupt):
            loop.run_slice(claim.id, claim.epoch)
        Run.objects.filter(id=run.id, status=Status.RUNNING).update(
            lease_until=run.created_at
        )
    run.refresh_from_db()
    assert run.status == Status.FAILED
    assert run.error_code == "poison"
    assert run.version == "1"
    assert tried[0] == 5
    mended = paying("2")
    mended.migration(from_version="1")(lambda state: None)
    deployed(mended)
    runs.resume(run.id)
    assert runs.advance(run.id).version == "2"


def test_a_run_that_waits_for_people_is_brought_onto_the_version_that_is_here_by_a_steward(
    people: cast.People,
) -> None:
    run = advanced(paying("1", quorum=2))
    rita = run_actions.reviewer(people.reviewer)
    run_actions.sign(run, rita, ["approve"])
    new = paying("2", Texts, quorum=2)
    new.migration(from_version="1")(in_euros)
    deployed(new)
    with pytest.raises(IncompatibleGraph, match="let a steward resume the run"):
        run_actions.sign(
            run, run_actions.reviewer(people.second_reviewer), [("edit", "Hello")]
        )
    resumed = runs.resume(run.id, by=people.steward)
    run.refresh_from_db()
    assert resumed.id == run.id
    assert run.status == Status.QUEUED
    assert run.version == "2"
    assert runs.advance(run.id).status == Status.PAUSED
    assert run_actions.request(run).status == "open"
    with pytest.raises(WrongStatus, match="waits for people"):
        runs.resume(run.id, by=people.steward)
    run_actions.sign(run, people.second_reviewer, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["sent Dear 3 euros"]
    assert verify_run(run.id) == []


def test_what_was_signed_comes_back_where_the_migration_moved_what_it_was_bound_to(
    people: cast.People,
) -> None:
    run = advanced(billing("1", shows=("free",), quorum=2))
    rita = run_actions.reviewer(people.reviewer)
    run_actions.sign(run, rita, ["approve"])
    new = billing("3", shows=("free",), quorum=2)
    new.migration(from_version="1")(lambda state: state["scratch"].update(free=1))
    deployed(new)
    runs.resume(run.id, by=people.steward)
    assert runs.advance(run.id).status == Status.PAUSED
    (row,) = run_actions.pending(run)
    assert row.revision == 2
    assert row.reason == "rebase"
    run_actions.sign(run, run_actions.reviewer(people.second_reviewer), ["approve"])
    assert runs.advance(run.id).status == Status.PAUSED, (
        "the first one signed beside another value"
    )
    assert verify_run(run.id) == []


@pytest.mark.parametrize(
    "migrates", [lambda state: state["scratch"].update(total=1), lambda state: 1 / 0]
)
def test_a_run_that_waits_for_people_stays_as_it_is_where_the_version_that_is_here_cannot_take_it(
    migrates: Any, people: cast.People
) -> None:
    run = advanced(billing("1"))
    before = len(run_actions.log(Run.objects.get()))
    new = billing("3")
    new.migration(from_version="1")(migrates)
    deployed(new)
    with pytest.raises(
        WrongStatus,
        match="waits for people.* register that beside version 3, or deploy a migration",
    ):
        runs.resume(run.id, by=people.steward)
    run.refresh_from_db()
    assert run.status == Status.PAUSED
    assert run.version == "1"
    assert len(run_actions.log(run)) == before
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["reject"])


def lettered(version: str, *nodes: str, at_deadline: str = "reject") -> Graph:
    """A letter that people are asked about for an hour, and nodes behind it, of which
    `send` acts. Without a yes, silence at the gate does what `at_deadline` says.
    """
    flow = Graph("lettered", version=version, input=Order, state=Notes)
    gate = Gate(
        reviewers=["group:claims"], deadline=HOUR, on_deadline=at_deadline, quorum=2
    )
    flow.node("propose", effect="human", gate=gate)(lambda state, ctx: {"letter": "Hi"})
    for name in nodes:
        effect = "external" if name == "send" else "pure"
        flow.node(name, effect=effect)(lambda state, ctx: {"notes": [ctx.task.node]})
    ends = ["propose", *nodes, END]
    flow.edge(START, "propose")
    flow.edge("propose", ends[1], when=("approved", "partial"))
    for source, target in pairwise(ends[1:]):
        flow.edge(source, target)
    return flow


def taken_on(run: Run, *graphs: Graph) -> Run:
    """The run after a worker with these versions has looked at it."""
    deployed(*graphs)
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    return runs.advance(run.id)


SILENT = (
    "gate of node `propose`: its deadline approves what people are asked now, and "
    "would let `send` act although nobody signed"
)


def test_silence_that_an_older_version_let_approve_never_leads_to_an_effect_of_a_later_one() -> (
    None
):
    run = advanced(lettered("1", "file", at_deadline="approve"))
    # The gate of the second version is stricter; what is asked keeps its policy.
    run = taken_on(run, lettered("2", "file"))
    assert (run.status, run.version) == (Status.PAUSED, "2")
    third = lettered("3", "file", "send")
    deployed(third)
    [group] = forecast_runs()
    assert group.to_json()["breaking"] == [SILENT]
    assert SILENT in str(lost_version.refusal_to_sign(run))
    Run.objects.filter(id=run.id).update(status=Status.INCOMPATIBLE)
    run.refresh_from_db()
    assert ways_out(run, forks=False).resume == ""

    run = taken_on(run, third)
    error = stored_error(run)
    assert error is not None
    assert run.status == Status.INCOMPATIBLE
    assert SILENT in error["message"]
    assert run_actions.state(run)["notes"] == []
    # Where the second version is registered beside it, silence still approves.
    deployed(lettered("2", "file"), third)
    runs.resume(run.id)
    let_come(run)
    run = runs.advance(run.id)
    assert (run.status, run.version) == (Status.COMPLETED, "2")
    assert run_actions.state(run)["notes"] == ["file"]
    assert verify_run(run.id) == []


@pytest.mark.parametrize("steps", [("3",), ("2", "3")])
def test_what_was_asked_before_silence_could_approve_is_never_approved_by_it(
    steps: tuple[str, ...], people: cast.People
) -> None:
    run = advanced(lettered("1", "file"))
    graphs = {
        "2": lettered("2", "file", at_deadline="approve"),
        "3": lettered("3", "file", "send"),
    }
    for version in steps:
        run = taken_on(run, graphs[version])
        assert (run.status, run.version) == (Status.PAUSED, version)
    rita = run_actions.reviewer(people.reviewer)
    run_actions.sign(run, rita, ["approve"])
    let_come(run)
    run = runs.advance(run.id)
    assert run.status == Status.REJECTED
    assert run_actions.state(run)["notes"] == []
    assert verify_run(run.id) == []


def test_what_expired_is_asked_anew_under_its_own_rule_two_versions_later(
    people: cast.People,
) -> None:
    run = advanced(lettered("1", "file", at_deadline="fail"))
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    for graph_here in (
        lettered("2", "file", at_deadline="approve"),
        lettered("3", "file", "send"),
    ):
        deployed(graph_here)
        runs.resume(run.id, by=people.steward)
        run = runs.advance(run.id)
        assert run.status == Status.PAUSED
        request = ApprovalRequest.objects.get(run=run, status="open")
        assert request.policy["on_deadline"] == "fail"
        let_come(run)
        run = runs.advance(run.id)
        assert run.error_code == "deadline_passed"
    assert run_actions.state(run)["notes"] == []
    assert verify_run(run.id) == []
