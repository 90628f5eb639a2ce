"""Asking from code on the server."""

from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client
from django.urls import reverse
from pydantic import BaseModel

from approvals import reviews
from checkpoints.core.status import Status
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import asking, discovery, runs
from orchestrator.engine import Graph, registry
from orchestrator.engine.errors import (
    InvalidGraph,
    InvalidValue,
    PayloadTooLarge,
    UnknownThing,
)
from orchestrator.graphs import NAME, approval
from tests.support import small_graphs
from tests.support.approvals import payers
from tests.support.deadlines import let_come, meet_deadline

EAST = timezone(timedelta(hours=14))
WEST = timezone(timedelta(hours=-12))
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def ann(db: Any) -> User:
    registry.replace(approval)
    person = User.objects.create_user("ann")
    payers(person)
    return person


def _question(**changes: Any) -> asking.Inquiry:
    asked = {
        "title": "Pay {it}",
        "items": [{"id": "a", "value": None}, {"id": "b", "value": {"x": [1.5, "2"]}}],
        "reviewers": ["group:payers"],
    }
    return asking.Inquiry(**{**asked, **changes})


def _advanced(asked: asking.Approval) -> asking.Approval:
    return asking.approval_of(runs.advance(asked.run.id))


def _decided(asked: asking.Approval, verdict: str, by: User) -> asking.Approval:
    decisions = []
    for item in asked.items:
        decisions.append(
            {"write": str(item.write), "hash": item.hash, "verdict": verdict}
        )
    reviews.sign(asked.run.id, decisions, by=by)
    return _advanced(asked)


@pytest.mark.parametrize(
    ("verdict", "state"), [("approve", "approved"), ("reject", "rejected")]
)
def test_values_of_any_type_are_asked_about(
    ann: User, verdict: str, state: str
) -> None:
    asked = _advanced(asking.ask(_question()))
    assert asked.state == "open"
    assert asked.request is not None
    assert [item.value for item in asked.items] == [None, {"x": [1.5, "2"]}]
    assert _decided(asked, verdict, ann).state == state
    assert verify_run(asked.run.id) == []


def test_what_the_caller_rolls_back_was_not_asked() -> None:
    with transaction.atomic():
        asking.ask(_question())
        transaction.set_rollback(True)
    assert not Run.objects.exists()


def test_a_deadline_that_nobody_met_rejects_or_closes(ann: User) -> None:
    rejecting = asking.ask(_question(deadline=timedelta(hours=1)))
    closing = asking.ask(_question(deadline=timedelta(hours=1), on_deadline="fail"))
    for asked in (rejecting, closing):
        assert _advanced(asked).state == "open"
        let_come(asked.run)
        meet_deadline(asked.run)
    assert _advanced(rejecting).state == "rejected"
    assert _advanced(closing).state == "expired"


def test_a_deadline_that_passed_while_no_worker_ran_is_met_at_once() -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    asked = asking.ask(_question(deadline=soon))
    opened = _advanced(asked)
    assert opened.request is not None
    assert opened.request.deadline == soon


def test_a_question_is_taken_back_by_its_key(ann: User) -> None:
    asking.ask(_question(), key="K-1")
    assert asking.cancel("K-1", reason="over").state == "cancelled"
    with pytest.raises(UnknownThing):
        asking.cancel("K-2")


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"title": " "}, "title"),
        ({"title": "x" * 501}, "title"),
        ({"items": [{"id": "a", "value": 1, "colour": 2}]}, "items[0].colour"),
        ({"items": [{"id": "\x00", "value": 1}]}, "items[0].id"),
        ({"items": [{"id": "b) (c", "value": 1}]}, "items[0].id"),
        ({"items": [{"id": "a", "value": float("nan")}]}, "items[0].value"),
        ({"items": [{"id": "a", "value": 1}] * 1001}, "items"),
        ({"facts": [{"label": "x"}]}, "facts[0].value"),
        ({"deadline": datetime(2030, 1, 1)}, "deadline"),  # noqa: DTZ001
        ({"deadline": timedelta(days=90_000)}, "deadline"),
        ({"deadline": datetime(2100, 1, 1, tzinfo=UTC)}, "deadline"),
        ({"deadline": datetime(1, 1, 1, tzinfo=EAST)}, "deadline"),
        ({"deadline": datetime.max.replace(tzinfo=WEST)}, "deadline"),
        ({"on_deadline": "approve"}, "on_deadline"),
        ({"quorum": True}, "quorum"),
    ],
)
def test_a_wrong_question_names_its_place(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        asking.ask(_question(**changes))
    assert refused.value.facts["path"] == path
    assert not Run.objects.exists()


@pytest.mark.parametrize("key", ["a/b", "\ud800", "\x00", 7])
def test_what_is_no_key_is_refused_before_it_is_looked_up(key: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        asking.ask(_question(), key=key)
    assert refused.value.facts["path"] == "key"


def test_a_review_says_the_question_the_labels_and_what_is_done_with_each(
    ann: User, client: Client
) -> None:
    item = {"id": "a", "label": "Invoice 1", "value": "1.00", "effect": "external"}
    schema = {"type": "string", "title": "Amount", "maxLength": 5}
    asked = _advanced(asking.ask(_question(items=[{**item, "schema": schema}])))
    client.force_login(ann)
    page = client.get(reverse("review", args=[asked.run.id])).content.decode()
    assert "Pay {it}" in page
    assert "Invoice 1 (a)" in page
    assert "Whoever asked acts outside with it once it is approved." in page


def test_a_signature_is_bound_to_the_id_of_its_item() -> None:
    item = {"id": "inv-1", "label": "Invoice", "value": 1}
    asked = _advanced(asking.ask(_question(items=[item])))
    row = PendingWrite.objects.get(run=asked.run)
    assert read_value(row, "shown")["label"] == "Invoice (inv-1)"
    assert asked.items[0].label == "Invoice"


def test_a_thousand_items_are_one_request(ann: User) -> None:
    items = [{"id": str(number), "value": number} for number in range(1000)]
    asked = _advanced(asking.ask(_question(items=items)))
    assert len(asked.items) == 1000
    assert _decided(asked, "approve", ann).run.status == Status.COMPLETED


def test_the_schemas_of_a_question_share_one_budget() -> None:
    value = list(range(2_000))
    schema = {"items": {"type": "integer"}}
    items = [{"id": str(n), "value": value, "schema": schema} for n in range(100)]
    with pytest.raises(InvalidValue, match="takes too long"):
        asking.ask(_question(items=items))
    assert asking.ask(_question(items=items[:20])).state == "opening"


def test_schemas_that_are_too_large_together_are_refused_at_once() -> None:
    schema = {"title": "x" * 60_000}
    items = [{"id": str(n), "value": n, "schema": schema} for n in range(80)]
    with pytest.raises(PayloadTooLarge, match="the schemas of the items"):
        asking.ask(_question(items=items))
    assert not Run.objects.exists()


def test_the_shipped_graph_is_started_as_an_approval_alone() -> None:
    asked = asking.ask(_question(), key="K-1")
    with pytest.raises(InvalidValue, match="is asked as an approval"):
        runs.start(NAME, asked.question)
    with pytest.raises(InvalidValue, match="is asked as an approval"):
        runs.start(NAME, asked.question, key="K-1", restart=True)
    with pytest.raises(CommandError, match="is asked as an approval"):
        call_command("start_run", NAME)
    assert Run.objects.count() == 1


@pytest.mark.parametrize("version", ["1", "2"])
def test_the_name_of_the_shipped_graph_is_reserved(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Graph(NAME, version=version, input=BaseModel, state=BaseModel)
    monkeypatch.setattr("tests.support.small_graphs.other", other, raising=False)
    config = SimpleNamespace(name="tests.support")
    monkeypatch.setattr(discovery, "find_spec", lambda name: name)
    monkeypatch.setattr(discovery.apps, "get_app_configs", lambda: [config])
    monkeypatch.setattr(discovery, "import_module", lambda name: small_graphs)
    with pytest.raises(InvalidGraph, match="is reserved"):
        discovery.discover()


def test_the_structure_of_the_shipped_graph_is_kept() -> None:
    kept = "4a27ca8d66d0a1b07425d4db5932b7d4bfba55723efa9ddf4d93e6c7a769ad43"
    # A run that waits when the package is upgraded goes on with this very version. What
    # changes it is a new version beside this one, never a change of it.
    assert registry.get(NAME, "1").fingerprint == kept
