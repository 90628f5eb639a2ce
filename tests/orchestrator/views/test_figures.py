"""Metadata and figures on pages: given at the start, shown with run and checkpoint,
filtered by, added up.
"""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from checkpoints.ledger import notes
from checkpoints.models import Run, RunMetadata, TaskFigure
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator import runs
from orchestrator.engine import END, START
from tests.support.cast import People
from tests.support.figures import noted
from tests.support.rows import a_run
from tests.support.small_graphs import graph, registered

Browse = Callable[[User], Client]
URL = "/graphs/page_claim/start/"
GOOD = {
    "mode": "form",
    "i.claim_id": "CLM-1",
    "i.amount": "4512.50",
    "i.cause": "fire",
    "i.holder.name": "Marta",
}


# The page that starts a run


def test_a_run_is_started_by_the_form_with_metadata(
    claim_graph: None, people: People, browse: Browse
) -> None:
    typed = "team=claims\r\n\r\n tier = 3 \r\nvip=true"
    assert (
        browse(people.starter).post(URL, {**GOOD, "metadata": typed}).status_code == 302
    )
    assert notes.metadata_of(Run.objects.get()) == {
        "team": "claims",
        "tier": 3,
        "vip": True,
    }


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("claims", "cannot be read as metadata; write a name and its value"),
        ("=claims", "cannot be read as metadata"),
        ("a b=1", "is no name in metadata"),
        (f"team={'x' * 201}", "metadata.team has more than 200 characters"),
        ("team=a\nteam=b", "team"),
    ],
)
def test_metadata_that_cannot_be_kept_stands_at_its_field_and_nothing_starts(
    typed: str, why: str, claim_graph: None, people: People, browse: Browse
) -> None:
    page = browse(people.starter).post(URL, {**GOOD, "metadata": typed})
    assert page.status_code == 422
    assert Run.objects.count() == 0
    assert why in page.context["form"].metadata_error
    html = page.content.decode()
    assert 'id="metadata-err"' in html
    assert typed.partition("\n")[0] in html.partition('id="metadata"')[2]


# The list of runs


@pytest.fixture
def teams(people: People) -> list[Run]:
    """A run of the team claims, and one of the team loans."""
    made = [a_run(key=name, started_by=people.starter) for name in ("claims", "loans")]
    for run in made:
        of_run = notes.OfRun(run.id, run.graph, notes.protection_of(run))
        notes.insert_metadata(
            of_run, notes.OF_RUN, {"team": run.key, "tier": 3}, run.created_at
        )
    return made


def keys(page: Any) -> set[str]:
    return {run.key for run in page.context["rows"]}


def test_the_list_is_narrowed_by_metadata_in_the_address_and_says_so(
    teams: Any, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    page = client.get("/runs/?metadata.team=claims&metadata.tier=3")
    assert keys(page) == {"claims"}
    assert [pair["without"] for pair in page.context["metadata"]] == [
        "metadata.tier=3",
        "metadata.team=claims",
    ]
    assert "metadata.team=claims" in page.context["filters"]
    assert keys(client.get("/runs/?metadata.team=nobody")) == set()


def test_what_is_typed_into_the_field_stands_in_the_address_afterwards(
    teams: Any, people: People, browse: Browse
) -> None:
    answer = browse(people.starter).get(
        "/runs/", {"metadata": "team=claims", "metadata.tier": "3", "q": "cl"}
    )
    assert answer.status_code == 302
    assert answer["Location"] == "/runs/?q=cl&metadata.tier=3&metadata.team=claims"


@pytest.mark.parametrize(
    "query",
    [
        "metadata=claims",
        "metadata=a%20b=x",
        "metadata.=x",
        "metadata.a%20b=x",
        "metadata.a=%00",
    ],
)
def test_metadata_that_no_run_can_have_is_no_filter(
    query: str, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    # What was typed is put into the address, which is then refused.
    assert client.get(f"/runs/?{query}", follow=True).status_code == 400
    if not query.startswith("metadata="):
        assert client.get(f"/runs/-/news/?{query}").status_code == 400


# The page of a run


@pytest.fixture
def counted(people: People) -> Run:
    """A run whose nodes noted figures and metadata, started with some."""
    flow = graph("counted")

    def ask(state: Any, ctx: Any) -> None:
        ctx.figure("tokens", 7)

    def call(state: Any, ctx: Any) -> None:
        ctx.figure("tokens", 1234)
        ctx.figure("cost", Decimal("0.25"))
        ctx.metadata("model", "<large>")

    flow.node("ask")(ask)
    flow.node("call")(call)
    flow.edge(START, "ask")
    flow.edge("ask", "call")
    flow.edge("call", END)
    registered(flow)
    return runs.advance(
        runs.start("counted", {}, by=people.starter, metadata={"team": "claims"}).id
    )


def texts(html: str, kind: str) -> list[str]:
    """The texts of the values of this kind, in the order of the page."""
    return [
        part.partition(">")[2].partition("</dd>")[0].strip()
        for part in html.split(f'data-test="{kind}"')[1:]
    ]


def test_the_page_of_a_run_shows_its_metadata_and_sums_and_those_of_its_checkpoint(
    counted: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    newest = client.get(f"/runs/{counted.id}/").content.decode()
    assert [
        "claims" in texts(newest, "metadata")[0],
        "&lt;large&gt;" in texts(newest, "metadata")[1],
    ] == [True, True]
    assert texts(newest, "figure") == [
        f"<b>{sum}</b>" for sum in ("0.25", "1,241", "0.25", "1,234")
    ]
    first = client.get(f"/runs/{counted.id}/?at=1").content.decode()
    assert len(texts(first, "metadata")) == 1
    assert texts(first, "figure") == [f"<b>{sum}</b>" for sum in ("0.25", "1,241", "7")]
    assert "Figures of <code>" in first
    assert (
        'data-test="figures-of-node"'
        not in client.get(f"/runs/{counted.id}/?at=0").content.decode()
    )


def test_a_note_that_was_changed_is_not_shown_as_it_stands(
    counted: Run, people: People, browse: Browse
) -> None:
    TaskFigure.objects.filter(name="cost").update(millionths=9_000_000)
    RunMetadata.objects.filter(name="model").update(value=pack_json("small"))
    html = browse(people.starter).get(f"/runs/{counted.id}/").content.decode()
    assert "not shown: " in texts(html, "metadata")[1]
    assert "not shown: " in texts(html, "figure")[2]
    assert "small" not in str(texts(html, "metadata"))


# The page of sums


@pytest.fixture
def two_graphs(people: People) -> list[Run]:
    """A run of olive's and one of somebody else, with figures of today and of last
    week.
    """
    mine = a_run(graph="claims", started_by=people.starter, label="Mine")
    other = a_run(graph="loans")
    noted(mine, {"tokens": 1000, "cost": Decimal("0.25")})
    noted(mine, {"tokens": 5}, seq=2, at=timezone.now() - timedelta(days=7))
    noted(other, {"tokens": 100})
    return [mine, other]


def sums(page: Any) -> list[tuple[str, int]]:
    return [(row["graph"], int(row["sum"]) // 1_000) for row in page.context["rows"]]


def test_the_page_adds_up_by_day_graph_and_run(
    two_graphs: list[Run], people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    page = client.get(reverse("figures"))
    assert sums(page) == [
        ("claims", 250),
        ("claims", 1_000_000),
        ("loans", 100_000),
        ("claims", 5_000),
    ]
    assert "<b>1,000</b>" in page.content.decode()
    assert sums(client.get("/figures/?by=graph&graph=claims")) == [
        ("claims", 250),
        ("claims", 1_005_000),
    ]
    by_run = client.get("/figures/?by=run").content.decode()
    assert f'href="/runs/{two_graphs[0].id}/"' in by_run
    assert "Mine" in by_run


@pytest.mark.parametrize("by", ["day", "graph", "run"])
def test_the_page_adds_up_only_what_is_of_runs_that_one_may_see(
    two_graphs: list[Run], people: People, browse: Browse, by: str
) -> None:
    client = browse(people.nobody)
    assert sums(client.get(f"/figures/?by={by}")) == []
    Run.objects.filter(id=two_graphs[1].id).update(started_by=people.nobody)
    page = client.get(f"/figures/?by={by}")
    assert sums(page) == [("loans", 100_000)]
    assert page.context["graphs"] == ["loans"]


def test_without_figures_the_page_says_what_one_is(
    people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    assert "No figures yet" in client.get("/figures/").content.decode()
    assert "Nothing to add up" in client.get("/figures/?to=2000-01-01").content.decode()


@pytest.mark.parametrize(
    "query",
    [
        "by=week",
        "from=yesterday",
        "from=2026-02-30",
        "from=2026-03-02&to=2026-03-01",
        "from=2024-01-01&to=2026-01-01",
        "after=x",
        "after=[]",
        "after=5",
        "after=[[]]",
        'after=["2026-01-01"]',
        'by=run&after=["x","y","z"]',
        'by=run&after={"a":"x","b":"y","c":"z"}',
        'after=["%5Cu0000","y","z"]',
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(
    query: str, people: People, browse: Browse
) -> None:
    page = browse(people.starter).get(f"/figures/?{query}")
    assert page.status_code == 400
    assert "This filter cannot be read" in page.content.decode()


@pytest.mark.parametrize("by", ["day", "graph", "run"])
def test_each_sum_is_on_one_page(
    two_graphs: list[Run], people: People, browse: Browse, by: str, monkeypatch: Any
) -> None:
    client = browse(people.starter)
    whole = client.get(f"/figures/?by={by}").context["rows"]
    monkeypatch.setattr("orchestrator.views.figures.PAGE", 1)
    query = f"by={by}"
    seen = []
    while query:
        page = client.get(f"/figures/?{query}")
        seen += page.context["rows"]
        query = page.context["more"]
    assert seen == whole
    assert page.context["begin"] == f"by={by}"


def test_the_page_of_sums_costs_the_same_for_any_number_of_runs(
    two_graphs: Any, people: People, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    client = browse(people.starter)
    counts = []
    for more in (1, 10):
        for _ in range(more):
            noted(a_run(), {"tokens": 1})
        with django_assert_max_num_queries(12) as seen:
            client.get("/figures/?by=run")
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]
