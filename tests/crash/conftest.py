"""What the sweeps share."""

import pytest

from orchestrator.execution import executor


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain is noticed at once, and each pause between attempts gives the worker
    back.
    """
    monkeypatch.setattr(executor, "WATCH_SECONDS", 0.005)
    monkeypatch.setattr(executor, "LONGEST_PAUSE", 0.005)
