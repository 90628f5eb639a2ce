"""What the tests of bridges to other programs share."""

from typing import Any

import pytest

from orchestrator.engine import registry
from orchestrator.graphs import approval
from tests.support.bridges import Desk
from tests.support.cast import People


@pytest.fixture
def desk(live_server: Any, people: People) -> Desk:
    """A site over HTTP; its workers are calls of `runs.advance`."""
    registry.replace(approval)
    return Desk(live_server.url, people)
