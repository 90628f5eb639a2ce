"""What a message says: ids, names, the question, classes of effects, a link. No value."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from cloudevents.core.formats.json import JSONFormat

from approvals.models import ApprovalRequest, Notice, Webhook, WebhookDelivery
from approvals.notices import message
from checkpoints.models import Run
from orchestrator.engine import END, START, Gate
from tests.support.forging import tamper
from tests.support.rows import a_request, a_run
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db
AT = datetime(2026, 11, 28, 9, 5, tzinfo=UTC)


def to_webhook(notice: Notice, **columns: Any) -> WebhookDelivery:
    """The notice on its way to a webhook with these columns."""
    return WebhookDelivery(webhook=Webhook(**columns), notice=notice)


def of_request(request: ApprovalRequest, **columns: Any) -> dict[str, Any]:
    """The data of the message about a request."""
    notice = Notice.objects.create(
        **{"event": "request.opened", "run": request.run_id, "at": AT, **columns},
        request=request.id,
    )
    data: dict[str, Any] = orjson.loads(message.body_of(to_webhook(notice)))["data"]
    return data


@pytest.mark.django_db(transaction=True)
def test_a_message_names_the_request_and_holds_no_value(configure: Any) -> None:
    configure(SITE_URL="https://runs.example.org/")
    flow = graph("noticed")

    @flow.node(
        effect="human", gate=Gate(reviewers=["user:rita"], title="Send the letter?")
    )
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "a secret letter"}

    @flow.node(effect="external")
    def send(state: Any, ctx: Any) -> None:
        return None

    flow.edge(START, "propose")
    flow.edge("propose", "send", when="approved")
    flow.edge("propose", END, when=("rejected", "partial"))
    flow.edge("send", END)
    run = advanced(flow)
    request = ApprovalRequest.objects.get()
    notice = Notice.objects.get(event="request.opened")
    body = message.body_of(to_webhook(notice))
    assert b"secret" not in body
    document = orjson.loads(body)
    assert document["type"] == "request.opened"
    assert datetime.fromisoformat(document["timestamp"]) == notice.at
    assert document["data"] == {
        "run": str(run.id),
        "request": str(request.id),
        "graph": "noticed",
        "node": "propose",
        "question": "Send the letter?",
        "effects": {"external": 1},
        "link": f"https://runs.example.org/reviews/{run.id}/",
    }


def test_a_message_about_a_run_links_to_it() -> None:
    run = a_run(status="failed")
    notice = Notice.objects.create(
        event="run.stopped", run=run.id, outcome="failed", at=AT
    )
    assert orjson.loads(message.body_of(to_webhook(notice)))["data"] == {
        "run": str(run.id),
        "graph": run.graph,
        "outcome": "failed",
        "link": f"/runs/{run.id}/",
    }


def test_the_question_of_an_encrypted_graph_stays_in_the_house() -> None:
    request = a_request(a_run(), "user:rita", title="Pay Marta?")
    assert of_request(request)["question"] == "Pay Marta?"
    Run.objects.update(encrypted=True)
    assert of_request(request)["question"] == ""


def test_the_question_of_a_row_that_does_not_verify_is_left_out() -> None:
    request = a_request(a_run(), "user:rita")
    tamper(request, graph="another")
    assert of_request(request)["question"] == ""


def test_a_long_question_is_cut() -> None:
    request = a_request(a_run(), "user:rita", title="x" * 10_000)
    assert len(of_request(request)["question"]) == message.LONGEST_QUESTION


def test_a_message_about_a_removed_run_has_the_ids() -> None:
    notice = Notice.objects.create(
        event="run.stopped", run=a_run().id, outcome="failed", at=AT
    )
    Run.objects.all().delete()
    assert orjson.loads(message.body_of(to_webhook(notice)))["data"] == {
        "run": str(notice.run),
        "outcome": "failed",
    }


def test_a_cloud_event_says_the_same_in_its_own_envelope(configure: Any) -> None:
    configure(SITE_URL="https://runs.example.org")
    request = a_request(a_run(), "user:rita")
    notice = Notice.objects.get(event="request.opened")
    delivery = to_webhook(notice, envelope="cloudevents")
    body = message.body_of(delivery)
    headers = message.headers_of(delivery, body, secret=b"s", at=1)
    event = JSONFormat().read(None, body)
    assert headers["Content-Type"].startswith("application/cloudevents+json")
    assert event.get_specversion() == "1.0"
    assert event.get_id() == headers["webhook-id"]
    assert event.get_source() == "https://runs.example.org"
    assert event.get_type() == "countersign.request.opened"
    assert event.get_subject() == f"runs/{request.run_id}/requests/{request.id}"
    assert event.get_time() == notice.at
    assert event.get_datacontenttype() == "application/json"
    plain = orjson.loads(message.body_of(to_webhook(notice)))
    assert event.get_data() == plain["data"]


def test_a_cloud_event_about_a_run_or_nothing_is_whole_too() -> None:
    run = a_run()
    of_run = Notice.objects.create(event="run.failed", run=run.id, at=AT)
    of_nothing = Notice.objects.create(event="webhook.test", at=AT)
    for notice, subject in ((of_run, f"runs/{run.id}"), (of_nothing, None)):
        body = message.body_of(to_webhook(notice, envelope="cloudevents"))
        event = JSONFormat().read(None, body)
        assert (event.get_source(), event.get_subject()) == ("/", subject)
