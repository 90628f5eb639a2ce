"""When a gate's deadline is due: a time, or the answer of the author's function."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from orchestrator.engine import Gate, play
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.gates.deadlines import deadline_on
from orchestrator.engine.graphs.compile import Compiled, compile
from tests.support.deadlines import gated

NOW = datetime(2026, 11, 27, 9, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def _on(deadline: Any) -> Any:
    compiled: Compiled = compile(gated("due", deadline=HOUR))
    gate = Gate(reviewers=["user:ann"], deadline=deadline)
    return deadline_on(compiled, gate, compiled.fresh_state(), NOW)


def test_a_time_counts_from_now() -> None:
    assert _on(HOUR).at == NOW + HOUR
    assert _on(None) == (None, "", (), None)


def test_a_function_returns_the_moment_and_what_it_read_is_recorded() -> None:
    berlin = timezone(HOUR)

    def due(now: datetime, state: Any) -> datetime:
        return (now + timedelta(hours=2 + state.total)).astimezone(berlin)

    due_at = _on(due)
    assert due_at.at == NOW + timedelta(hours=2)
    assert due_at.at.tzinfo is UTC
    assert due_at.reads == ("total",)
    assert not due_at.fault


def _breaks(now: datetime, state: Any) -> datetime:
    raise LookupError("no calendar for 2027")


@pytest.mark.parametrize(
    ("deadline", "why"),
    [
        (_breaks, "it failed: LookupError: no calendar for 2027"),
        (lambda now, state: 3600, "it returned int"),
        (lambda now, state: None, "it returned NoneType"),
        (lambda now, state: datetime(2027, 1, 1), "without a time zone"),  # noqa: DTZ001
        (lambda now, state: now, "not ahead of now"),
        (lambda now, state: now + timedelta(days=40_000), "a hundred years ahead"),
    ],
)
def test_a_function_without_an_answer_leaves_the_gate_without_a_deadline(
    deadline: Any, why: str
) -> None:
    due = _on(deadline)
    assert due.at is None
    assert due.fault.startswith("There is no deadline")
    assert why in due.fault


def test_a_play_lets_the_deadline_pass() -> None:
    late = play(gated("late"), {}, decisions=lambda request: "deadline")
    assert (late.status, late.state.letter) == ("rejected", "")


def test_what_was_answered_before_the_deadline_stays_in_a_play() -> None:
    answers: list[Any] = [{0: "approve"}, "deadline"]
    late = play(gated("later"), {}, decisions=lambda request: answers.pop(0))
    assert late.status == "paused"
    assert answers == ["deadline"]


def test_a_gate_without_a_deadline_has_none_that_could_pass_in_a_play() -> None:
    endless = gated("none", deadline=None)
    with pytest.raises(InvalidValue, match="has no deadline"):
        play(endless, {}, decisions=lambda request: "deadline")


def test_a_play_fails_where_the_deadline_lets_the_run_fail() -> None:
    failing = gated("failing", on_deadline="fail")
    played = play(failing, {}, decisions=lambda request: "deadline")
    assert played.status == "failed"
    assert played.error is not None
    assert "before its deadline" in played.error.message
