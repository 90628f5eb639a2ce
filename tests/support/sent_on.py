"""A run in which a person's node went on and sent on; only rows of its timeline show
where to, and what it sent.
"""

from approvals.models import ApprovalRequest
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START, Command, Gate, Send
from tests.support import cast, run_actions
from tests.support.small_graphs import graph, registered


def sent_on(people: cast.People, *, approved: bool = True) -> Run:
    """ask goes to end, and sends to leaf, where somebody approved it, or where its gate
    needed nobody.
    """
    flow = graph("sent_on")
    gate = Gate(
        reviewers=["group:claims"], needs_approval=lambda state, proposal: approved
    )
    flow.node("ask", effect="human", gate=gate, goto="end", sends="leaf")(
        lambda state, ctx: Command(
            update={"letter": "l"}, goto="end", send=[Send("leaf", {"n": 7})]
        )
    )
    flow.node("leaf")(lambda state, ctx: {"notes": [str(ctx.payload["n"])]})
    flow.node("end")(lambda state, ctx: {"notes": ["end"]})
    flow.node("last")(lambda state, ctx: {"notes": ["last"]})
    for source, target in (
        (START, "ask"),
        ("leaf", END),
        ("end", "last"),
        ("last", END),
    ):
        flow.edge(source, target)
    registered(flow)
    run = runs.advance(runs.start("sent_on", {}, key="sent on").id)
    if ApprovalRequest.objects.filter(run=run.id).exists():
        run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
        run = runs.advance(run.id)
    assert sorted(run_actions.state(run)["notes"]) == ["7", "end", "last"]
    return run
