"""Sums of figures by run, graph and day: of the runs that one may see, of the days
asked for, in exact numbers.
"""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from approvals.permissions import visible_figures
from checkpoints import retention
from checkpoints.ledger import figure_sums, notes
from checkpoints.models import Run, RunMetadata, TaskFigure
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.figures import noted
from tests.support.rows import a_run
from tests.support.small_graphs import graph, registered

TODAY = timezone.now().date()


@pytest.fixture
def two_graphs(people: People) -> list[Run]:
    """A run of olive's and one of somebody else, of two graphs, with figures of today
    and of last week.
    """
    mine = a_run(graph="claims", started_by=people.starter)
    other = a_run(graph="loans")
    noted(mine, {"tokens": 10, "cost": Decimal("0.25")})
    noted(mine, {"tokens": 5}, seq=2, at=timezone.now() - timedelta(days=7))
    noted(other, {"tokens": 100})
    return [mine, other]


def sums(client: Client, **query: Any) -> list[tuple[Any, ...]]:
    """The rows of the answer, without the fields that are null."""
    answer = client.get("figures/", **query)
    assert answer.status_code == 200, answer.json()
    return [
        tuple(value for value in row.values() if value is not None)
        for row in answer.json()["results"]
    ]


def test_sums_by_day_and_graph_are_exact_and_the_newest_day_comes_first(
    two_graphs: Any, olive: Client
) -> None:
    today = str(TODAY)
    before = str(TODAY - timedelta(days=7))
    assert sums(olive) == [
        (today, "claims", "cost", "0.25"),
        (today, "claims", "tokens", "10"),
        (today, "loans", "tokens", "100"),
        (before, "claims", "tokens", "5"),
    ]


def test_sums_by_graph_and_by_run_add_up_the_days_between(
    two_graphs: list[Run], olive: Client
) -> None:
    mine, other = two_graphs
    assert sums(olive, by="graph", graph="claims") == [
        ("claims", "cost", "0.25"),
        ("claims", "tokens", "15"),
    ]
    assert set(sums(olive, by="run")) == {
        ("claims", str(mine.id), "cost", "0.25"),
        ("claims", str(mine.id), "tokens", "15"),
        ("loans", str(other.id), "tokens", "100"),
    }


def test_days_outside_what_is_asked_for_are_not_in_it(
    two_graphs: Any, olive: Client
) -> None:
    before = str(TODAY - timedelta(days=7))
    assert sums(olive, **{"from": before, "to": before}) == [
        (before, "claims", "tokens", "5")
    ]
    assert sums(olive, to=str(TODAY - timedelta(days=8))) == []


@pytest.mark.parametrize("by", ["day", "graph", "run"])
def test_who_sees_some_runs_alone_is_told_the_sums_of_those_alone(
    two_graphs: list[Run], people: People, nobody: Client, by: str
) -> None:
    assert sums(nobody, by=by) == []
    Run.objects.filter(id=two_graphs[0].id).update(started_by=people.nobody)
    assert {row[-1] for row in sums(nobody, by=by, **{"from": str(TODAY)})} == {
        "0.25",
        "10",
    }


@pytest.mark.parametrize(
    "query",
    [
        {"by": "week"},
        {"from": "yesterday"},
        {"from": "2026-02-30"},
        {"from": "2026-03-02", "to": "2026-03-01"},
        {"from": "2024-01-01", "to": "2026-01-01"},
        {"graph": "\x00"},
        {"graf": "claims"},
        {"to": "0001-01-01", "from": "9999-12-31"},
        {"page_size": "0"},
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(
    query: dict[str, str], olive: Client
) -> None:
    assert olive.get("figures/", **query).status_code == 400


def test_the_first_and_the_last_day_that_there_are_can_be_asked_for(
    olive: Client,
) -> None:
    assert (
        sums(olive, to="0001-01-01")
        == sums(olive, **{"from": "9999-12-31", "to": "9999-12-31"})
        == []
    )
    assert sums(olive, **{"from": "9999-12-31"}) == []


@pytest.mark.parametrize("by", ["day", "graph", "run"])
def test_pages_have_each_sum_once(two_graphs: Any, olive: Client, by: str) -> None:
    whole = sums(olive, by=by)
    seen = []
    query = {"by": by, "page_size": "1"}
    for _ in range(len(whole)):
        answer = olive.get("figures/", **query).json()
        seen += [row["sum"] for row in answer["results"]]
        query["cursor"] = (
            (answer["next"] or "")
            .partition("cursor=")[2]
            .partition("&")[0]
            .replace("%3D", "=")
        )
    assert seen == [row[-1] for row in whole]
    assert query["cursor"] == ""


def test_a_page_of_sums_takes_the_same_queries_for_any_number_of_rows(
    two_graphs: list[Run], olive: Client, django_assert_max_num_queries: Any
) -> None:
    counts = []
    for first in (10, 20):
        for seq in range(first, first + 5):
            noted(two_graphs[1], {f"n{seq}": 1}, seq=seq)
        with django_assert_max_num_queries(10) as seen:
            olive.get("figures/")
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("graph", ["", "claims"])
@pytest.mark.parametrize("by", ["day", "graph", "run"])
def test_sums_read_the_index_of_their_days_and_graph_alone(
    two_graphs: Any, people: People, graph: str, by: str
) -> None:
    asked = figure_sums.checked_range(by, graph, TODAY - timedelta(days=2), TODAY)
    rows = figure_sums.sums_of(visible_figures(people.starter), asked)
    if connection.vendor == "sqlite":
        matched = "(day=? AND graph=?)" if graph else "(day=?)"
        assert f"COVERING INDEX task_figure_days {matched}" in rows.explain()
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        plan = rows.explain()
    assert "using task_figure_days" in plan
    condition = next(line for line in plan.splitlines() if "Index Cond" in line)
    assert "day" in condition
    assert ("graph" in condition) == bool(graph)


# A run and its checkpoints


@pytest.fixture
def counted(people: People) -> Run:
    """A run of two nodes that note figures; the second one notes a model too, and its
    result is recorded.
    """
    flow = graph("counted")

    def ask(state: Any, ctx: Any) -> None:
        ctx.figure("tokens", 7)

    def call(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.figure("tokens", 1234)
        ctx.figure("cost", Decimal("0.25"))
        ctx.metadata("model", "large")
        return {"notes": ["called"]}

    flow.node("ask")(ask)
    flow.node("call", effect="external")(call)
    flow.edge(START, "ask")
    flow.edge("ask", "call")
    flow.edge("call", END)
    registered(flow)
    return runs.advance(
        runs.start(
            "counted", {}, key="CNT-1", by=people.starter, metadata={"team": "claims"}
        ).id
    )


def test_a_run_shows_its_sums(counted: Run, olive: Client) -> None:
    assert olive.get("runs/CNT-1/").json()["figures"] == {
        "cost": "0.25",
        "tokens": "1241",
    }


def test_a_checkpoint_shows_its_metadata_and_the_figures_of_its_nodes_and_results(
    counted: Run, olive: Client
) -> None:
    shown = olive.get(f"checkpoints/CNT-1:at-{counted.head_seq}/").json()
    assert shown["metadata"] == {"model": "large"}
    assert shown["figures"] == {"call": {"cost": "0.25", "tokens": "1234"}}
    assert [result["figures"] for result in shown["node_results"]] == [
        {"cost": "0.25", "tokens": "1234"}
    ]


def test_a_list_of_checkpoints_shows_metadata_and_is_narrowed_by_it(
    counted: Run, olive: Client
) -> None:
    listed = olive.get("runs/CNT-1/checkpoints/").json()["results"]
    assert [row["metadata"] for row in listed] == [{"model": "large"}, {}, {}]
    narrowed = olive.get(
        "runs/CNT-1/checkpoints/", **{"metadata.model": "large"}
    ).json()["results"]
    assert narrowed == listed[:1]
    assert (
        olive.get("runs/CNT-1/checkpoints/", **{"metadata.model": "small"}).json()[
            "results"
        ]
        == []
    )
    assert (
        olive.get("runs/CNT-1/checkpoints/", **{"metadata.a b": "x"}).status_code == 422
    )


def test_a_note_that_was_changed_is_refused_and_not_shown(
    counted: Run, olive: Client
) -> None:
    TaskFigure.objects.filter(name="tokens").update(millionths=1)
    RunMetadata.objects.filter(name="model").update(value=pack_json("small"))
    shown = olive.get(f"checkpoints/CNT-1:at-{counted.head_seq}/").json()
    refused = [shown["metadata"]["model"], shown["figures"]["call"]["tokens"]]
    assert [
        list(value)
        for value in [*refused, shown["node_results"][0]["figures"]["tokens"]]
    ] == [["refused"]] * 3


def test_an_erasure_of_a_whole_run_takes_its_metadata_and_that_of_its_checkpoints(
    counted: Run, people: People, olive: Client
) -> None:
    retention.erase(counted.id, by=people.steward)
    assert "erased" in str(olive.get("runs/CNT-1/").json()["metadata"]["team"])
    shown = olive.get(f"checkpoints/CNT-1:at-{counted.head_seq}/").json()
    assert "erased" in str(shown["metadata"]["model"])
    assert not RunMetadata.objects.exclude(text="").exists()
    # A figure is a number without a name of a person, and stays as durations do.
    assert shown["figures"] == {"call": {"cost": "0.25", "tokens": "1234"}}
    assert verify_run(counted.id) == []


def test_an_erasure_of_a_path_takes_the_same_text_from_metadata_of_run_and_checkpoint(
    people: People,
) -> None:
    flow = graph("named")

    def call(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.metadata("holder", "Marta Nilsson")
        ctx.metadata("model", "large")
        return {"letter": "Marta Nilsson"}

    flow.node("call")(call)
    flow.edge(START, "call")
    flow.edge("call", END)
    registered(flow)
    metadata = {"holder": "Marta Nilsson", "team": "claims"}
    run = runs.advance(runs.start("named", {}, by=people.starter, metadata=metadata).id)
    retention.erase(run.id, ["letter"], by=people.steward)
    run.refresh_from_db()
    shown = notes.metadata_at(run, [notes.OF_RUN, run.head_seq])
    assert "Marta" not in str(shown)
    assert shown[notes.OF_RUN]["team"] == "claims"
    assert shown[run.head_seq]["model"] == "large"
    assert not notes.with_metadata(
        Run.objects.all(), {"holder": "Marta Nilsson"}
    ).exists()
    assert notes.with_metadata(Run.objects.all(), {"team": "claims"}).exists()
    assert verify_run(run.id) == []
