"""The words that pages make of values: spans, sizes, names, statuses."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator.run_access.labels import NOT_KEPT
from orchestrator.templatetags import console


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (timedelta(seconds=-3), "0 s"),
        (timedelta(seconds=59.9), "59 s"),
        (timedelta(minutes=1), "1 min"),
        (timedelta(minutes=59, seconds=59), "59 min"),
        (timedelta(hours=1, minutes=5), "1 h 05 min"),
        (timedelta(hours=24), "1 day"),
        (timedelta(hours=48), "2 days"),
    ],
)
def test_a_span_is_said_as_exactly_as_a_reader_needs(
    span: timedelta, words: str
) -> None:
    assert console.spell(span) == words


@pytest.mark.parametrize(
    ("minutes", "urgency"),
    [(29, "hot"), (31, "warm"), (119, "warm"), (121, ""), (-5, "hot"), (None, "")],
)
def test_a_deadline_is_urgent_by_the_time_that_is_left(
    minutes: int | None, urgency: str
) -> None:
    deadline = None if minutes is None else timezone.now() + timedelta(minutes=minutes)
    assert console.urgency(deadline) == urgency


@pytest.mark.parametrize(
    ("bytes_", "words"),
    [
        (None, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KB"),
        (1_048_576, "1.0 MB"),
        (5 * 2**30, "5,120.0 MB"),
    ],
)
def test_a_size_is_said_in_its_unit(bytes_: int | None, words: str) -> None:
    assert console.size(bytes_) == words


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        ("Rita Lund", "RL"),
        ("rita.lund", "RL"),
        ("rita", "RI"),
        ("a_b_c", "AC"),
        ("", ""),
    ],
)
def test_a_badge_has_two_letters_of_a_name(name: str, letters: str) -> None:
    assert console.initials(name) == letters


def test_a_node_may_break_after_an_underscore_and_its_name_is_escaped() -> None:
    assert console.breakable("send_<b>") == "send_<wbr>&lt;b&gt;"


def test_every_status_has_a_look_and_an_event_without_words_says_its_type() -> None:
    assert all(console.look(status).label for status in Status)
    assert console.sentence("something_new") == "something new"


def test_a_run_that_goes_on_has_lasted_until_now_and_one_that_has_not_begun_not_at_all() -> (
    None
):
    begun = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    ended = SimpleNamespace(
        started_at=begun, ended_at=begun + timedelta(hours=26, seconds=61)
    )
    assert console.lasted(ended) == "26:01:01"
    assert console.lasted(SimpleNamespace(started_at=None, ended_at=None)) == ""


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (
            {
                "status": "failed",
                "error_code": "node_failed",
                "error": {"type": "OSError", "message": "no\nanswer"},
            },
            "OSError: no answer",
        ),
        (
            {
                "status": "failed",
                "error_code": "limit_reached",
                "error": {"message": "too many rounds"},
            },
            "too many rounds",
        ),
        (
            {
                "status": "failed",
                "error_code": "node_failed",
                "error": {"message": "x" * 200},
            },
            "x" * 120 + "…",
        ),
        ({"status": "failed", "error_code": "node_failed"}, NOT_KEPT[:120]),
        ({"status": "completed", "error_code": "node_failed"}, ""),
        ({"status": "paused", "error_code": ""}, "waits for people"),
    ],
)
def test_the_second_line_of_a_run_says_why_it_is_where_it_is(
    run: dict[str, Any], words: str
) -> None:
    error = pack_json(run["error"]) if "error" in run else b""
    assert console.reason(Run(**{**run, "error": error})) == words


def test_long_hashes_are_shortened_in_the_middle_and_short_ones_not() -> None:
    assert console.short("0123456789") == "0123456789"
    assert console.short("0123456789abcdef") == "0123…cdef"


def test_an_age_ticks_and_carries_its_exact_time() -> None:
    at = timezone.now() - timedelta(minutes=5)
    exact = timezone.localtime(at).isoformat()
    assert console.since(at).startswith(f'<time datetime="{exact}"')
    assert console.since(at).endswith('data-tick="since">5 min</time>')
    assert console.time_left(at + timedelta(hours=2)).endswith(
        'data-tick="left">1 h 54 min</time>'
    )


def test_how_long_a_run_takes_ticks_until_it_has_ended() -> None:
    begun = timezone.now() - timedelta(seconds=61.5)
    going = SimpleNamespace(started_at=begun, ended_at=None, status="running")
    assert str(console.lasted(going)).endswith('data-tick="lasted">0:01:01</time>')
    ended = SimpleNamespace(
        started_at=begun, ended_at=begun + timedelta(seconds=7), status="completed"
    )
    assert console.lasted(ended) == "0:00:07"
    assert (
        console.lasted(
            SimpleNamespace(started_at=begun, ended_at=None, status="failed")
        )
        == "0:01:01"
    )
