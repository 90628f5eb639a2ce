"""What a task returned as goto, sends or error, and that waits for people or for
others, leads on in the new version too, or the run stops as incompatible. It is never
left to a worker that breaks on it.
"""

from typing import Any

import pytest

from checkpoints.core.status import Status
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Ending
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Run
from checkpoints.queue import leases
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Command, Gate, Graph, Send, Task
from orchestrator.engine.errors import IncompatibleGraph
from orchestrator.engine.versions.judgement import STUCK
from orchestrator.runs.forecast import forecast_runs
from tests.support import cast, run_actions
from tests.support.small_graphs import advanced, graph, held, started
from tests.support.versioned_graphs import deployed

pytestmark = pytest.mark.django_db(transaction=True)

WAYS = {
    "goto": (
        Command(goto="x"),
        "edge `ask=>x`: was removed, and a result that is kept leads along it",
    ),
    "send": (
        [Send("x", 1)],
        "edge `ask~>x`: was removed, and a result that is kept leads along it",
    ),
}


def leading(
    version: str, way: str, to: str = "x", *, gated: bool = True, fails: bool = False
) -> Graph:
    """ask goes to `to` by a goto or a send; beside it another node may fail."""
    flow = graph("leading", version=version)
    options: dict[str, Any] = {"goto": [to]} if way == "goto" else {"sends": [to]}
    if gated:
        options |= {"approve": "writes", "gate": Gate(reviewers=["group:claims"])}
    returned = WAYS[way][0] if way == "goto" else Command(send=[Send("x", 1)])
    update = {"letter": "Dear"} if gated else {"notes": ["asked"]}

    def ask(state: Any, ctx: Any) -> Any:
        return (
            Command(update=update, goto=returned.goto, send=returned.send)
            if to == "x"
            else update
        )

    def beside(state: Any, ctx: Any) -> Any:
        if fails:
            raise RuntimeError("no line")

    flow.node("ask", **options)(ask)
    flow.node("beside")(beside)
    flow.node(to)(lambda state, ctx: {"notes": [to]})
    for source, target in (
        (START, "ask"),
        (START, "beside"),
        ("beside", END),
        ("ask", END),
        (to, END),
    ):
        flow.edge(source, target)
    return flow


def refused(run: Run, words: str) -> None:
    error = stored_error(run)
    assert error is not None, run.status
    assert run.status == Status.INCOMPATIBLE, error
    assert words in error["message"]
    assert verify_run(run.id) == []


@pytest.mark.parametrize("way", WAYS)
def test_what_people_are_asked_about_leads_on_in_the_new_version_or_the_run_stops(
    way: str, people: cast.People
) -> None:
    run, signed = (advanced(leading("1", way)) for _ in range(2))
    assert run.status == Status.PAUSED
    rita = run_actions.reviewer(people.reviewer)
    run_actions.sign(signed, rita, ["approve"])
    deployed(leading("2", way, "y"))
    (group,) = forecast_runs()
    assert group.judgement.verdict == STUCK
    assert group.judgement.in_words("breaking") == [WAYS[way][1]]
    with pytest.raises(IncompatibleGraph, match=WAYS[way][1]):
        run_actions.sign(run, rita, ["approve"])
    refused(runs.advance(signed.id), WAYS[way][1])


@pytest.mark.parametrize("way", WAYS)
def test_so_does_what_is_kept_of_a_superstep_that_failed(way: str) -> None:
    run = advanced(leading("1", way, gated=False, fails=True))
    assert run.status == Status.FAILED
    deployed(leading("2", way, "y", gated=False))
    (group,) = forecast_runs()
    assert group.judgement.verdict == STUCK
    assert group.judgement.in_words("breaking") == [WAYS[way][1]]
    runs.resume(run.id)
    refused(runs.advance(run.id), WAYS[way][1])


def test_so_does_an_error_that_is_kept() -> None:
    def caught(version: str, *nodes: str) -> Graph:
        flow = graph("caught", version=version)
        for name in ("a", "b", *nodes):
            flow.node(name)(lambda state, ctx: [][0])
            flow.edge(name, END)
        for name in ("a", "b"):
            flow.edge(START, name)
        for name in nodes:
            flow.edge("a", name, when="error")
        return flow

    run = advanced(caught("1", "mend"))
    assert run.status == Status.FAILED
    run_2 = caught("2")
    deployed(run_2)
    runs.resume(run.id)
    refused(
        runs.advance(run.id),
        "edge `a>mend!error`: was removed, and a result that is kept leads along it",
    )


def test_so_does_what_a_task_returned_that_was_cut_off() -> None:
    def acting(version: str, to: str) -> Graph:
        flow = graph("acting", version=version)
        flow.node("ask", effect="external", goto=[to])(
            lambda state, ctx: Command(goto=to)
        )
        flow.node(to)(lambda state, ctx: None)
        for source, target in ((START, "ask"), ("ask", END), (to, END)):
            flow.edge(source, target)
        return flow

    run = started(acting("1", "x"))
    lease = held(run)
    task = Task("ask", 1, 0)
    journal.write_intents(lease, [Intent(task, 1, "external", "", 9.0)])
    journal.write_results(
        lease, [Ending(task, 1, "done", {"writes": [], "goto": ["x"], "sends": []})]
    )
    leases.give_back(lease.id, lease.epoch)
    deployed(acting("2", "y"))
    refused(
        runs.advance(run.id),
        "a result that is kept leads along ask=>x, which version 2 lacks",
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_fork_is_refused_where_what_is_asked_leads_nowhere(way: str) -> None:
    run = advanced(leading("1", way))
    deployed(leading("2", way, "y"))
    with pytest.raises(IncompatibleGraph, match="lacks edge ask(=|~)>x"):
        runs.fork(Run.objects.get(id=run.id).head)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_whose_kept_results_lead_on_goes_on(
    way: str, people: cast.People
) -> None:
    run = advanced(leading("1", way))
    deployed(leading("2", way))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["x"]
