"""What a replay looks up of its origin's memory."""

from uuid import uuid4

import pytest

from checkpoints.memory.replay_shelf import OriginLine, live_reads
from checkpoints.sealing.sealed_rows import new_protection
from orchestrator.engine import Task

pytestmark = pytest.mark.django_db


def test_the_reads_of_more_tasks_than_a_condition_holds_are_found() -> None:
    origin = OriginLine(uuid4(), 1, new_protection(encrypted=False))
    assert live_reads(origin, [Task("look", 1, n) for n in range(3000)]) == {}
