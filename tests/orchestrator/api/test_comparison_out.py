"""Blame, histories, lineages and alignments over HTTP: what is answered, to whom, and
what is refused.
"""

from typing import Any

import pytest

from checkpoints.models import Run
from orchestrator import runs
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.rows import missing


@pytest.fixture
def fork(paused: Run, people: People) -> Run:
    """A fork of the paused run, patched by olive; it waits for rita too."""
    forked = runs.fork(
        f"{paused.key}:step-1",
        patch={"scratch": {"notes": ["patched"]}},
        key="CLM-2",
        by=people.starter,
    )
    return runs.advance(forked.id)


def test_blame_names_checkpoint_node_and_person(
    olive: Client, paused: Run, fork: Run, people: People
) -> None:
    answer = olive.get("runs/CLM-1/blame/", path="notes[0]").json()
    assert answer["checkpoint"]["alias"] == "CLM-1:at-1"
    assert answer["node"] == "fetch"
    assert answer["person"] == ""
    assert answer["checkpoint"]["made_by"] == {
        "source": "superstep",
        "nodes": ["fetch"],
    }
    answer = olive.get("runs/CLM-2/blame/", path="scratch.notes[0]").json()
    assert answer["checkpoint"]["run"] == str(fork.id)
    assert answer["checkpoint"]["seq"] == 0
    assert answer["node"] == ""
    assert answer["person"] == people.starter.username
    assert (
        olive.get("runs/CLM-1/blame/", path="notes", at=0).json()["checkpoint"]["seq"]
        == 0
    )
    answer = olive.get("runs/CLM-2/blame/", path="input.claim_id").json()
    assert answer["checkpoint"]["run"] == str(paused.id)
    assert answer["person"] == people.starter.username


def test_history_goes_back_in_windows(olive: Client, paused: Run) -> None:
    answer = olive.get("runs/CLM-1/history/", path="scratch.notes", limit=1).json()
    assert answer["path"] == "scratch.notes"
    [change] = answer["changes"]
    assert change["kind"] == "changed"
    assert change["before"] == []
    assert change["after"] == ["claim CLM-1"]
    older = olive.get(
        "runs/CLM-1/history/", path="scratch.notes", limit=1, before=answer["before"]
    ).json()
    assert [(change["kind"], change["after"]) for change in older["changes"]] == [
        ("added", [])
    ]
    assert olive.get("runs/CLM-1/history/", path="notes").json()["before"] is None


def test_lineage_lists_the_tree_from_the_first_run_on(
    olive: Client, paused: Run, fork: Run
) -> None:
    answer = olive.get("runs/CLM-2/lineage/").json()
    assert answer["path"] == [str(paused.id), str(fork.id)]
    assert [
        (run["key"], run["of"], run["how"], run["seq"]) for run in answer["runs"]
    ] == [
        ("CLM-1", None, "", None),
        ("CLM-2", str(paused.id), "fork", 1),
    ]
    assert answer == {**olive.get("runs/CLM-1/lineage/").json(), "path": answer["path"]}


def test_align_says_where_two_runs_split_and_why_they_differ(
    olive: Client, paused: Run, fork: Run
) -> None:
    answer = olive.get("runs/CLM-1/align/", **{"with": "CLM-2"}).json()
    here = {"run": str(paused.id), "seq": 1}
    assert answer["split"] == {"a": here, "b": here}
    [difference] = answer["differences"]
    assert difference["path"] == "notes[0]"
    assert difference["a"] == "claim CLM-1"
    assert difference["b"] == "patched"
    assert difference["reason"]["text"] == "patched in B"
    assert [
        (row["a"] and row["a"]["seq"], row["b"] and row["b"]["seq"])
        for row in answer["rows"]
    ] == [
        (None, 0),
        (2, 1),
    ]
    answer = olive.get(
        "runs/CLM-1/align/", **{"with": "CLM-2", "at": 2, "with_at": 1}
    ).json()
    assert answer["at"] == {"a": 2, "b": 1}


ADDRESSES = [
    ("blame/", {"path": "notes"}),
    ("history/", {"path": "notes"}),
    ("lineage/", {}),
    ("align/", {"with": "CLM-2"}),
]


@pytest.mark.parametrize(("address", "query"), ADDRESSES)
def test_a_run_that_one_may_not_see_is_not_there(
    nobody: Client,
    olive: Client,
    paused: Run,
    fork: Run,
    address: str,
    query: dict[str, Any],
) -> None:
    assert nobody.get(f"runs/CLM-1/{address}", **query).status_code == 404
    assert olive.get(f"runs/{missing()}/{address}", **query).status_code == 404
    assert olive.get(f"runs/CLM-1/{address}", **query).status_code == 200


def test_what_hangs_on_a_run_that_one_may_not_see_is_not_told(
    nobody: Client, people: People, paused: Run, fork: Run
) -> None:
    """He started a fork of a run that he may not see."""
    mine = runs.advance(
        runs.fork(f"{paused.key}:step-1", key="CLM-3", by=people.nobody).id
    )
    tree = nobody.get("runs/CLM-3/lineage/").json()
    assert [run["key"] for run in tree["runs"]] == ["CLM-3"]
    blamed = nobody.get("runs/CLM-3/blame/", path="notes[0]").json()
    assert blamed["checkpoint"]["run"] == str(mine.id)
    for other in ("CLM-1", "CLM-2"):
        assert nobody.get("runs/CLM-3/align/", **{"with": other}).status_code == 404
    second = runs.advance(
        runs.fork(f"{paused.key}:step-2", key="CLM-4", by=people.nobody).id
    )
    answer = nobody.get("runs/CLM-3/align/", **{"with": "CLM-4"})
    assert answer.status_code == 200
    assert str(paused.id) not in answer.content.decode()
    assert str(second.id) in answer.content.decode()


BAD: list[tuple[str, dict[str, Any]]] = [
    ("blame/", {}),
    ("blame/", {"path": "a..b"}),
    ("blame/", {"path": "scratch"}),
    ("blame/", {"path": "notes", "at": "x"}),
    ("blame/", {"path": "notes", "at": 10**12}),
    ("blame/", {"path": "notes", "at": 99}),
    ("blame/", {"path": "nothing"}),
    ("blame/", {"path": "notes", "more": 1}),
    ("history/", {}),
    ("history/", {"path": "notes", "limit": 0}),
    ("history/", {"path": "notes", "limit": 201}),
    ("history/", {"path": "notes", "before": -1}),
    ("history/", {"path": "x" * 3000}),
    ("align/", {}),
    ("align/", {"with": "nothing"}),
    ("align/", {"with": "CLM-1"}),
    ("align/", {"with": "CLM-2", "at": 1}),
    ("align/", {"with": "CLM-2", "at": 99, "with_at": 0}),
    ("align/", {"with": "\x00"}),
]


@pytest.mark.parametrize(("address", "query"), BAD)
def test_what_cannot_be_asked_is_a_problem_of_the_caller(
    olive: Client, paused: Run, fork: Run, address: str, query: dict[str, Any]
) -> None:
    answer = olive.get(f"runs/CLM-1/{address}", **query)
    assert 400 <= answer.status_code < 500
    assert answer["Content-Type"] == "application/problem+json"
