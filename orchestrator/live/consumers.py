"""Websockets: one follows a run's log, one reports which rows of a list have changed, and
one is for the bar of every page: how much waits for the person, and whether a worker is
there.

The client sends the last number it has and gets every later line once, in order.
Without a signed-in person there is no socket. A socket ends with the session that
opened it, and closes with 4404 if the person may not, or no longer, see the run.
"""

import asyncio
from contextlib import suppress
from typing import Any
from uuid import UUID

from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.db import Error

from checkpoints.conf import conf
from orchestrator.engine.errors import UnknownThing
from orchestrator.live import limits, messages, tail
from orchestrator.live.hub import EVERYBODY, Hub, InboxHub, Talk
from orchestrator.live.viewers import SignedOut

# Daphne closes a socket with 1000 or a code from 3000 on; with any other the program
# would seem to have failed (1011).
NOT_FOUND = 4404
GAP = 4409
BAD_MESSAGE = 4400
SIGNED_OUT = 4401
TOO_MANY = 4429
TOO_LARGE = 4413
TRY_AGAIN = 4503


class Following(AsyncJsonWebsocketConsumer):
    """The base of all sockets: a nudge, the hub that sets it, and a task that sends."""

    hub: type[Hub] = Hub

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.nudge = asyncio.Event()
        self.watched: set[Any] = set()
        self.sender: asyncio.Task[None] | None = None
        self.rate = limits.Rate(conf().socket_messages_per_second)
        self.counted = False
        self.ended = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # However it ends, by an error or because the server gives up on it.
            self._leave()

    async def connect(self) -> None:
        person = self.scope["user"]
        if not person.is_authenticated:
            # Not accepted yet: this refuses the handshake itself.
            await self.close(SIGNED_OUT)
            return
        self.counted = limits.take_socket(person.pk, most=conf().sockets_per_person)
        # Accepted even if it is one too many: a refused handshake carries no code.
        await self.accept()
        if not self.counted:
            await self.close(TOO_MANY)
        elif await self._closes_on_refusal(self.begin()):
            self.sender = asyncio.get_running_loop().create_task(self._send_on())

    async def begin(self) -> None:
        """Find out what to follow. Raises only what `_closes_on_refusal` handles."""

    def follow(self, things: set[Any]) -> None:
        """Watch these, and no others."""
        hub = self.hub.here()
        hub.leave(self.watched - things, self.nudge)
        hub.watch(things - self.watched, self.nudge)
        self.watched = things
        # Something may have changed before it was watched.
        self.nudge.set()

    async def receive(
        self,
        text_data: str | None = None,
        bytes_data: bytes | None = None,
        **kwargs: Any,
    ) -> None:
        if self.ended:
            return
        if not self.rate.allows_one():
            await self.close(TOO_MANY)
            return
        await self._closes_on_refusal(self.hear(text_data))

    async def hear(self, text: str | None) -> None:
        """Take a message; `text` None stands for bytes. Raises `NotUnderstood`,
        `TooLarge`.
        """
        raise messages.NotUnderstood

    async def send_news(self) -> None:
        """Send the news. Raises only what `_closes_on_refusal` handles."""
        raise AssertionError("each socket says itself what is new")

    async def disconnect(self, code: int) -> None:
        self._leave()

    async def send(
        self,
        text_data: str | None = None,
        bytes_data: bytes | None = None,
        close: bool = False,
    ) -> None:
        if not self.ended:
            await super().send(text_data, bytes_data, close)

    async def close(self, code: Any = None, reason: str | None = None) -> None:
        # Once: what is done meanwhile by another task may want to close as well.
        if not self.ended:
            self.ended = True
            await super().close(code, reason)

    def _leave(self) -> None:
        self.hub.here().leave(self.watched, self.nudge)
        self.watched = set()
        self.ended = True
        if self.sender is not None:
            self.sender.cancel()
        if self.counted:
            self.counted = False
            limits.return_socket(self.scope["user"].pk)

    async def _send_on(self) -> None:
        while not self.ended:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.nudge.wait(), tail.CHECK_AGAIN)
            # Cleared before the look: what is written meanwhile rings again.
            self.nudge.clear()
            await self._closes_on_refusal(self.send_news())

    async def _closes_on_refusal(self, act: Any) -> bool:
        """Await the act; if it is refused, close with the code that says why. Return
        whether the socket is still open.
        """
        try:
            await act
        except UnknownThing:
            await self.close(NOT_FOUND)
        except SignedOut:
            await self.close(SIGNED_OUT)
        except messages.NotUnderstood:
            await self.close(BAD_MESSAGE)
        except messages.TooLarge:
            await self.close(TOO_LARGE)
        except Error:
            # The client comes back by itself; an open socket that says nothing would be
            # a lie.
            await self.close(TRY_AGAIN)
        return not self.ended


class RunConsumer(Following):
    """`/ws/runs/<id or key>/?after=<seq>`: every later line of the run's log, once, in
    order. With `&comments=<number>` also `{"comments": number}` whenever there are
    others on its requests, never their content. It takes no message.
    """

    run: UUID
    seq = 0
    comments: int | None = None

    async def begin(self) -> None:
        self.seq = messages.read_after(self.scope["query_string"])
        self.comments = messages.read_comments(self.scope["query_string"])
        self.run = await tail.visible(
            self.scope, self.scope["url_route"]["kwargs"]["ref"]
        )
        self.follow({self.run})
        if self.comments is not None:
            self.follow({self.run, Talk(self.run)})

    async def send_news(self) -> None:
        try:
            async for line in tail.news(self.scope, self.run, self.seq):
                self.seq = line["seq"]
                await self.send_json(line)
        except tail.LogGap:
            await self.close(GAP)
            return
        if self.comments is not None:
            await self._send_comments()

    async def _send_comments(self) -> None:
        count = await tail.count_comments(self.scope, self.run)
        if count != self.comments:
            self.comments = count
            await self.send_json({"comments": count})


class RunsConsumer(Following):
    """`/ws/runs/`: the client sends rows and their numbers, and gets the rows that have
    changed, never their content.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.known: dict[UUID, int] = {}

    async def hear(self, text: str | None) -> None:
        self.known = messages.read_watch(text)
        self.follow(set(self.known))

    async def send_news(self) -> None:
        heads = await tail.heads(self.scope, self.known)
        for run, seq in heads.items():
            if self.known.get(run) != seq:
                self.known[run] = seq
                await self.send_json({"run": str(run), "seq": seq})


class InboxConsumer(Following):
    """`/ws/reviews/`: how much waits for the person and whether a worker is there, at
    first and whenever it changes.

    `{"waiting", "more", "mark", "notices", "silence"}`; the mark changes with every row of the
    inbox. It takes no message, and sends nothing of what waits: the page requests that,
    and the right to see it is checked then.
    """

    hub = InboxHub

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sent: dict[str, Any] | None = None

    async def begin(self) -> None:
        self.follow({EVERYBODY})

    async def send_news(self) -> None:
        standing = await tail.standing(self.scope)
        if standing != self.sent:
            self.sent = standing
            await self.send_json(standing)
