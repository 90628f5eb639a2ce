"""Every commit of every scenario happens without anybody being told; nothing is lost by
that, and nothing doubled.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection

from approvals import reviews
from approvals.models import Decision, Receipt
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine.errors import AlreadyDecided, WrongStatus
from tests.crash import graphs, lost, scenarios, test_sweep
from tests.crash.abort import watching
from tests.crash.journey import journey, journey_hash
from tests.crash.lost import Answers
from tests.crash.scenarios import SCENARIOS
from tests.support import cast, run_actions

pytestmark = pytest.mark.django_db(transaction=True)


STEP = max(1, test_sweep.STEP // 4)
"""Every n-th commit is tried; with every moment of the sweep, every commit."""
TURN = 1 if connection.vendor == "postgresql" else 0
"""Scenarios and databases take turns in which commits they try; all are tried by `make
sweep`.
"""


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_done_twice(
    name: str, tmp_path: Path, people: cast.People, configure: Any, quick: None
) -> None:
    scenario = SCENARIOS[name]
    configure(**scenario.settings)
    rita = run_actions.reviewer(people.reviewer)
    scenarios.live(scenario, by=rita, folder=tmp_path, trouble=Answers())
    whole = Answers()
    wanted = scenarios.live(scenario, by=rita, folder=tmp_path, trouble=whole)
    expected = journey(wanted)
    hashed = journey_hash(wanted)
    for at in itertools.count((list(SCENARIOS).index(name) + TURN) % STEP, STEP):
        answers = Answers(at)
        met = scenarios.live(scenario, by=rita, folder=tmp_path, trouble=answers)
        if not answers.fired:
            break
        assert journey_hash(met) == hashed, (at, answers.fired, journey(met), expected)
        scenarios.nothing_is_lost_or_doubled(scenario, met, tmp_path)
    print(
        f"{name}: every {STEP}. answer of {whole.number} was lost, up to {at}: {dict(whole.seen)}"
    )
    assert at > 0.7 * whole.number > 2


def test_commits_of_every_kind_are_among_them(
    tmp_path: Path, people: cast.People, settings: Any, quick: None
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    seen = set()
    before = settings.COUNTERSIGN
    for scenario in SCENARIOS.values():
        settings.COUNTERSIGN = {**before, **scenario.settings}
        whole = Answers()
        scenarios.live(scenario, by=rita, folder=tmp_path, trouble=whole)
        seen |= set(whole.seen)
    assert lost.EVERY - seen == set()


def _unanswered(act: Callable[[], Any]) -> None:
    """Do it, and lose the answer to its commit."""
    with pytest.raises(OperationalError), watching(Answers(0)):
        act()
    connection.close()


def test_a_signature_that_was_not_answered_and_is_sent_again_gives_the_receipt_of_the_first(
    tmp_path: Path, people: cast.People
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run = run_actions.start("c_gate", tmp_path)
    decisions = [
        {"write": str(w.write), "hash": w.hash, "verdict": "approve"}
        for w in run_actions.pending(run)
    ]
    _unanswered(
        lambda: reviews.sign(run.id, decisions, by=rita, idempotency_key="once")
    )
    (receipt,) = Receipt.objects.filter(run=run)
    assert reviews.sign(run.id, decisions, by=rita, idempotency_key="once") == receipt
    assert Decision.objects.filter(run=run.id).count() == 3
    with pytest.raises(AlreadyDecided) as facts:
        reviews.sign(run.id, decisions, by=rita)
    assert facts.value.facts["by"] == [rita.username]


def test_a_start_that_was_not_answered_and_is_sent_again_gives_the_run_of_the_first(
    tmp_path: Path,
) -> None:
    run_input = {"folder": str(tmp_path)}
    # The first start of a graph in a process also notes its version, in a commit of its
    # own.
    runs.start("c_linear", run_input, key="before")
    _unanswered(lambda: runs.start("c_linear", run_input, key="once"))
    (first,) = Run.objects.filter(key="once")
    assert runs.start("c_linear", run_input, key="once") == first
    assert Run.objects.count() == 2


def test_a_resume_or_a_cancel_that_was_not_answered_and_is_sent_again_changes_nothing_more(
    tmp_path: Path, people: cast.People
) -> None:
    graphs.fresh()
    stella = people.steward
    run = run_actions.start("c_failure", tmp_path)
    _unanswered(lambda: runs.resume(run.id, by=stella))
    with pytest.raises(WrongStatus):
        runs.resume(run.id, by=stella)
    _unanswered(lambda: runs.cancel(run.id, by=stella))
    runs.cancel(run.id, by=stella)
    assert [
        len(run_actions.event_payloads(run, kind))
        for kind in ("run_resumed", "run_cancelled")
    ] == [1, 1]
