"""Decisions that meet a worker, or each other, in real transactions. Many trials, each
at another moment.
"""

import itertools
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from approvals import reviews
from approvals.gates import request_state
from approvals.models import Decision, RequestStatus
from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Write
from orchestrator.engine.errors import AlreadyDecided, StaleProposal
from tests.graphs_app.graphs import hooked
from tests.races.meeting import TRIALS, Thread, meet, settled_by, whole, winner_of, work
from tests.support import cast, run_actions
from tests.support import small_graphs as small
from tests.support.processes import calls, until
from tests.support.run_actions import event_payloads, sign, state

pytestmark = pytest.mark.django_db(transaction=True)
EDITS = [
    ("edit", {"amount": "7"}),
    ("edit", "Dear friend"),
    ("edit", ["third"]),
    ("edit", ["fourth"]),
]
EDITED = {"payout": {"amount": "7"}, "letter": "Dear friend"}


@pytest.fixture
def both(people: cast.People) -> list[User]:
    """Rita and Ravi, who may both sign."""
    return [
        run_actions.reviewer(people.reviewer),
        run_actions.reviewer(people.second_reviewer),
    ]


def test_a_decision_signed_while_a_branch_of_its_run_is_worked_on_is_never_lost(
    tmp_path: Path, people: cast.People
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    chance = random.Random(8)
    for trial in range(TRIALS):
        run = runs.start("beside", {"folder": str(tmp_path)})
        worker = Thread(lambda run=run: work(run))
        until(lambda run=run: run_actions.pending(run), what="the gate")
        time.sleep(chance.random() * 0.04)
        _sign_until_settled(run, rita)
        worker.outcome()
        whole(run)
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED, (
            f"trial {trial}: {run.status} at {run.at_node}"
        )
        notes = state(run)["notes"]
        assert notes.count("from the gate") == 1, f"trial {trial}: {notes}"
        assert notes.count("after the gate") == 1
        assert len(event_payloads(run, "gate_applied")) == 1
        whole(run)


def _sign_until_settled(run: Run, by: User) -> None:
    """Sign what is open, and again what comes back because the branch moved its base,
    as a person would.
    """
    until(
        lambda: _settled_for_good(run, by),
        what="the gate to be applied, or settled and left alone",
    )


def _settled_for_good(run: Run, by: User) -> bool:
    # before the request: what is settled may come back as long as the run is worked on
    run.refresh_from_db()
    request = run_actions.request(run)
    if request.status == RequestStatus.OPEN:
        with suppress(StaleProposal, AlreadyDecided):
            sign(run, by, ["approve", "approve"])
        return False
    return request.status == RequestStatus.APPLIED or run.status != Status.RUNNING


def test_one_of_two_concurrent_decisions_wins_and_the_refusal_names_its_author(
    tmp_path: Path, both: list[User]
) -> None:
    chance = random.Random(1)
    for trial in range(TRIALS):
        run = run_actions.start("gated", tmp_path, number=str(trial))
        met = meet(
            chance,
            lambda run=run: sign(run, both[0], ["approve"] * 4),
            lambda run=run: sign(run, both[1], ["reject"] * 4),
        )
        winner = settled_by(met, both)
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED
        assert state(run)["letter"] == ("Dear customer" if winner is both[0] else "")
        assert Decision.objects.filter(run=run.id).count() == 4
        assert len(event_payloads(run, "gate_applied")) == 1
        whole(run, tmp_path)
    assert len(calls(tmp_path, "released")) <= TRIALS


def test_exactly_one_of_a_concurrent_approval_and_edit_is_applied(
    tmp_path: Path, both: list[User]
) -> None:
    chance = random.Random(2)
    for _ in range(TRIALS):
        run = run_actions.start("gated", tmp_path)
        met = meet(
            chance,
            lambda run=run: sign(run, both[0], ["approve"] * 4),
            lambda run=run: sign(run, both[1], EDITS),
        )
        edited = settled_by(met, both) is both[1]
        after = state(runs.advance(run.id))
        expected = (
            EDITED
            if edited
            else {"payout": {"amount": "10"}, "letter": "Dear customer"}
        )
        assert {name: after[name] for name in expected} == expected
        assert after["notes"] == (
            ["third", "fourth"] if edited else ["first", "second"]
        )
        whole(run, tmp_path)


def test_one_of_two_concurrent_edits_is_applied_and_the_refusal_names_its_author(
    tmp_path: Path, both: list[User]
) -> None:
    chance = random.Random(3)
    for _ in range(TRIALS):
        run = run_actions.start("gated", tmp_path)
        other = [
            ("edit", {"amount": "9"}),
            ("edit", "Dear foe"),
            ("edit", ["x"]),
            ("edit", ["y"]),
        ]
        met = meet(
            chance,
            lambda run=run: sign(run, both[0], EDITS),
            lambda run=run, o=other: sign(run, both[1], o),
        )
        letter = "Dear friend" if settled_by(met, both) is both[0] else "Dear foe"
        assert state(runs.advance(run.id))["letter"] == letter
        assert {row.revision for row in run_actions.pending(run)} == {2}
        whole(run, tmp_path)


def test_a_second_edit_of_one_unsettled_revision_is_stale(
    both: list[User],
) -> None:
    flow = small.graph("quorum_race")
    gate = Gate(reviewers=["group:claims"], quorum=2)
    flow.node("ask", effect="human", gate=gate)(
        lambda state, ctx: [Write("letter", "proposed")]
    )
    flow.edge(START, "ask")
    flow.edge("ask", END, when=("approved", "partial"))
    chance = random.Random(4)
    for _ in range(TRIALS):
        run = small.advanced(flow)
        values = ["hers", "his"]
        (shown,) = run_actions.pending(run)
        # Both have the same revision on their screens, whoever comes first.
        seen = {
            "write": str(shown.write),
            "hash": shown.hash,
            "verdict": "edit",
            "reason": "",
        }
        met = meet(
            chance,
            lambda run=run, seen=seen: reviews.sign(
                run.id, [{**seen, "value": "hers"}], by=both[0]
            ),
            lambda run=run, seen=seen: reviews.sign(
                run.id, [{**seen, "value": "his"}], by=both[1]
            ),
        )
        place = winner_of(met)
        assert isinstance(met[1 - place], StaleProposal)
        (row,) = run_actions.pending(run)
        assert row.revision == 2
        assert met[1 - place].facts["moved"] == [str(row.write)]
        sign(run, both[1 - place], ["approve"])
        assert state(runs.advance(run.id))["letter"] == values[place]
        whole(run)


def test_a_decision_that_meets_the_workers_pause_is_applied(
    tmp_path: Path, both: list[User]
) -> None:
    chance = random.Random(6)
    for trial in range(TRIALS):
        run = runs.start("beside", {"folder": str(tmp_path)})
        with hooked({"rewrite": lambda: time.sleep(0.01)}):
            met = meet(
                chance,
                lambda run=run: work(run),
                lambda run=run: _sign_near_the_pause(run, both[0], chance),
            )
        assert all(one is None for one in met), met
        whole(run)
        _sign_what_came_back(run, both[0])
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED, (
            f"trial {trial}: {run.status} at {run.at_node}"
        )
        assert state(run)["notes"].count("after the gate") == 1
        whole(run)


def _sign_near_the_pause(run: Run, by: User, chance: random.Random) -> None:
    """Sign when the last node of the branch beside the gate is about to run: its commit
    pauses the run.
    """
    until(
        lambda: Run.objects.filter(id=run.id, superstep__gte=5).exists(),
        what="the last superstep",
    )
    time.sleep(chance.random() * 0.03)
    try:
        sign(run, by, ["approve", "approve"])
    except StaleProposal:
        _sign_what_came_back(run, by)


def _sign_what_came_back(run: Run, by: User) -> None:
    if run_actions.request(run).status == RequestStatus.OPEN:
        _sign_until_settled(run, by)


def test_an_edit_that_is_signed_while_a_worker_looks_at_its_gate_is_no_tampering(
    tmp_path: Path, both: list[User]
) -> None:
    for moment in range(4):
        run = run_actions.start("gated", tmp_path)
        seen = itertools.count()

        def looked(
            execute: Any,
            *words: Any,
            run: Run = run,
            moment: int = moment,
            seen: Any = seen,
        ) -> Any:
            if next(seen) == moment:
                Thread(lambda: sign(run, both[0], EDITS)).outcome()
            return execute(*words)

        asked = [run_actions.request(run)]
        with connection.execute_wrapper(looked):
            (state,) = request_state.load_states(asked, protection_of(run))
        assert state.outcome in (None, "approved")
        if next(seen) <= moment:
            break
    assert moment >= 2, "the edit was never signed between two statements"


def test_the_last_two_decisions_that_arrive_together_wake_the_run_once(
    tmp_path: Path, both: list[User]
) -> None:
    chance = random.Random(7)
    for _ in range(TRIALS):
        run = run_actions.start("gated", tmp_path)
        before = Run.objects.values_list("wakes", flat=True).get(id=run.id)
        halves: Any = meet(
            chance,
            lambda run=run: sign(run, both[0], ["approve", "approve", None, None]),
            lambda run=run: sign(run, both[1], [None, None, "approve", "approve"]),
        )
        assert [line["result"] for receipt in halves for line in receipt.lines] == [
            "counted"
        ] * 4
        assert Run.objects.values_list("wakes", flat=True).get(id=run.id) == before + 1
        whole(run)
        assert runs.advance(run.id).status == Status.COMPLETED
        whole(run, tmp_path)
