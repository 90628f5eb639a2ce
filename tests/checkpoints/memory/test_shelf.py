"""Reading traces from the database, and having one forgotten by a person."""

from typing import Any

import pytest

from checkpoints.memory import shelf
from checkpoints.memory.shelf import DatabaseShelf
from checkpoints.models import AuditLine, MemoryTrace
from checkpoints.sealing.sealed_rows import PLAIN, Protection
from orchestrator.engine.errors import CountersignError, TamperedRow
from tests.support.cast import People
from tests.support.memory_graphs import forget, remember

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_trace_is_read_with_its_version_and_a_forgotten_one_by_its_version_alone() -> (
    None
):
    remember("sky", "blue")
    answer = DatabaseShelf(PLAIN).get("facts", "sky")
    assert [trace.content for trace in answer.traces] == ["blue"]
    assert answer.version == 1
    forget("sky")
    answer = DatabaseShelf(PLAIN).get("facts", "sky")
    assert answer.traces == ()
    assert answer.version == 2
    assert DatabaseShelf(PLAIN).get("facts", "sea").version == 0


def test_what_channels_hold_is_one_query_and_none_for_none(
    django_assert_num_queries: Any,
) -> None:
    remember("sky", "blue")
    with django_assert_num_queries(1):
        contents = shelf.values(
            [("facts", "sky"), ("facts", "sea"), ("facts", "sky")], PLAIN
        )
    assert contents == {
        "$memory:facts/sky": {
            "value": {"content": "blue", "strength": 1.0},
            "version": 1,
        },
        "$memory:facts/sea": {"value": None, "version": 0},
    }
    with django_assert_num_queries(0):
        assert shelf.values([], PLAIN) == {}


def test_a_trace_never_crosses_between_encrypted_graphs_and_others() -> None:
    remember("sky", "blue")
    secret = DatabaseShelf(Protection(encrypted=True))
    with pytest.raises(
        CountersignError, match="belongs to a graph that is not encrypted"
    ):
        secret.get("facts", "sky")
    with pytest.raises(
        CountersignError, match="belongs to a graph that is not encrypted"
    ):
        secret.standing("facts", "sky")
    with pytest.raises(CountersignError, match="search is refused"):
        secret.search("blue", "facts", 5)


def test_a_trace_that_was_changed_by_hand_is_refused() -> None:
    remember("sky", "blue")
    MemoryTrace.objects.update(strength=9.0)
    with pytest.raises(TamperedRow):
        DatabaseShelf(PLAIN).get("facts", "sky")


def test_a_person_has_a_trace_forgotten_once_with_an_audit_line(people: People) -> None:
    remember("sky", "blue")
    row = MemoryTrace.objects.get()
    shelf.delete_trace(row, by=people.steward)
    shelf.delete_trace(row, by=people.steward)
    row.refresh_from_db()
    assert bytes(row.content) == b""
    assert row.text == ""
    assert row.deleted is True
    assert row.version == 2
    assert AuditLine.objects.filter(kind="memory_forgotten").count() == 1
