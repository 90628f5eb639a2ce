"""LangGraph's own conformance suite for checkpointers, whole."""

from collections.abc import AsyncGenerator

import pytest
from asgiref.sync import sync_to_async
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks

from checkpoints.models import Run
from checkpoints.verification import Fault, verify_run
from orchestrator.bridges.langgraph import CountersignSaver

CAPABILITIES = {
    "put",
    "put_writes",
    "get_tuple",
    "list",
    "delete_thread",
    "copy_thread",
    "prune",
    "delete_for_runs",
}

TESTS = 81
"""The tests that the suite has: a newer one with more of them is looked at first."""


@checkpointer_test(name="CountersignSaver")
async def _saver() -> AsyncGenerator[CountersignSaver, None]:
    yield CountersignSaver()


def _faults() -> list[Fault]:
    return [fault for run in Run.objects.all() for fault in verify_run(run.id)]


@pytest.mark.django_db(transaction=True)
async def test_the_suite_of_langgraph_passes() -> None:
    """Its own output is printed, with how many of its tests passed: `pytest -s`, and with
    each failure.
    """
    report = await validate(_saver, progress=ProgressCallbacks.verbose())
    report.print_report()
    tests = [
        (result.tests_passed, result.tests_failed) for result in report.results.values()
    ]
    passed = sum(passed for passed, _ in tests)
    count = passed + sum(failed for _, failed in tests)
    print(f"{passed} of {count} tests of LangGraph's suite passed")
    assert report.conformance_level() == "FULL"
    detected = {name for name, result in report.results.items() if result.detected}
    assert detected == CAPABILITIES
    assert (passed, count) == (TESTS, TESTS)
    failures = {name: result.failures for name, result in report.results.items()}
    assert {name: result for name, result in failures.items() if result} == {}
    faults = await sync_to_async(_faults)()
    assert faults == []
