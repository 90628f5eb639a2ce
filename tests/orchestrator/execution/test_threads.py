"""The threads of nodes, used again: what a job leaves behind in one is not there for
the next.
"""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest

from orchestrator.execution import threads
from tests.support.processes import until

SEEN: ContextVar[str] = ContextVar("SEEN", default="nothing")


@pytest.fixture(autouse=True)
def nobody_else_waits() -> Iterator[None]:
    """The crew of this test is its own."""
    others = list(threads._idle)
    threads._idle.clear()
    yield
    threads._idle.extend(others)


@dataclass(eq=False)
class _Job:
    name: str
    work: Callable[[], Any]


def _run(name: str, work: Callable[[], Any]) -> None:
    threads.run(iter([_Job(name, work)]))


def _done(name: str, work: Callable[[], Any]) -> Any:
    """Do the work in a thread of the crew, and wait until that thread waits for the
    next.
    """
    answer: list[Any] = []

    def job() -> None:
        answer.append(work())

    _run(name, job)
    until(lambda: len(threads._idle) == 1)
    return answer[0] if answer else None


def test_a_thread_that_is_free_does_the_next_job_under_its_name() -> None:
    first = _done(
        "first", lambda: (threading.get_ident(), threading.current_thread().name)
    )
    second = _done(
        "second", lambda: (threading.get_ident(), threading.current_thread().name)
    )
    assert first[0] == second[0]
    assert first[1] == "first"
    assert second[1] == "second"


def test_what_a_job_sets_in_its_context_is_not_the_next_ones_to_see() -> None:
    _done("sets", lambda: SEEN.set("mine"))
    assert _done("looks", SEEN.get) == "nothing"


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_job_that_raises_whatever_it_is_leaves_its_thread_to_the_next(
    error: type[BaseException],
) -> None:
    def fails() -> None:
        raise error("no more")

    before = _done("before", threading.get_ident)
    _done("fails", fails)
    assert _done("after", threading.get_ident) == before


def test_a_thread_that_waits_holds_nothing_of_the_job_it_did() -> None:
    class Large:
        pass

    large = Large()
    gone = weakref.ref(large)
    _run("holds", lambda held=large: None)  # type: ignore[misc]
    until(lambda: len(threads._idle) == 1)
    del large
    gc.collect()
    assert gone() is None


def test_two_jobs_at_once_have_a_thread_each() -> None:
    meet = threading.Barrier(2, timeout=10)
    idents = []

    def job() -> None:
        meet.wait()
        idents.append(threading.get_ident())

    _run("one", job)
    _run("two", job)
    until(lambda: len(threads._idle) == 2)
    assert len(set(idents)) == 2


class _Gate:
    """Jobs that begin and then wait until they are let go."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.go = threading.Event()

    def job(self, name: str) -> _Job:
        def work() -> None:
            self.began.append(name)
            self.go.wait(10)

        return _Job(name, work)


def _shift(
    most: int, stopped: Callable[[], bool] = lambda: False
) -> threads.BoundedPool[_Job]:
    return threads.BoundedPool(most, stopped)


def test_jobs_that_take_long_are_done_at_once_and_no_more_of_them_than_are_allowed() -> (
    None
):
    gate = _Gate()
    pool = _shift(3)
    pool.put([gate.job(str(n)) for n in range(5)])
    until(lambda: len(gate.began) == 3)
    threading.Event().wait(0.1)
    assert gate.began == ["0", "1", "2"]
    gate.go.set()
    until(lambda: gate.began == ["0", "1", "2", "3", "4"])


def test_many_short_jobs_do_not_take_a_thread_each() -> None:
    idents: list[int] = []
    _shift(32).put(
        [_Job(str(n), lambda: idents.append(threading.get_ident())) for n in range(200)]
    )
    until(lambda: len(idents) == 200)
    assert len(set(idents)) < 10


def test_a_job_that_is_given_up_makes_room_for_one_more_and_for_no_other_when_it_ends() -> (
    None
):
    gate = _Gate()
    other = _Gate()
    pool = _shift(1)
    first = gate.job("given up")
    pool.put([first, *(other.job(str(n)) for n in range(3))])
    until(lambda: gate.began == ["given up"])
    assert other.began == []
    pool.give_up(first)
    until(lambda: other.began == ["0"])
    gate.go.set()
    threading.Event().wait(0.1)
    assert other.began == ["0"]
    other.go.set()
    until(lambda: other.began == ["0", "1", "2"])


def test_what_has_no_place_yet_can_be_taken_back_and_what_has_one_begins() -> None:
    gate = _Gate()
    pool = _shift(2)
    pool.put([gate.job(str(n)) for n in range(5)])
    assert sorted(job.name for job in pool.take_back()) == ["2", "3", "4"]
    assert pool.take_back() == []
    until(lambda: sorted(gate.began) == ["0", "1"])
    gate.go.set()
    threading.Event().wait(0.1)
    assert sorted(gate.began) == ["0", "1"]


def test_once_the_shift_is_stopped_nobody_gets_a_place_and_who_has_one_begins() -> None:
    gate = _Gate()
    stop = threading.Event()
    pool = _shift(2, stop.is_set)
    pool.put([gate.job(str(n)) for n in range(5)])
    until(lambda: sorted(gate.began) == ["0", "1"])
    stop.set()
    gate.go.set()
    until(lambda: len(threads._idle) >= 1)
    threading.Event().wait(0.1)
    assert sorted(gate.began) == ["0", "1"]
    assert [job.name for job in pool.take_back()] == ["4", "3", "2"]


def test_a_job_that_raises_does_not_keep_its_place() -> None:
    gate = _Gate()
    pool = _shift(1)

    def fails() -> None:
        raise SystemExit

    pool.put([_Job("fails", fails), gate.job("next")])
    until(lambda: gate.began == ["next"])
    gate.go.set()
