"""A landing that was weighed and finds something else when its commit comes: it is
weighed again, never lost.
"""

from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from checkpoints.ledger.commit import ConcurrentUpdate
from checkpoints.memory import landings as memory_landings
from checkpoints.memory.landings import Commit
from checkpoints.models import MemoryLanding
from checkpoints.queue.leases import Lease
from orchestrator.engine import END, START, Task
from orchestrator.engine.errors import MemoryConflict
from orchestrator.engine.graphs.trace import Landing
from tests.support.memory_graphs import forget, memory, remember, versions
from tests.support.small_graphs import graph, held, started

pytestmark = pytest.mark.django_db(transaction=True)
TASK = Task("work", 1)


@pytest.fixture
def lease() -> Lease:
    flow = graph("lands")
    flow.node("work")(lambda state, ctx: None)
    flow.edge(START, "work")
    flow.edge("work", END)
    return held(started(flow))


def weighed(
    content: Any, *, version: int | None = None, journaled: bool = False
) -> memory_landings.Landings:
    """A change of `facts/sky` (None forgets it) against memory as it is now."""
    value = None if content is None else {"content": content, "strength": 1.0}
    return memory_landings.prepare_landings(
        [Landing(TASK, 0, "facts", "sky", value, version)],
        journaled=lambda task: journaled,
    )


def land(lease: Lease, landings: memory_landings.Landings) -> None:
    with transaction.atomic():
        landings.insert(lease, Commit(1, 1, timezone.now()))


@pytest.mark.parametrize("content", ["mine", None], ids=["a write", "a deletion"])
def test_what_somebody_changed_since_it_was_weighed_is_not_overwritten(
    lease: Lease, content: Any
) -> None:
    remember("sky", "blue")
    mine = weighed(content)
    remember("sky", "grey")
    with pytest.raises(ConcurrentUpdate):
        land(lease, mine)
    assert memory() == {"facts/sky": "grey"}
    assert versions() == {"facts/sky": 2}
    assert not MemoryLanding.objects.filter(run=lease.id).exists()


def test_a_key_that_somebody_took_since_it_was_free_is_not_taken_again(
    lease: Lease,
) -> None:
    mine = weighed("mine")
    remember("sky", "grey")
    with pytest.raises(ConcurrentUpdate):
        land(lease, mine)
    assert memory() == {"facts/sky": "grey"}
    assert versions() == {"facts/sky": 1}


def test_a_write_made_on_an_older_version_runs_again_or_says_what_it_overtook(
    lease: Lease,
) -> None:
    remember("sky", "blue")
    remember("sky", "grey")
    with pytest.raises(
        MemoryConflict, match="facts/sky changed since work:1:0 read it"
    ):
        weighed("mine", version=1)
    happened = weighed("mine", version=1, journaled=True)
    assert [line.payload for line in happened.events] == [
        {
            "namespace": "facts",
            "key": "sky",
            "version": 3,
            "n": 0,
            "did": "updated",
            "made_on": 1,
        }
    ]
    land(lease, happened)
    assert memory() == {"facts/sky": "mine"}
    assert versions() == {"facts/sky": 3}


def test_a_write_on_the_version_that_is_there_says_nothing_of_overtaking(
    lease: Lease,
) -> None:
    remember("sky", "blue")
    (line,) = weighed("mine", version=1).events
    assert "made_on" not in line.payload


def test_a_deletion_that_finds_nothing_keeps_the_version_and_leaves_no_trace(
    lease: Lease,
) -> None:
    for version in (0, 2):
        nothing = weighed(None)
        assert [line.payload["version"] for line in nothing.events] == [version]
        assert [change.after for change in nothing.changes] == [
            {"value": None, "version": version}
        ]
        if not version:
            land(lease, nothing)
            assert versions() == {}
            remember("sky", "blue")
            forget("sky")
    assert versions() == {"facts/sky": 2}


def test_writes_that_a_gate_is_about_to_hold_are_weighed_too() -> None:
    remember("sky", "blue")
    channel = Landing(TASK, 0, "facts", "sky", None).channel
    memory_landings.prepare_landings(
        [], journaled=lambda task: True, held=[(TASK, channel, 1)]
    )
    with pytest.raises(MemoryConflict):
        memory_landings.prepare_landings(
            [], journaled=lambda task: True, held=[(TASK, channel, 0)]
        )
