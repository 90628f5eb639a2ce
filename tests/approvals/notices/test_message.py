"""What a message says: ids, names, the question, classes of effects, a link. No value."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from approvals.models import ApprovalRequest, Notice
from approvals.notices import message
from checkpoints.models import Run
from orchestrator.engine import END, START, Gate
from tests.support.forging import tamper
from tests.support.rows import a_request, a_run
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db
AT = datetime(2026, 11, 28, 9, 5, tzinfo=UTC)


def of_request(request: ApprovalRequest, **columns: Any) -> dict[str, Any]:
    """The data of the message about a request."""
    notice = Notice.objects.create(
        **{"event": "request.opened", "run": request.run_id, "at": AT, **columns},
        request=request.id,
    )
    data: dict[str, Any] = orjson.loads(message.body_of(notice))["data"]
    return data


@pytest.mark.django_db(transaction=True)
def test_a_message_names_the_request_and_holds_no_value(configure: Any) -> None:
    configure(SITE_URL="https://runs.example.org/")
    made = graph("noticed")

    @made.node(
        effect="human", gate=Gate(reviewers=["user:rita"], title="Send the letter?")
    )
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "a secret letter"}

    @made.node(effect="external")
    def send(state: Any, ctx: Any) -> None:
        return None

    made.edge(START, "propose")
    made.edge("propose", "send", when="approved")
    made.edge("propose", END, when=("rejected", "partial"))
    made.edge("send", END)
    run = advanced(made)
    request = ApprovalRequest.objects.get()
    notice = Notice.objects.get(event="request.opened")
    body = message.body_of(notice)
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
    assert orjson.loads(message.body_of(notice))["data"] == {
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


def test_of_a_run_that_was_removed_a_message_has_the_ids() -> None:
    notice = Notice.objects.create(
        event="run.stopped", run=a_run().id, outcome="failed", at=AT
    )
    Run.objects.all().delete()
    assert orjson.loads(message.body_of(notice))["data"] == {
        "run": str(notice.run),
        "outcome": "failed",
    }
