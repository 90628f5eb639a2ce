"""Erasing a run whose node asked people for a value."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from checkpoints import retention
from checkpoints.core.status import Status
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START
from tests.support import erasures
from tests.support.question_graphs import asking
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)

MARK = b"Ada-Lovelace-the-payee"


def fails(state: Any, ctx: Any) -> None:
    raise ValueError("not yet")


@pytest.mark.parametrize(
    "schema", [{"enum": [MARK.decode()]}, {"properties": {MARK.decode(): {}}}]
)
def test_nothing_of_the_schema_of_an_answer_is_left(schema: dict[str, Any]) -> None:
    ada = User.objects.create_superuser("ada")

    def ask(state: Any, ctx: Any) -> None:
        ctx.ask("letter", "To whom?", schema)

    flow = asking(fn=ask)
    flow.node("fails")(fails)
    flow.edge(START, "fails")
    flow.edge("fails", END)
    run = advanced(flow)
    assert run.status == Status.FAILED
    run = runs.cancel(run.id, by=ada, reason="over")
    assert MARK in erasures.everything()
    retention.erase(run.id, by=ada)
    assert MARK not in erasures.everything()
    assert verify_run(run.id) == []
