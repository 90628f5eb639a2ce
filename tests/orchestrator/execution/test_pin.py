"""Going on with another version is one fenced commit: whole, or not at all, whoever else writes meanwhile."""

import pytest

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
from orchestrator.engine import END, START, Graph, Task, registry
from orchestrator.engine.errors import StaleLease
from orchestrator.execution.adoption import pin
from tests.crash.abort import watching
from tests.support import cast, run_actions
from tests.support.small_graphs import advanced, graph, held, started
from tests.support.statements import Breaks
from tests.support.versioned_graphs import Copied, deployed, paying

pytestmark = pytest.mark.django_db(transaction=True)


def asked() -> Run:
    """A run that waits for people, in the hands of a worker that has the next version."""
    run = advanced(paying("1"))
    deployed(paying("2", Copied))
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    return run


def rows(run: Run) -> tuple[int, int, str]:
    found = Run.objects.get(id=run.id)
    return Checkpoint.objects.filter(run=run).count(), RunEvent.objects.filter(run=run).count(), found.fingerprint


def test_a_signature_that_comes_in_between_is_kept_and_the_commit_made_anew(people: cast.People) -> None:
    run = asked()
    lease = held(run)
    head, given = head_loader.load_head(lease), head_loader.input_of(lease)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    after = pin.adopt_version(lease, head, given, registry.current("paying"))
    assert (after.source, lease.version) == ("version", "2")
    assert RunEvent.objects.filter(run=run, type="version_changed").count() == 1
    Run.objects.filter(id=run.id).update(lease_until=run.created_at)
    run = runs.advance(run.id)
    assert (run.status, run_actions.state(run)["notes"]) == (Status.COMPLETED, ["sent Dear 3"])
    assert verify_run(run.id) == []


def test_who_lost_the_lease_pins_nothing() -> None:
    run = asked()
    lease, before = held(run), rows(run)
    head, given = head_loader.load_head(lease), head_loader.input_of(lease)
    Run.objects.filter(id=run.id).update(epoch=lease.epoch + 1)
    with pytest.raises(StaleLease):
        pin.adopt_version(lease, head, given, registry.current("paying"))
    assert (rows(run), lease.version) == (before, "1")


@pytest.mark.parametrize("table", ["checkpoints_checkpoint", "checkpoints_runevent"])
def test_a_commit_that_breaks_leaves_the_run_on_its_own_version_and_the_next_worker_takes_it_on(
    table: str, people: cast.People
) -> None:
    run = asked()
    before = rows(run)
    with watching(Breaks(f'INSERT INTO "{table}"', after=False)):
        claimed = held(run)
        head, given = head_loader.load_head(claimed), head_loader.input_of(claimed)
        with pytest.raises(Exception, match="cut off|connection was cut"):
            pin.adopt_version(claimed, head, given, registry.current("paying"))
    assert rows(run) == before
    assert claimed.fingerprint == before[2]
    Run.objects.filter(id=run.id).update(lease_until=run.created_at)
    assert runs.advance(run.id).version == "2"
    assert verify_run(run.id) == []


def test_the_lease_knows_what_the_ledger_wrote() -> None:
    run = asked()
    lease = held(run)
    head, given = head_loader.load_head(lease), head_loader.input_of(lease)
    pin.adopt_version(lease, head, given, registry.current("paying"))
    ledger.refresh_lease(lease)
    row = Run.objects.get(id=run.id)
    assert (row.head, row.version, row.fingerprint) == (lease.head, lease.version, lease.fingerprint)


def test_an_effect_that_began_before_a_crash_is_left_to_its_version_where_the_new_one_would_begin_it_later() -> None:
    """Else its result would be left behind with the superstep, and it would happen again."""
    happened: list[str] = []

    def side_by_side(version: str, *more: tuple[str, str]) -> Graph:
        made = graph("beside", version=version)
        made.node("a")(lambda state, ctx: None)
        made.node("pay", effect="external", idempotent=True)(lambda state, ctx: happened.append("paid"))
        for source, target in ((START, "a"), (START, "pay"), ("a", END), ("pay", END), *more):
            made.edge(source, target)
        return made

    run = started(side_by_side("1"))
    lease, task = held(run), Task("pay", 1, 0)
    journal.write_intents(lease, [Intent(task, 1, "external", "", 9.0)])
    journal.write_results(lease, [Ending(task, 1, "done", {"writes": []})])
    leases.give_back(lease.id, lease.epoch)
    deployed(side_by_side("2", ("a", "pay")))
    run = runs.advance(run.id)
    error = stored_error(run)
    assert error is not None
    assert run.status == Status.INCOMPATIBLE
    assert error["because"] == "pay:1:0 began in the superstep in hand, and would not begin in it in version 2"
    assert (happened, TaskResult.objects.filter(run=run, outcome="done").count()) == ([], 1)
