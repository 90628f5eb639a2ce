"""What looks for all watchers of a process goes on looking, whatever a look meets."""

import asyncio
from collections.abc import Hashable, Iterable
from typing import Any

import pytest
from django.db import OperationalError

from orchestrator.live import hub


class Meets(hub.Hub):
    """A hub whose first look meets an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.errors = [error]

    async def look(self) -> Iterable[tuple[Hashable, Any]]:
        if self.errors:
            raise self.errors.pop()
        return [("run", 1)]


@pytest.mark.parametrize(
    "error",
    [OperationalError("gone"), RuntimeError("a defect")],
    ids=["outage", "defect"],
)
def test_a_look_that_fails_leaves_the_watchers_to_the_next(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "BROKEN_PERIOD", 0.01)

    async def watched() -> None:
        nudge = asyncio.Event()
        made = Meets(error)
        made.watch(["run"], nudge)
        assert await asyncio.wait_for(nudge.wait(), 20)
        made.leave(["run"], nudge)

    asyncio.run(watched())
