"""Each test reads anew, and what a scrape begins to keep ends with it."""

from collections.abc import Iterator

import pytest

from approvals.results import decision_times
from orchestrator.metrics import readings


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(decision_times, "histogram", None)
    readings.forget_readings()
    yield
    readings.forget_readings()
