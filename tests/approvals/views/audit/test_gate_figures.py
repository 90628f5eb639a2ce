"""The page and the endpoint of figures of gates: who may read them, and what they say."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client as Browser
from django.urls import reverse

from approvals import reviews
from approvals.results import figures
from checkpoints.models import Run
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.rows import START, a_request, a_run
from tests.support.run_actions import pending
from tests.support.statements import counted

Browse = Callable[[User], Browser]
URL = "/gates/figures/"


def text_of(answer: object) -> str:
    return " ".join(answer.content.decode().split())  # type: ignore[attr-defined]


def test_who_looks_after_gates_reads_their_figures_and_nobody_elses_name(
    run: Run, people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [
        {"write": str(row.write), "hash": row.hash, "verdict": "reject", "reason": "no"}
        for row in pending(run)
    ]
    reviews.sign(run.id, items, by=people.reviewer)
    for person in (people.steward, people.auditor):
        html = text_of(browse(person).get(URL))
        assert html.count('data-test="gate"') == 1
        assert "page_claim" in html
        assert "100%" not in html
        assert "Where fewer than 5 people have signed" in html
        assert people.reviewer.username not in html
    monkeypatch.setattr(figures, "FEWEST_SIGNERS", 1)
    assert "100%" in text_of(browse(people.auditor).get(URL))


def test_who_may_not_see_all_runs_reads_no_figures(
    run: Run, people: People, browse: Browse
) -> None:
    right = Permission.objects.get(codename="view_audit")
    people.reviewer.user_permissions.add(right)
    assert browse(people.reviewer).get(URL).status_code == 403
    refused = Client(people.reviewer).get("gates/figures/")
    assert refused.status_code == 403
    assert refused.json()["right"] == "view_run"


def test_who_may_not_learns_as_little_as_of_other_pages(
    run: Run, people: People, browse: Browse
) -> None:
    assert browse(people.nobody).get(URL).status_code == 404
    for person in (people.reviewer, people.starter):
        assert browse(person).get(URL).status_code == 403
    for person in (people.nobody, people.reviewer):
        refused = Client(person).get("gates/figures/")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert Browser().get(URL).status_code == 302


def test_before_a_gate_has_asked_the_page_says_so(
    db: None, people: People, browse: Browse
) -> None:
    client = browse(people.auditor)
    assert "No gate has asked yet" in text_of(client.get(URL))
    assert "Nothing found" in text_of(client.get(URL, {"graph": "other"}))


@pytest.mark.parametrize(
    ("name", "text"),
    [("gate", "propose"), ("since", "yesterday"), ("since", "2026-02-30")],
)
def test_a_filter_that_cannot_be_read_is_named(
    db: None, people: People, browse: Browse, name: str, text: str
) -> None:
    answer = browse(people.auditor).get(URL, {name: text})
    assert answer.status_code == 400
    assert "This filter cannot be read" in text_of(answer)


def test_filters_choose_and_what_is_left_out_is_said(
    db: None, people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_request(a_run(graph="a"), "user:ann", opened_at=START)
    a_request(a_run(graph="b"), "user:ann", opened_at=START + timedelta(days=2))
    client = browse(people.auditor)
    assert text_of(client.get(URL)).count('data-test="gate"') == 2
    day = (START + timedelta(days=1)).date().isoformat()
    for query in ({"since": day}, {"graph": "b", "gate": "propose"}):
        assert text_of(client.get(URL, query)).count('data-test="gate"') == 1
    assert "data-test=capped" not in text_of(client.get(URL)).replace('"', "")
    monkeypatch.setattr(figures, "MOST_REQUESTS", 1)
    html = text_of(client.get(URL))
    assert html.count('data-test="gate"') == 1
    assert "Of the newest 1 requests; older ones are not counted." in html


def test_pages_of_who_looks_after_gates_lead_to_them(
    run: Run, people: People, browse: Browse
) -> None:
    steward = browse(people.steward)
    assert f'href="{URL}"' in text_of(steward.get(reverse("audit")))
    graph = reverse("graph", args=[run.graph])
    assert f'href="{URL}?graph={run.graph}"' in text_of(steward.get(graph))
    assert URL not in text_of(browse(people.starter).get(graph))


def test_the_endpoint_says_the_same(run: Run, people: People) -> None:
    answer = Client(people.steward).get("gates/figures/", graph=run.graph)
    assert answer.status_code == 200
    (row,) = answer.json()["gates"]
    assert answer.json()["of_newest"] is None
    assert row == {
        "graph": run.graph,
        "gate": run.requests.get().node,
        "requests": 1,
        "decided": 0,
        "seconds": None,
        "overdue": 0,
        "quick": None,
        "edited": None,
        "rejected": None,
    }
    wrong = Client(people.steward).get("gates/figures/", gate="x")
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_value")


def test_the_page_takes_three_queries_for_them(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.auditor)
    client.get(URL)
    with counted() as sent:
        client.get(URL)
    reads = [query for query in sent if "approvals_approvalrequest" in query]
    assert len(reads) == 3
