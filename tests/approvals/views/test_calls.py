"""A call that waits for people, on the pages of its review."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.models import Receipt
from checkpoints.models import Run
from orchestrator import runs
from tests.support import run_actions
from tests.support.call_graphs import call_gate, calls, paying
from tests.support.review_forms import form_of
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def made() -> Iterator[list[Any]]:
    with calls() as list_of_calls:
        yield list_of_calls


@pytest.fixture
def ada(client: Client) -> User:
    user = run_actions.reviewer(User.objects.create_superuser("ada"))
    client.force_login(user)
    return user


def text_of(page: Any) -> str:
    """Return what stands on a page, as one line."""
    words = re.sub(r"<[^>]+>", " ", page.content.decode())
    return " ".join(words.split())


def review(client: Client, run: Run) -> Any:
    page = client.get(reverse("review", args=[run.id]))
    assert page.status_code == 200
    return page


def test_a_review_says_that_the_node_runs_after_approval_with_these_arguments(
    client: Client, ada: User, made: list[Any]
) -> None:
    text = text_of(review(client, advanced(paying())))
    assert "Pay 10 to ada" in text
    assert (
        "Before pay runs: it is called after approval, with exactly these arguments"
        in text
    )
    assert "pay acts outside, with exactly these arguments" in text
    assert "pay does not run" in text
    assert "It is written into the run" not in text
    assert "External, when pay runs" in text
    assert "Prepared by pay" in text


def test_an_inbox_says_that_people_decide_before_it_runs(
    client: Client, ada: User, made: list[Any]
) -> None:
    advanced(paying(gate=call_gate(title="Pay {args.payee}?")))
    text = text_of(client.get(reverse("inbox")))
    assert "Pay ada?" in text
    assert "before it runs" in text


def test_arguments_are_edited_in_a_form_made_from_their_model(
    client: Client, ada: User, made: list[Any]
) -> None:
    run = advanced(paying())
    page = review(client, run)
    (slip,) = page.context["page"].slips
    assert slip.control is not None
    posted = form_of(page)
    names = [name for name in posted if name.startswith(f"e-{slip.write}")]
    payee = next(name for name in names if "payee" in name)
    posted |= {f"v-{slip.write}": "edit", payee: "bob"}
    answer = client.post(reverse("sign", args=[run.id]), posted)
    assert answer.status_code == 302
    assert "Pay 10 to bob" in text_of(client.get(answer.url))
    run = runs.advance(run.id)
    assert made[0][0].payee == "bob"
    assert Receipt.objects.count() == 1


def test_a_call_is_skipped_where_its_gate_lets_people(
    client: Client, ada: User, made: list[Any]
) -> None:
    run = advanced(paying(gate=call_gate(skip=True)))
    page = review(client, run)
    text = text_of(page)
    assert "If it is skipped, it does not run and writes nothing" in text
    assert "If it is skipped" in text
    (slip,) = page.context["page"].slips
    posted = form_of(page) | {f"v-{slip.write}": "skip"}
    answer = client.post(reverse("draft", args=[run.id]), posted)
    assert answer.status_code == 302
    assert "Skipped: it does not happen." in text_of(review(client, run))
    posted["key"] = form_of(review(client, run))["key"]
    answer = client.post(reverse("sign", args=[run.id]), posted)
    assert answer.status_code == 302
    assert "Skipped" in text_of(client.get(answer.url))
    run = runs.advance(run.id)
    assert (run.status, made) == ("completed", [])
    text = text_of(client.get(answer.url))
    assert "pay: not run, as decided" in text
    assert "Skipped by ada" in text_of(review(client, run))


def test_nothing_else_offers_to_be_skipped(
    client: Client, ada: User, made: list[Any]
) -> None:
    run = advanced(paying())
    page = review(client, run)
    (slip,) = page.context["page"].slips
    assert not slip.skippable
    posted = form_of(page) | {f"v-{slip.write}": "skip"}
    answer = client.post(reverse("sign", args=[run.id]), posted)
    assert answer.status_code != 302
    assert "this gate lets nobody skip" in text_of(answer)


def test_the_pages_of_a_run_with_a_call_open_at_each_point(
    client: Client, ada: User, made: list[Any]
) -> None:
    run = advanced(paying())
    for _ in range(2):
        head = Run.objects.get(id=run.id).head
        for name, key in (("run", run.id), ("review", run.id), ("go_on", head)):
            page = client.get(reverse(name, args=[key]), follow=True)
            assert page.status_code == 200, name
        run_actions.sign_open(run, ada, "approve")
        run = runs.advance(run.id)
        if run.status == "completed":
            break
    assert client.get(reverse("run", args=[run.id])).status_code == 200


def test_the_interface_names_the_kind_of_a_request(
    client: Client, ada: User, made: list[Any]
) -> None:
    run = advanced(paying())
    answer = client.get("/api/v1/requests/", {"run": str(run.id)})
    assert answer.status_code == 200, answer.content
    (request,) = answer.json()["results"]
    assert request["kind"] == "call"
