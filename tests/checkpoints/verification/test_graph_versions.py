"""Rows of versions that were forged or deleted by SQL: no worker takes a run back by
them, or accepts a weaker gate.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from checkpoints import versions
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, GraphVersion, Run
from checkpoints.verification.graph_versions import version_faults
from orchestrator import discovery, runs
from orchestrator.engine import registry
from orchestrator.worker import claimable
from tests.support.forging import remove, tamper
from tests.support.small_graphs import registered, started
from tests.support.versioned_graphs import paying

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def newer() -> Run:
    """A queued run of version 2, in a process that has only version 1, whose gate asks
    more people and would take it.
    """
    registered(paying("1", quorum=2))
    run = started(paying("2"))
    registry.clear()
    registered(paying("1", quorum=2))
    _began()
    return run


def _began() -> None:
    """Note the versions of this process, as one does that has just begun."""
    discovery.forget_noted()
    discovery.note_versions()


def _version(number: str) -> GraphVersion:
    return GraphVersion.objects.get(name="paying", version=number)


def _moved_behind() -> None:
    tamper(_version("1"), first_seen_at=_version("2").first_seen_at + timedelta(days=1))


def _moved_ahead() -> None:
    tamper(_version("2"), first_seen_at=_version("1").first_seen_at - timedelta(days=1))


def _told_otherwise() -> None:
    tamper(
        _version("2"),
        first_seen_at=_version("1").first_seen_at - timedelta(days=1),
        before="",
    )


def _deleted_and_seen_again() -> None:
    remove(_version("1"))
    _began()


@pytest.mark.parametrize(
    "forge", [_moved_behind, _moved_ahead, _told_otherwise, _deleted_and_seen_again]
)
def test_no_worker_takes_a_run_back_by_a_version_that_was_forged(
    forge: Callable[[], None], newer: Run
) -> None:
    assert list(version_faults()) == []
    forge()
    run = runs.advance(newer.id)
    assert run.status == Status.QUEUED
    assert run.version == "2"
    assert run.event_seq == newer.event_seq
    assert claimable.claimable().graphs == frozenset()
    assert {fault.table for fault in version_faults()} == {"checkpoints_graphversion"}


def test_a_run_whose_version_was_deleted_is_not_judged_by_guessing(newer: Run) -> None:
    remove(_version("2"))
    versions._structures.clear()
    run = runs.advance(newer.id)
    assert run.status == Status.INCOMPATIBLE
    assert run.version == "2"


@pytest.mark.parametrize("forge", ["weaker", "none"])
def test_a_forged_structure_lets_no_weaker_gate_pass(
    forge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(paying("1", quorum=2))
    registry.clear()
    weaker = registered(paying("2"))
    discovery.note_versions()
    structure = (
        registry.current(weaker.name).structure_text if forge == "weaker" else ""
    )
    GraphVersion.objects.filter(version="1").update(structure=structure)
    monkeypatch.setattr(versions, "_structures", dict[str, dict[str, Any]]())
    advanced_run = runs.advance(run.id)
    assert advanced_run.status == Status.INCOMPATIBLE
    assert advanced_run.version == "1"


def test_versions_that_were_all_deleted_and_noted_again_in_another_order_are_named() -> (
    None
):
    for number in ("1", "2"):
        run = started(paying(number, quorum=int(number)))
        first = Checkpoint.objects.get(run=run, seq=0)
        tamper(first, created_at=first.created_at - timedelta(hours=2))
    GraphVersion.objects.all().delete()
    for number in ("2", "1"):
        registry.clear()
        registered(paying(number, quorum=int(number)))
        _began()
    reasons = [fault.reason for fault in version_faults()]
    assert len(reasons) == 2
    assert all(
        reason.endswith("says that it was first seen after a run of it had begun")
        for reason in reasons
    )


def test_versions_that_two_processes_noted_at_once_are_sound() -> None:
    started(paying("1"))
    for number, quorum in (("2", 2), ("3", 3)):
        registered(paying(number, quorum=quorum))
    discovery.note_versions()
    row = _version("3")
    row.before = _version("1").fingerprint
    row.delete()
    row.pk = None
    discovery.sealed_rows.seal(row, discovery.sealed_rows.PLAIN)
    row.save(force_insert=True)
    assert list(version_faults()) == []
