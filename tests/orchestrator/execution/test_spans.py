"""Spans of a run, with the SDK's exporter in memory: the slice continues the trace in
which the run was started, in whichever process, and no span holds a value.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from approvals.models import Notice, Webhook, WebhookDelivery
from approvals.notices.message import headers_of
from checkpoints import event_log
from checkpoints.core import traces
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Write
from tests.support import run_actions
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.paid_claims import paid
from tests.support.small_graphs import graph, registered

TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADER = f"00-{TRACE}-b7ad6b7169203331-01"
# Other tests of this process must not find it.
LOADED_SDK = sys.modules.pop(traces.SDK)
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans that have ended, as if the host had configured the SDK."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setitem(sys.modules, traces.SDK, LOADED_SDK)
    yield spans
    provider.shutdown()


def by_name(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def trace_id(span: Any) -> str:
    return f"{span.get_span_context().trace_id:032x}"


def noting(name: str) -> str:
    flow = graph(name)
    flow.node("first")(lambda state, ctx: {"notes": ["a-value-of-the-run"]})
    flow.edge(START, "first")
    flow.edge("first", END)
    return registered(flow).name


def started_in_a_trace(name: str) -> Run:
    with trace.use_span(trace.NonRecordingSpan(_context())):
        return runs.start(name, {})


def _context() -> trace.SpanContext:
    _, trace_id, span_id, _ = HEADER.split("-")
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    return trace.SpanContext(int(trace_id, 16), int(span_id, 16), False, sampled)


@pytest.mark.usefixtures("exporter")
def test_a_run_is_started_in_the_trace_of_its_caller_and_the_log_keeps_it() -> None:
    run = started_in_a_trace(noting("traced_start"))
    assert event_log.trace_of(run.id)[3:35] == TRACE
    assert verify_run(run.id) == []
    runs.advance(run.id)
    assert verify_run(run.id) == []


def test_without_an_sdk_nothing_is_traced() -> None:
    assert traces.tracer() is None
    assert traces.current_traceparent() == ""
    assert event_log.trace_of(started_in_a_trace(noting("no_sdk")).id) == ""


def test_without_a_trace_the_log_says_nothing_of_one() -> None:
    run = runs.start(noting("untraced"), {})
    assert event_log.trace_of(run.id) == ""


@pytest.mark.parametrize(
    "header", ["", "nonsense", HEADER[:-1], f"00-{'0' * 32}-{'1' * 16}-01"]
)
def test_a_wrong_header_begins_no_trace(header: str) -> None:
    assert traces.parse_traceparent(header) == ""


def test_slice_superstep_and_attempt_are_one_trace(
    exporter: InMemorySpanExporter,
) -> None:
    run = runs.advance(started_in_a_trace(noting("traced")).id)
    assert run.status == "completed"
    [slice_span] = by_name(exporter, "countersign.slice")
    [superstep] = by_name(exporter, "countersign.superstep")
    [attempt] = by_name(exporter, "countersign.attempt")
    assert {trace_id(span) for span in (slice_span, superstep, attempt)} == {TRACE}
    assert f"{slice_span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert superstep.parent.span_id == slice_span.context.span_id
    assert attempt.parent.span_id == superstep.context.span_id
    assert slice_span.attributes["countersign.run"] == str(run.id)
    assert attempt.attributes["countersign.node"] == "first"
    assert attempt.attributes["countersign.attempt"] == 1
    assert by_name(exporter, "countersign.effect") == []


def test_another_process_continues_the_trace_after_a_pause(
    exporter: InMemorySpanExporter,
) -> None:
    run = started_in_a_trace(noting("traced_elsewhere"))
    connections.close_all()
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        runs.advance(run.id)
        spans = [json.loads(span.to_json()) for span in exporter.get_finished_spans()]
        os.write(writing, json.dumps(spans).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        spans = json.load(file)
    os.waitpid(pid, 0)
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{TRACE}"}
    assert {span["name"] for span in spans} >= {"countersign.slice"}
    assert "a-value-of-the-run" not in json.dumps(spans)


def test_an_error_is_named_by_its_type_and_its_message_stays_here(
    exporter: InMemorySpanExporter,
) -> None:
    flow = graph("traced_fault")

    @flow.node("first")
    def first(state: Any, ctx: Any) -> Any:
        raise ValueError("a-value-of-the-run")

    flow.edge(START, "first")
    flow.edge("first", END)
    run = runs.advance(runs.start(registered(flow).name, {}).id)
    assert run.status == "failed"
    [attempt] = by_name(exporter, "countersign.attempt")
    assert attempt.attributes["error.type"] == "ValueError"
    assert attempt.status.status_code == trace.StatusCode.ERROR
    everything = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert "a-value-of-the-run" not in everything


def test_an_effect_and_its_signature_have_spans(
    exporter: InMemorySpanExporter, people: People
) -> None:
    run = paid("traced_payment", people)
    effects = by_name(exporter, "countersign.effect")
    assert len(effects) == 1
    assert effects[0].kind == trace.SpanKind.CLIENT
    assert by_name(exporter, "countersign.sign")
    assert verify_run(run.id) == []


def test_a_signature_is_linked_to_the_trace_of_its_run(
    exporter: InMemorySpanExporter, people: People
) -> None:
    flow = graph("traced_gate")
    add_gate(flow)
    run = runs.advance(started_in_a_trace(registered(flow).name).id)
    run_actions.sign_open(run, run_actions.reviewer(people.reviewer), "approve")
    [signature] = by_name(exporter, "countersign.sign")
    assert trace_id(signature) != TRACE
    [link] = signature.links
    assert f"{link.context.trace_id:032x}" == TRACE


def add_gate(made: Any) -> None:
    made.node("ask", effect="human", gate=Gate(reviewers=["group:claims"]))(
        lambda state, ctx: [Write("letter", "a")]
    )
    made.edge(START, "ask")
    made.edge("ask", END)


def test_the_api_takes_the_header_of_its_caller(people: People) -> None:
    name = noting("traced_api")
    client = Client(people.starter)
    for header, kept in ((HEADER, HEADER), ("nonsense", "")):
        answer = client.post("runs/", {"graph": name, "input": {}}, traceparent=header)
        assert answer.status_code == 201
        assert event_log.trace_of(answer.json()["id"]) == kept


@pytest.mark.usefixtures("exporter")
def test_a_webhook_carries_the_trace_of_its_run() -> None:
    run = started_in_a_trace(noting("traced_webhook"))
    delivery = WebhookDelivery(
        webhook=Webhook(), notice=Notice(event="run.completed", run=run.id)
    )
    headers = headers_of(delivery, b"{}", secret=b"s", at=1)
    assert headers["traceparent"][3:35] == TRACE
    untraced = WebhookDelivery(webhook=Webhook(), notice=Notice(event="test"))
    assert "traceparent" not in headers_of(untraced, b"{}", secret=b"s", at=1)
