"""Traces of OpenTelemetry, where the host has configured its SDK; otherwise nothing is
imported and nothing happens.

The trace that a run belongs to is a `traceparent` (W3C Trace Context) in the first line
of its log. So it lasts as long as the run, and every process that works on it later
continues it.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SDK = "opentelemetry.sdk.trace"
"""The module that whoever configures tracing has imported. What is on the way of each
signature looks for it before it calls anything.
"""
_API = "opentelemetry.trace"
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_SCOPE = "countersign"


def parse_traceparent(text: object) -> str:
    """Return the text if it is a `traceparent`, else an empty one: a wrong header never
    refuses a request.
    """
    if isinstance(text, str) and _TRACEPARENT.fullmatch(text):
        return text
    return ""


def current_traceparent() -> str:
    """Return the span in which this is called as a `traceparent`; empty if there is
    none.
    """
    if SDK not in sys.modules:
        return ""
    api: Any = sys.modules[_API]
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    flags = int(context.trace_flags) & 0xFF
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"


def tracer() -> Any | None:
    """Return the tracer of this project; None if the host has configured no SDK."""
    if SDK not in sys.modules:
        return None
    api: Any = sys.modules[_API]
    provider = api.get_tracer_provider()
    # The API's own providers stand for an SDK that is not there.
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return provider.get_tracer(_SCOPE)


def context_of(traceparent: str) -> Any | None:
    """Return the context that continues this trace; None for none, in which a span is
    the child of the span around it, or begins a trace.
    """
    span_context = _span_context(traceparent)
    if span_context is None:
        return None
    api: Any = sys.modules[_API]
    return api.set_span_in_context(api.NonRecordingSpan(span_context))


def here() -> Any:
    """Return the context of this thread, for spans of another thread."""
    from opentelemetry import context

    return context.get_current()


def _span_context(traceparent: str) -> Any | None:
    if not parse_traceparent(traceparent):
        return None
    api: Any = sys.modules[_API]
    _, trace, span, flags = traceparent.split("-")
    return api.SpanContext(
        trace_id=int(trace, 16),
        span_id=int(span, 16),
        is_remote=True,
        trace_flags=api.TraceFlags(int(flags, 16)),
    )


@contextmanager
def span(
    tracer: Any,
    name: str,
    attributes: Mapping[str, Any],
    *,
    context: Any | None = None,
    linked_to: str = "",
    is_call: bool = False,
) -> Iterator[Any]:
    """Open a span. An error that leaves the block is named by its type alone, because
    its message may hold values. `is_call`: it acts on something outside.
    """
    api: Any = sys.modules[_API]
    links = []
    linked = _span_context(linked_to)
    if linked is not None:
        links.append(api.Link(linked))
    kind = api.SpanKind.CLIENT if is_call else api.SpanKind.INTERNAL
    with tracer.start_as_current_span(
        name,
        context=context,
        kind=kind,
        attributes=attributes,
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as opened:
        try:
            yield opened
        except BaseException as error:
            note_error(opened, type(error).__name__)
            raise


def note_error(opened: Any, name: str) -> None:
    """Mark a span as failed, by the type of an error or its code."""
    api: Any = sys.modules[_API]
    opened.set_attribute("error.type", name)
    opened.set_status(api.Status(api.StatusCode.ERROR))
