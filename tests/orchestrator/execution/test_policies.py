"""A worker asks the policy under which a request was opened, about what people see."""

from typing import Any

import pytest

from approvals.models import ApprovalRequest, Decision
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import registry
from orchestrator.runs.reopenings import reopen
from tests.support import cast, run_actions
from tests.support.deadlines import gated, paused_run
from tests.support.run_actions import sign_open

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> Any:
    return run_actions.reviewer(people.reviewer)


def never(state: Any, proposal: Any) -> str:
    return "too much"


def always(state: Any, proposal: Any) -> bool:
    return True


def by_policy(run: Run) -> list[tuple[str, str, str]]:
    """What policies answered: the verdict, the name of the function, and the reason."""
    rows = Decision.objects.filter(run=run.id, by=None).order_by("event_seq")
    answers: list[tuple[str, str, str]] = []
    for row in rows:
        reason = read_value(row, "reason") or ""
        answers.append((row.verdict, row.checked["policy"], reason))
    return answers


def test_the_policy_of_another_version_signs_nothing_that_was_re_opened_under_it(
    rita: Any, people: cast.People
) -> None:
    run = paused_run("of-two", deadline=None, auto=never)
    # Something else has to change too, as long as a policy alone is no change.
    newer = gated("of-two", deadline=None, auto=always)
    newer.version = "2"
    registry.replace(newer)
    asked = ApprovalRequest.objects.get(run=run, status="open")
    opened = reopen(asked.id, by=people.steward, reason="it is small")
    assert opened.policy["auto"] == "always"
    run = runs.advance(run.id)
    assert (run.status, run.version) == ("paused", "1")
    for verdict, name, reason in by_policy(run)[-2:]:
        assert (verdict, name) == ("no_auto", "always")
        assert "another policy now" in reason
    assert verify_run(run.id) == []
    sign_open(run, rita, "approve")
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []
