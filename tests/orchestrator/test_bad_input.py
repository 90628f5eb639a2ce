"""Values that cannot be kept, through every door: refused with the place named, and
nothing half-written.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from approvals import reviews
from approvals.models import Decision, Receipt
from checkpoints.core.status import Status
from checkpoints.ledger import run_error
from checkpoints.models import (
    Checkpoint,
    MemoryTrace,
    PendingWrite,
    Run,
    RunEvent,
    TaskResult,
)
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Write, registry
from orchestrator.engine.errors import CountersignError
from tests.support import cast, run_actions
from tests.support.api_people import Client

pytestmark = pytest.mark.django_db(transaction=True)

MOST = 2000
"""Bytes of a value, in these tests."""


def _nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


BAD: dict[str, Callable[[], Any]] = {
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "half a surrogate pair": lambda: "a\ud800b",
    "NUL": lambda: "a\x00b",
    "2**70": lambda: 2**70,
    "10,000 deep": lambda: _nested(10_000),
    "too large": lambda: "x" * MOST,
}
AS_JSON = {
    "NaN": "NaN",
    "infinity": "Infinity",
    "half a surrogate pair": '"a\\ud800b"',
    "NUL": '"a\\u0000b"',
    "2**70": str(2**70),
    "10,000 deep": "[" * 10_000 + "]" * 10_000,
    "too large": json.dumps("x" * MOST),
}
REFUSED = [(400, "parse_error"), (422, "invalid_value"), (413, "payload_too_large")]
every = pytest.mark.parametrize("bad", BAD)


class Given(BaseModel):
    what: dict[str, Any] = {}


class Free(BaseModel):
    free: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def small_values(configure: Any) -> None:
    configure(MAX_VALUE_BYTES=MOST)


def _graph(node: Callable[[Any, Any], Any], **settings: Any) -> Graph:
    flow = Graph("free", input=Given, state=Free)
    flow.node("only", **settings)(node)
    flow.edge(START, "only")
    flow.edge("only", END)
    registry.replace(flow)
    return flow


def _said(error: dict[str, Any] | None, where: str) -> None:
    assert error is not None
    assert error["code"] in ("invalid_value", "payload_too_large", "node_failed"), error
    assert where in error["message"], error["message"]
    assert len(error["message"]) < 500


@every
def test_as_a_nodes_return_it_fails_the_run_and_applies_nothing(bad: str) -> None:
    _graph(lambda state, ctx: {"free": {"place": BAD[bad]()}})
    run = runs.advance(runs.start("free", {}).id)
    assert run.status == Status.FAILED
    _said(run_error.stored_error(run), "free")
    assert run_actions.state(run) == {"free": {}}
    assert verify_run(run.id) == []


@every
def test_as_memory_it_fails_the_run_and_nothing_is_remembered(bad: str) -> None:
    def node(state: Any, ctx: Any) -> None:
        ctx.memory.put("key", {"place": BAD[bad]()}, namespace="n")

    _graph(node)
    run = runs.advance(runs.start("free", {}).id)
    assert run.status == Status.FAILED
    _said(run_error.stored_error(run), "$memory:n/key")
    assert not MemoryTrace.objects.exists()


@every
def test_as_an_input_it_is_refused_and_no_run_is_there(bad: str) -> None:
    _graph(lambda state, ctx: None)
    with pytest.raises(CountersignError) as refused:
        runs.start("free", {"what": {"place": BAD[bad]()}})
    place = "the input" if bad == "too large" else "what"
    _said({"code": refused.value.code, "message": refused.value.message}, place)
    assert not Run.objects.exists()


@every
def test_as_an_input_by_the_api_it_is_refused_and_no_run_is_there(
    bad: str, people: cast.People
) -> None:
    _graph(lambda state, ctx: None)
    body = f'{{"graph": "free", "input": {{"what": {{"place": {AS_JSON[bad]}}}}}}}'
    http = Client(people.starter).http
    answer = http.generic(
        "POST", "/api/v1/runs/", body, content_type="application/json"
    )
    facts = answer.json()
    assert (answer.status_code, facts["code"]) in REFUSED, facts
    assert any(
        word in facts["detail"] for word in ("what", "the input has", "malformed JSON")
    ), facts
    assert not Run.objects.exists()


@every
def test_as_an_edit_it_is_refused_and_nothing_is_signed(
    bad: str, people: cast.People
) -> None:
    _graph(
        lambda state, ctx: [Write("free", {"fine": 1}, label="free")],
        effect="human",
        gate=Gate(reviewers=["group:claims"]),
    )
    run = runs.advance(runs.start("free", {}).id)
    [row] = PendingWrite.objects.filter(run=run)
    item = {
        "write": str(row.write),
        "hash": row.hash,
        "verdict": "edit",
        "value": {"place": BAD[bad]()},
    }
    before = RunEvent.objects.count()
    with pytest.raises(CountersignError) as refused:
        reviews.sign(run.id, [item], by=run_actions.reviewer(people.reviewer))
    _said({"code": refused.value.code, "message": refused.value.message}, "")
    assert refused.value.facts["write"] == str(row.write)
    assert Decision.objects.count() == 0
    assert Receipt.objects.count() == 0
    assert PendingWrite.objects.count() == 1
    assert RunEvent.objects.count() == before


@every
def test_as_the_output_of_a_settlement_it_is_refused_and_the_outcome_stays_unknown(
    bad: str,
) -> None:
    def node(state: Any, ctx: Any) -> Any:
        raise RuntimeError("nobody knows")

    _graph(node, effect="external")
    run = runs.advance(runs.start("free", {}).id)
    assert run.status == Status.UNKNOWN
    with pytest.raises(CountersignError) as refused:
        runs.settle(
            run.id,
            "only:1:0",
            happened=True,
            output={"free": {"place": BAD[bad]()}},
            reason="it did",
        )
    _said({"code": refused.value.code, "message": refused.value.message}, "free")
    row = TaskResult.objects.get(run=run)
    assert row.outcome == "unknown"
    assert bytes(row.output) == b""
    assert Checkpoint.objects.filter(run=run).count() == 2
