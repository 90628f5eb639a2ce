"""Approvals for those who wait: a GET that answers when people have decided, and the
approval at each change as server-sent events. Both wait as the stream of a run does.
"""

import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from uuid import UUID

from channels.db import database_sync_to_async
from django.db import Error
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from approvals.api.base import Body, describe, person, read_body
from checkpoints.conf import conf
from checkpoints.core.status import STOPPED
from orchestrator import asking
from orchestrator.api import approvals as api
from orchestrator.api.approvals_json import AskedApprovalOut
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.frozen import frozen
from orchestrator.live import stream, tail
from orchestrator.live.viewers import SignedOut, current_person

LONGEST_WAIT = 60
"""Seconds after which a call that waits is answered with what there is."""
SPACE = b" "
"""What is sent of an answer while it waits: JSON may begin with it."""


@frozen
class SeenApproval:
    """An approval as its caller may see it now. `seq` is the number of the last line of
    its log, `body` its JSON. `is_over`: nothing more comes of it by itself.
    """

    run: UUID
    seq: int
    body: bytes
    is_decided: bool
    is_over: bool


def look_at(user: Any, run: str | UUID) -> SeenApproval:
    """Return an approval. Raises as `visible_approval` and `approval_of` do."""
    visible = asking.visible_approval(user, run)
    # Rows written in the meantime have higher numbers, and are looked at later.
    seq = visible.event_seq
    approval = asking.approval_of(visible)
    is_settled = approval.is_decided and approval.state not in STOPPED
    return SeenApproval(
        visible.id,
        seq,
        JSONRenderer().render(api.shown_to(user, approval)),
        approval.is_decided,
        is_settled and (approval.is_reported or not approval.reports),
    )


class WaitQuery(Body):
    """How long a call waits."""

    wait = serializers.IntegerField(
        required=False,
        default=0,
        min_value=0,
        max_value=LONGEST_WAIT,
        help_text="Seconds to wait for people; answered as soon as they have decided.",
    )


class AwaitedApproval(api.OneApproval):
    """One approval, by id or key: where it stands, and the verdict on each item. With
    `wait` the answer comes when it is decided, or after this many seconds.
    """

    @describe(parameters=[WaitQuery], responses=AskedApprovalOut)
    def get(self, request: Request, run: str) -> HttpResponseBase:
        seconds = read_body(WaitQuery, request.query_params)["wait"]
        look = look_at(person(request), run)
        if look.is_decided or not seconds or request.method == "HEAD":
            return HttpResponse(look.body, content_type="application/json")
        viewer = ("waits", person(request).pk)
        stream.require_room(request, viewer, most=conf().waits_per_person)
        answer = waited(stream.scope_of(request), viewer, look.run, seconds)
        return StreamingHttpResponse(
            answer, content_type="application/json", headers=stream.HEADERS
        )


class ApprovalStream(APIView):
    """An approval as server-sent events: its JSON now and at each change, until it is
    decided and, where the caller said that they would report, reported.
    """

    renderer_classes = [JSONRenderer, stream.EventStream]

    @describe(
        operation_id="approval_stream",
        parameters=[
            OpenApiParameter(
                "after", int, description="The number of the last event that is known."
            ),
            OpenApiParameter(
                "Last-Event-ID",
                str,
                "header",
                description="The same; goes before `after`.",
            ),
        ],
        responses={(200, stream.MEDIA_TYPE): str, 204: None},
    )
    def get(self, request: Request, run: str) -> HttpResponseBase:
        seq = stream.read_after(request)
        look = look_at(person(request), run)
        if request.method == "HEAD":
            return HttpResponse(content_type=stream.MEDIA_TYPE, headers=stream.HEADERS)
        # A browser comes back to a stream that has ended, until it is answered so.
        if look.is_over and look.seq <= seq:
            return HttpResponse(status=204)
        viewer = person(request).pk
        stream.require_room(request, viewer, most=conf().sockets_per_person)
        sent = followed(stream.scope_of(request), look.run, seq)
        return StreamingHttpResponse(
            sent, content_type=stream.MEDIA_TYPE, headers=stream.HEADERS
        )


async def waited(
    scope: tail.Scope, viewer: Any, run: UUID, seconds: float
) -> AsyncIterator[bytes]:
    """Yield the JSON of an approval once it is decided, or after this many seconds.
    Raises where the caller may no longer see it: the connection ends without an answer,
    and whoever calls again receives the reason.
    """
    ends = time.monotonic() + seconds
    async with stream.watched(run, viewer, most=conf().waits_per_person) as nudge:
        look = None
        while look is None or not look.is_decided:
            remaining = ends - time.monotonic()
            # Another call took the last place at the same moment.
            if nudge is None or remaining <= 0:
                look = await _look(scope, run)
                break
            if await stream.rung(nudge, min(remaining, stream.HEARTBEAT)):
                look = await _look(scope, run)
            yield SPACE
    yield look.body


async def followed(scope: tail.Scope, run: UUID, seq: int) -> AsyncIterator[bytes]:
    """Yield the approval as an event at each change after the line `seq`, and comments
    between them, until it is over or the right to see it ends.
    """
    viewer = scope["user"].pk
    sent = b""
    with suppress(CountersignError, SignedOut, Error):
        # A client that comes back receives the reason.
        async with stream.watched(run, viewer, most=conf().sockets_per_person) as nudge:
            if nudge is None:
                return  # another request opened the last one at the same moment
            yield f"retry: {stream.RETRY_MS}\n\n".encode()
            spoke = time.monotonic()
            while True:
                await stream.rung(nudge, min(tail.CHECK_AGAIN, stream.HEARTBEAT))
                head = (await tail.heads(scope, [run])).get(run)
                if head is None:
                    return  # they may no longer see it
                if head > seq:
                    look = await _look(scope, run)
                    seq = look.seq
                    if look.body != sent:
                        sent = look.body
                        spoke = time.monotonic()
                        yield stream.event_of(seq, sent)
                    if look.is_over:
                        return
                if time.monotonic() - spoke >= stream.HEARTBEAT:
                    spoke = time.monotonic()
                    yield stream.STILL_HERE


async def _look(scope: tail.Scope, run: UUID) -> SeenApproval:
    """Look as the person who is behind the request now. Raises `SignedOut` too."""
    # Not in a thread of this request: however many wait, few threads look for them.
    look = database_sync_to_async(
        lambda: look_at(current_person(scope), run), thread_sensitive=False
    )
    answer: SeenApproval = await look()
    return answer
