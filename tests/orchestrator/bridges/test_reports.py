"""Reports of bridges, which break nothing."""

import asyncio

import pytest

from orchestrator.bridges.reports import DONE, outcome_of, report, report_async
from orchestrator.client import Approval, AsyncClient
from orchestrator.engine import NotDone
from tests.support.bridges import Office

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def approval(office: Office) -> Approval:
    items = [{"id": "a", "value": 1}]
    asked = office.client.ask(title="Pay", items=items, reviewers=["group:payers"])
    [opened] = office.asked(1)
    office.decide(opened, "approve")
    return office.client.approval(asked.id)


def test_what_is_not_delivered_can_be_reported_later(
    office: Office, approval: Approval
) -> None:
    assert not report(office.client_without_answers(1), approval, {"a": DONE})
    assert office.outcomes() == [None]
    for client in (office.client_that_loses(1), office.client, office.client):
        report(client, approval, {"a": DONE})
    assert office.outcomes() == ["done"]


def test_a_refusal_is_logged_and_settled(
    office: Office, approval: Approval, caplog: pytest.LogCaptureFixture
) -> None:
    assert report(office.client, approval, {"a": DONE})
    assert report(office.client, approval, {"a": ("failed", "later")})
    assert "already_reported" in caplog.text
    assert office.outcomes() == ["done"]


def test_a_client_that_is_closed_breaks_nothing(
    office: Office, approval: Approval, caplog: pytest.LogCaptureFixture
) -> None:
    async def report_closed() -> bool:
        client = AsyncClient(office.url, token=office.token)
        await client.aclose()
        return await report_async(client, approval, {"a": DONE})

    assert asyncio.run(report_closed())
    assert "its outcome is not reported" in caplog.text


def test_only_what_says_so_did_not_happen() -> None:
    assert outcome_of(NotDone("shut" * 1000))[0] == "failed"
    assert len(outcome_of(NotDone("shut" * 1000))[1]) == 2000
    assert outcome_of(ValueError("token=s3cret")) == ("unknown", "ValueError")
