"""Websockets: one that follows a run's log, one that tells which rows of a list have moved.

The client says the last number it has and gets every later line once, in order. What one may not see closes with 4404.
"""

import asyncio
import time
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.db import Error

from orchestrator.live import tail
from orchestrator.live.hub import Hub

NOT_FOUND = 4404
GAP = 4409
BAD_MESSAGE = 4400
TRY_AGAIN = 1013
CHECK_AGAIN = 30.0
"""Seconds after which the permission is asked again before anything is sent."""
ROWS = 100
"""Rows of a list that one socket may watch."""


class Following(AsyncJsonWebsocketConsumer):
    """What both sockets share: a bell, the hub that rings it, and a task that sends."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.nudge = asyncio.Event()
        self.watched: set[UUID] = set()
        self.sender: asyncio.Task[None] | None = None
        self.checked = 0.0

    def follow(self, runs: set[UUID]) -> None:
        """Watch these runs, and no others."""
        hub = Hub.here()
        hub.leave(self.watched - runs, self.nudge)
        hub.watch(runs - self.watched, self.nudge)
        self.watched = runs
        self.nudge.set()

    def start(self) -> None:
        self.sender = asyncio.get_running_loop().create_task(self._send_on())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        try:
            await super().receive(text_data=text_data, bytes_data=bytes_data, **kwargs)
        except ValueError:
            await self.close(BAD_MESSAGE)

    async def disconnect(self, code: int) -> None:
        Hub.here().leave(self.watched, self.nudge)
        self.watched = set()
        if self.sender is not None:
            self.sender.cancel()

    async def _send_on(self) -> None:
        while True:
            await self.nudge.wait()
            # Cleared before the look: what is written meanwhile rings again.
            self.nudge.clear()
            try:
                if not await self.send_news():
                    return
            except Error:
                # The client comes back by itself; an open socket that says nothing would be a lie.
                await self.close(TRY_AGAIN)
                return

    async def send_news(self) -> bool:
        """Send what is new. False: the socket was closed."""
        raise AssertionError("each socket says itself what is new")

    def check_is_due(self) -> bool:
        return time.monotonic() - self.checked > CHECK_AGAIN


class RunConsumer(Following):
    """`/ws/runs/<id or key>/?after=<seq>`: every later line of the run's log, once, in order."""

    seq = 0

    async def connect(self) -> None:
        await self.accept()
        after = parse_qs(self.scope["query_string"].decode()).get("after", ["0"])[0]
        run = await tail.visible(self.scope["user"], self.scope["url_route"]["kwargs"]["ref"])
        if run is None:
            await self.close(NOT_FOUND)
        elif not after.isdecimal():
            await self.close(BAD_MESSAGE)
        else:
            self.run, self.seq, self.checked = run, int(after), time.monotonic()
            self.follow({run})
            self.start()

    async def send_news(self) -> bool:
        while lines := await tail.after(self.run, self.seq):
            if self.check_is_due() and not await self._still_visible():
                return False
            for line in lines:
                if line.seq != self.seq + 1:
                    # Never papered over: the client comes back with the last number it has.
                    await self.close(GAP)
                    return False
                self.seq = line.seq
                await self.send_json(tail.message(line))
        return True

    async def _still_visible(self) -> bool:
        self.checked = time.monotonic()
        if await tail.visible(self.scope["user"], self.run) is None:
            await self.close(NOT_FOUND)
            return False
        return True


class RunsConsumer(Following):
    """`/ws/runs/`: the client names rows and their numbers; it is told which have moved, never what moved."""

    async def connect(self) -> None:
        await self.accept()
        self.known: dict[UUID, int] = {}
        if not self.scope["user"].is_authenticated:
            await self.close(NOT_FOUND)
            return
        self.start()

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        try:
            known = {UUID(run): int(seq) for run, seq in content["watch"].items()}
        except (TypeError, KeyError, ValueError, AttributeError):
            await self.close(BAD_MESSAGE)
            return
        if len(known) > ROWS:
            await self.close(BAD_MESSAGE)
            return
        self.known = known
        self.follow(set(known))

    async def send_news(self) -> bool:
        heads = await tail.heads(self.scope["user"], self.known)
        for run, seq in heads.items():
            if self.known.get(run) != seq:
                self.known[run] = seq
                await self.send_json({"run": str(run), "seq": seq})
        return True
