"""Policies of a graph whose runs are threads of LangGraph."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from langgraph.types import Command

from checkpoints import retention
from checkpoints.models import AuditLine, RetentionPolicy, Run
from orchestrator.bridges.langgraph import CountersignSaver
from orchestrator.engine.errors import InvalidValue
from orchestrator.jobs import kinds
from tests.support import langgraph_threads as graphs
from tests.support.histories import long_run, policy
from tests.support.langgraph_threads import thread
from tests.support.stewards import steward, text

__all__ = ["steward"]

pytestmark = pytest.mark.django_db(transaction=True)


def _idle(days: float, graph: str = "langgraph") -> RetentionPolicy:
    return policy(graph, remove_runs_after_days={"waiting": days})


def _begun(name: str) -> Any:
    graph = graphs.letter(CountersignSaver())
    graph.invoke({"text": "Ada", "notes": []}, thread(name))
    return graph


def test_a_thread_without_new_checkpoints_goes_as_a_whole() -> None:
    graph = _begun("idle")
    _begun("busy").invoke(Command(resume="yes"), thread("busy"))
    held = Run.objects.get(key="thread-busy")
    retention.hold(held.id, "a lawsuit", by=None)
    idle = _idle(30)
    now = timezone.now()
    assert retention.dry_run(idle, now=now).counts["runs"] == 0
    later = now + timedelta(days=31)
    assert retention.dry_run(idle, now=later).counts["runs"] == 1
    kinds.advance(retention.prune(idle, by=None, now=later).id)
    assert list(Run.objects.values_list("key", flat=True)) == ["thread-busy"]
    assert AuditLine.objects.filter(kind="run_removed").count() == 1
    graph.invoke({"text": "Bob", "notes": []}, thread("idle"))
    assert Run.objects.filter(key="thread-idle~2").exists()


def test_a_thread_that_went_on_stays() -> None:
    graph = _begun("t-1")
    idle = _idle(0)
    counted_at = timezone.now()
    graph.invoke(Command(resume="yes"), thread("t-1"))
    assert retention.dry_run(idle, now=counted_at).counts["runs"] == 0


def test_a_run_of_ours_that_waits_stays_whatever_a_policy_says() -> None:
    run = long_run()
    Run.objects.filter(id=run.id).update(status="waiting", ended_at=None)
    later = timezone.now() + timedelta(days=99)
    assert retention.dry_run(_idle(0, "long"), now=later).counts["runs"] == 0


def test_no_other_status_of_a_run_that_goes_on_has_an_age() -> None:
    row = RetentionPolicy(graph="langgraph", remove_runs_after_days={"paused": 1})
    with pytest.raises(InvalidValue):
        retention.dry_run(row)


def test_a_steward_types_the_days_and_sees_whom_they_are_about(
    steward: Client,
) -> None:
    _begun("t-1")
    add = reverse("admin:checkpoints_retentionpolicy_add")
    page = text(steward.get(add))
    assert 'name="whole_waiting"' in page
    assert "Only threads of LangGraph" in page
    steward.post(add, {"graph": "langgraph", "whole_waiting": "30"})
    assert RetentionPolicy.objects.get().remove_runs_after_days == {"waiting": 30.0}
