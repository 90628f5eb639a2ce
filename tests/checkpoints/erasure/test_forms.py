"""Erasing a run whose writes brought a schema of their own."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import reviews
from checkpoints import retention
from checkpoints.core.status import Status
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Write
from orchestrator.engine.errors import InvalidValue
from tests.support import erasures
from tests.support.run_actions import pending, reviewer
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)

MARK = "Ada-Lovelace-the-payee"


def _proposing(schema: dict[str, Any]) -> Graph:
    flow = graph("with-form")

    @flow.node("propose", effect="human", gate=Gate(reviewers=["group:claims"]))
    def propose(state: Any, ctx: Any) -> list[Write]:
        return [Write("letter", "Dear", "Letter", schema=schema, effect="external")]

    flow.edge(START, "propose")
    flow.edge("propose", END)
    return flow


def test_a_signature_is_bound_to_the_schema_and_the_effect_of_a_write() -> None:
    flow = _proposing({"maxLength": 4})
    run = advanced(flow)
    ann = reviewer(User.objects.create_user("ann"))
    [row] = pending(run)
    form = {"schema": {"maxLength": 4}, "effect": "external"}
    assert read_value(row, "shown")["form"] == form
    edit = {"write": str(row.write), "hash": row.hash, "verdict": "edit"}
    with pytest.raises(InvalidValue, match="does not fit the schema of its write"):
        reviews.sign(run.id, [{**edit, "value": "Dearest"}], by=ann)
    reviews.sign(run.id, [{**edit, "value": "Hi"}], by=ann)
    assert runs.advance(run.id).status == Status.COMPLETED
    [edited] = pending(run)
    assert read_value(edited, "shown")["form"] == form
    assert verify_run(run.id) == []


def test_a_rewind_and_a_fork_ask_again_with_the_same_form() -> None:
    run = advanced(_proposing({"maxLength": 9}))
    ann = reviewer(User.objects.create_user("ann"))
    forked = runs.advance(runs.fork(f"{run.key}:initial", by=ann).id)
    assert runs.advance(runs.rewind(run.id, f"{run.key}:initial", by=ann).id)
    at_gate = runs.advance(runs.fork(_newest(run), by=ann).id)
    for asked in (run, forked, at_gate):
        row = pending(asked)[-1]
        assert read_value(row, "shown")["form"]["schema"] == {"maxLength": 9}
        assert verify_run(asked.id) == []


def _newest(run: Any) -> Any:
    run.refresh_from_db()
    return run.head


@pytest.mark.parametrize(
    "schema", [{"enum": [MARK, "Dear"]}, {"properties": {MARK: {}}}]
)
def test_nothing_of_the_schema_of_a_write_is_left(schema: dict[str, Any]) -> None:
    ada = User.objects.create_superuser("ada")
    run = advanced(_proposing(schema))
    run = runs.cancel(run.id, by=ada, reason="over")
    assert MARK.encode() in erasures.everything()
    retention.erase(run.id, by=ada)
    assert MARK.encode() not in erasures.everything()
    assert verify_run(run.id) == []
