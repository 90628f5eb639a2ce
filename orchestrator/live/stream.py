"""Server-sent events: a run's log over plain HTTP, from the same tail as the websocket.
Each later line once, in order.

`GET /api/v1/runs/<id or key>/stream/?after=<seq>`; `Last-Event-ID`, which a browser
sends when it comes back, takes precedence over `after`. A comment every few seconds
shows that the stream is alive. It ends with the session or token that opened it, with
the right to see the run, and at a gap in the log; a client that comes back learns why.
Like the socket, it outlives the run's end, because a run may be rewound.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

from asgiref.sync import SyncToAsync, sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import Error, connections
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework import exceptions
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from approvals.api.base import describe, person
from approvals.permissions import visible_run
from checkpoints.conf import conf
from orchestrator.engine.errors import UnknownThing
from orchestrator.live import limits, messages, tail
from orchestrator.live.hub import Hub
from orchestrator.live.viewers import SignedOut
from orchestrator.models import ApiToken

MEDIA_TYPE = "text/event-stream"
HEARTBEAT = 15.0
"""Seconds without a line after which a comment is sent, so that no proxy takes the
stream for dead.
"""
RETRY_MS = 2000
"""After how long a browser comes back that has lost the stream."""
STILL_HERE = b": still here\n\n"
# nginx would hold lines back until its buffer is full.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream(BaseRenderer):
    """The media type that a browser accepts when it follows a stream. Renders only
    refusals, as JSON problems.
    """

    media_type = MEDIA_TYPE
    format = "events"

    def render(
        self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None
    ) -> bytes:
        return JSONRenderer().render(data)


class NotServedHere(exceptions.APIException):
    """This server answers each request as a whole. Cure: serve the project by ASGI, as
    `manage.py up` does.
    """

    status_code = 406
    default_code = "stream_not_served"
    default_detail = "this server cannot stream; it must be served by ASGI"


class TooManyStreams(exceptions.Throttled):
    """As many live views are open as one person may have. Cure: close one."""

    default_code = "too_many_streams"
    default_detail = "you have as many live views open as you may; close one"


class RunStream(APIView):
    """The log of a run as server-sent events, from a line on; each has the line's
    number as its `id`.
    """

    renderer_classes = [JSONRenderer, EventStream]

    @describe(
        operation_id="run_stream",
        parameters=[
            OpenApiParameter(
                "after", int, description="The last line that is known; 0 for all."
            ),
            OpenApiParameter(
                "Last-Event-ID",
                str,
                "header",
                description="The same; goes before `after`.",
            ),
        ],
        responses={(200, MEDIA_TYPE): str},
    )
    def get(self, request: Request, run: str) -> HttpResponseBase:
        seq = read_after(request)
        visible = visible_run(person(request), run)
        if request.method == "HEAD":
            return HttpResponse(content_type=MEDIA_TYPE, headers=HEADERS)
        require_room(request, person(request).pk, most=conf().sockets_per_person)
        sent = follow_run(scope_of(request), visible.id, seq)
        return StreamingHttpResponse(sent, content_type=MEDIA_TYPE, headers=HEADERS)


def read_after(request: Request) -> int:
    """Return the number of the last line that the client knows. Raises DRF's
    `ValidationError` naming what is wrong.
    """
    unknown = sorted(set(request.query_params) - {"after"})
    if unknown:
        raise exceptions.ValidationError(
            {name: ["There is no such field."] for name in unknown}
        )
    name = "Last-Event-ID" if "Last-Event-ID" in request.headers else "after"
    try:
        if name == "after":
            return messages.read_after(
                str(request._request.META.get("QUERY_STRING", "")).encode()
            )
        return messages.read_number(request.headers[name])
    except messages.NotUnderstood as error:
        raise exceptions.ValidationError(
            {name: ["A whole number of a line, from 0."]}
        ) from error


def require_room(request: Request, viewer: Any, *, most: int) -> None:
    """Raise `NotServedHere` or `TooManyStreams` before an answer begins that takes its
    time, because one that has begun has its status.
    """
    if not isinstance(request._request, ASGIRequest):
        raise NotServedHere
    if limits.open_sockets(viewer) >= most:
        raise TooManyStreams(wait=RETRY_MS / 1000)


def scope_of(request: Request) -> dict[str, Any]:
    """Return the viewer's session or token, which `viewers.current_person` reads again
    at each look.
    """
    if isinstance(request.auth, ApiToken):
        return {"user": person(request), "token": request.auth.pk}
    return {"user": person(request), "session": request._request.session}


async def follow_run(scope: tail.Scope, run: UUID, seq: int) -> AsyncIterator[bytes]:
    """Yield the lines after `seq` as they come, and comments between them, until the
    right to see them ends.
    """
    with suppress(UnknownThing, SignedOut, tail.LogGap, Error):
        # A client that comes back receives the reason.
        async with watched(
            run, scope["user"].pk, most=conf().sockets_per_person
        ) as nudge:
            if nudge is None:
                return  # another request opened the last one at the same moment
            yield f"retry: {RETRY_MS}\n\n".encode()
            spoke = time.monotonic()
            while True:
                await rung(nudge, min(tail.CHECK_AGAIN, HEARTBEAT))
                async for line in tail.news(scope, run, seq):
                    seq = line["seq"]
                    spoke = time.monotonic()
                    data = json.dumps(line, separators=(",", ":")).encode()
                    yield event_of(seq, data)
                if time.monotonic() - spoke >= HEARTBEAT:
                    spoke = time.monotonic()
                    yield STILL_HERE


def event_of(seq: int, data: bytes) -> bytes:
    """Return an event of a stream; a client that comes back names its number."""
    return b"id: %d\ndata: %b\n\n" % (seq, data)


@asynccontextmanager
async def watched(
    run: UUID, viewer: Any, *, most: int
) -> AsyncIterator[asyncio.Event | None]:
    """Watch a run: the event that is yielded is set now, and at each change. None if the
    viewer watches as many already. While it is watched, the request keeps neither a
    connection to the database nor a thread.
    """
    if not limits.take_socket(viewer, most=most):
        yield None
        return
    nudge = asyncio.Event()
    hub = Hub.here()
    try:
        await leave_thread()
        hub.watch({run}, nudge)
        nudge.set()  # the first look is at once
        yield nudge
    finally:
        hub.leave({run}, nudge)
        limits.return_socket(viewer)


async def rung(nudge: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set, this many seconds at most, and clear it. Return
    whether it was set.
    """
    with suppress(TimeoutError):
        await asyncio.wait_for(nudge.wait(), seconds)
    was_set = nudge.is_set()
    # Cleared before the look: what is written meanwhile rings again.
    nudge.clear()
    return was_set


async def leave_thread() -> None:
    """Close the connections with which the request was answered so far, and end its
    thread: what is left of the request may last for days.
    """
    await sync_to_async(connections.close_all)()
    context = SyncToAsync.thread_sensitive_context.get(None)
    executors = SyncToAsync.context_to_thread_executor
    # Whatever else of the request is synchronous begins another one.
    if context is not None and context in executors:
        executors.pop(context).shutdown(wait=False)
