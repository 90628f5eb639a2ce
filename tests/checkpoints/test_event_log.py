"""The log is one chain, decisions are numbered in it, and an act of signing takes its
locks in one order.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals.models import ApprovalRequest, Decision
from checkpoints import event_log
from checkpoints.core import codec
from checkpoints.core.status import Status
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.models import Run, RunEvent
from checkpoints.sealing.sealed_columns import unpack_json
from checkpoints.sealing.sealed_rows import Protection
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Task
from tests.support import cast, run_actions
from tests.support.rows import START as AT
from tests.support.run_actions import pending, sign, state
from tests.support.small_graphs import advanced, graph, held, slice_of, started

RUN = UUID(int=1)
END_OF_LOG = LogEnd(4, "e" * 64)
LINE = NewEvent(
    "run_failed", {"code": "poison"}, node="send", task="send:1:0", actor="olive"
)


def _numbered(
    *drafts: NewEvent, end: LogEnd = END_OF_LOG, run: UUID = RUN, at: Any = AT
) -> list[RunEvent]:
    rows, last = event_log.chain(run, end, drafts, at=at, protection=Protection())
    assert last.seq == rows[-1].seq
    assert last.hash == rows[-1].hash
    return rows


def test_each_line_is_numbered_after_the_one_before_and_bound_to_it() -> None:
    whole = _numbered(LINE, LINE)
    other = _numbered(NewEvent("warning"), LINE)
    assert [row.seq for row in whole] == [5, 6]
    assert whole[0].hash != other[0].hash
    assert whole[1].hash != other[1].hash, (
        "what came before is part of every later hash"
    )


@pytest.mark.parametrize(
    "changed",
    [
        _numbered(LINE, end=LogEnd(4, "d" * 64)),
        _numbered(LINE, end=LogEnd(5, "e" * 64)),
        _numbered(LINE, run=UUID(int=2)),
        _numbered(LINE, at=AT + timedelta(microseconds=1)),
        _numbered(
            NewEvent("run_unknown", LINE.payload, LINE.node, LINE.task, LINE.actor)
        ),
        _numbered(
            NewEvent(LINE.type, {"code": "other"}, LINE.node, LINE.task, LINE.actor)
        ),
        _numbered(NewEvent(LINE.type, LINE.payload, "pay", LINE.task, LINE.actor)),
        _numbered(NewEvent(LINE.type, LINE.payload, LINE.node, "send:1:1", LINE.actor)),
        _numbered(NewEvent(LINE.type, LINE.payload, LINE.node, LINE.task, "rita")),
    ],
    ids=[
        "the line before",
        "number",
        "run",
        "time",
        "type",
        "payload",
        "node",
        "task",
        "actor",
    ],
)
def test_the_hash_of_a_line_covers_every_field_of_it_and_the_line_before(
    changed: list[RunEvent],
) -> None:
    assert changed[0].hash != _numbered(LINE)[0].hash


def _two_gates() -> Graph:
    flow = graph("two-gates")

    def proposing(name: str) -> None:
        @flow.node(name, effect="human", gate=Gate(reviewers=["group:claims"]))
        def propose(state: Any, ctx: Any) -> dict[str, Any]:
            return {"notes": [name], "letter": name}

        flow.edge(START, name)
        flow.edge(name, END)

    proposing("first")
    proposing("second")
    return flow


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.mark.django_db(transaction=True)
def test_a_decision_has_the_number_of_its_line_in_the_log_and_the_chain_has_no_gap(
    rita: User,
) -> None:
    run = advanced(_two_gates())
    sign(run, rita, ["approve", "reject", None, None])
    sign(run, rita, [None, None, "reject", ("edit", "mine")])
    run = runs.advance(run.id)
    events = {line.seq: line for line in RunEvent.objects.filter(run=run)}
    for decision in Decision.objects.filter(run=run.id):
        line = events[decision.event_seq]
        content = unpack_json(line.payload)
        assert line.type == "decision_signed"
        assert line.actor == rita.username
        assert content["write"] == str(decision.write)
        assert content["verdict"] == decision.verdict
        assert content["revision"] == decision.revision
    assert Decision.objects.count() == run.decisions == 4
    previous = ""
    for seq in range(1, run.event_seq + 1):
        assert events[seq].hash == event_log.line_hash(
            previous,
            events[seq],
            codec.unpack(bytes(events[seq].payload)),
            Protection(),
        )
        previous = events[seq].hash
    assert previous == run.event_hash
    assert len(events) == run.event_seq


@pytest.mark.django_db(transaction=True)
def test_signing_locks_the_run_first_and_then_its_requests_in_order_of_id(
    rita: User,
) -> None:
    run = advanced(_two_gates())
    with CaptureQueriesContext(connection) as captured:
        sign(run, rita, ["approve"] * 4)
    statements = [query["sql"] for query in captured]
    begun = next(n for n, sql in enumerate(statements) if sql.startswith("BEGIN"))
    tables = [Run._meta.db_table, ApprovalRequest._meta.db_table]
    firsts = [_first(statements, begun, table) for table in tables]
    assert firsts == sorted(firsts)
    assert f'ORDER BY "{tables[1]}"."id" ASC' in statements[firsts[1]]
    if connection.vendor == "postgresql":
        assert all("FOR UPDATE" in statements[first] for first in firsts)


def _first(statements: list[str], begun: int, table: str) -> int:
    """The first statement of the transaction that reads this table."""
    return next(
        n for n, sql in enumerate(statements) if n > begun and f'FROM "{table}"' in sql
    )


@pytest.mark.django_db(transaction=True)
def test_an_output_for_a_channel_of_a_gated_node_waits_for_that_gate_undeclared(
    rita: User, people: cast.People
) -> None:
    flow = graph("guarded-by-use")

    @flow.node(effect="human", gate=Gate(reviewers=["group:claims"]))
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "signed"}

    @flow.node(effect="external")
    def send(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": ["sent"]}

    flow.edge(START, "propose")
    flow.edge("propose", "send", when=("approved", "partial"))
    flow.edge("send", END)
    run = started(flow)
    slice_of(run)
    sign(run, rita, ["approve"])
    looks = iter([False])
    slice_of(run, draining=lambda: next(looks, True))
    assert state(run)["letter"] == "signed"
    journal.write_intents(
        held(run), [Intent(Task("send", 1), 1, "external", "0" * 64, 1.0)]
    )
    Run.objects.filter(id=run.id).update(lease_until="2000-01-01T00:00Z")
    assert runs.advance(run.id).status == Status.UNKNOWN
    runs.settle(
        run.id,
        "send:1:0",
        happened=True,
        output={"letter": "mine"},
        by=people.steward,
        reason="seen",
    )
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert state(run)["letter"] == "signed"
    sign(
        run,
        rita,
        [None if row.node == "propose" else "approve" for row in pending(run)],
    )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == "mine"
