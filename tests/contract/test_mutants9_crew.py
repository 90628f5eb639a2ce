"""The threads of nodes, used again: what a job leaves behind in one is not there for the next."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from orchestrator import crew
from tests.processes import until

SEEN: ContextVar[str] = ContextVar("SEEN", default="nothing")


@pytest.fixture(autouse=True)
def nobody_else_waits() -> Iterator[None]:
    """The crew of this test is its own."""
    others = list(crew._idle)
    crew._idle.clear()
    yield
    crew._idle.extend(others)


def _done(name: str, work: Callable[[], Any]) -> Any:
    """Do the work in a thread of the crew, and wait until that thread waits for the next."""
    answer: list[Any] = []

    def job() -> None:
        answer.append(work())

    crew.run(name, job)
    until(lambda: len(crew._idle) == 1)
    return answer[0] if answer else None


def test_a_thread_that_is_free_does_the_next_job_under_its_name() -> None:
    first = _done("first", lambda: (threading.get_ident(), threading.current_thread().name))
    second = _done("second", lambda: (threading.get_ident(), threading.current_thread().name))
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("first", "second")


def test_what_a_job_sets_in_its_context_is_not_the_next_ones_to_see() -> None:
    _done("sets", lambda: SEEN.set("mine"))
    assert _done("looks", SEEN.get) == "nothing"


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_job_that_raises_whatever_it_is_leaves_its_thread_to_the_next(error: type[BaseException]) -> None:
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
    crew.run("holds", lambda held=large: None)  # type: ignore[misc]
    until(lambda: len(crew._idle) == 1)
    del large
    gc.collect()
    assert gone() is None


def test_two_jobs_at_once_have_a_thread_each() -> None:
    meet, idents = threading.Barrier(2, timeout=10), []

    def job() -> None:
        meet.wait()
        idents.append(threading.get_ident())

    crew.run("one", job)
    crew.run("two", job)
    until(lambda: len(crew._idle) == 2)
    assert len(set(idents)) == 2
