"""What the tests of bridges to other programs share."""

from typing import Any

import pytest

from orchestrator.engine import registry
from orchestrator.graphs import approval
from tests.support.bridges import Office
from tests.support.cast import People


@pytest.fixture
def office(live_server: Any, people: People) -> Office:
    """A site over HTTP; its workers are calls of `runs.advance`."""
    registry.replace(approval)
    return Office(live_server.url, people)
