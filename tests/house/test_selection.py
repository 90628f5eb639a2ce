"""`make test` and `make sweep-short` together run every test, and none of them twice on one database."""

import json
import re
import sys
from collections import Counter

import pytest

from tests.__main__ import BROWSER, CORE, LONG, MORE_PAGES, ON_ONE_DATABASE
from tests.house.commands import ROOT, run


@pytest.fixture(scope="module")
def ids() -> dict[str, dict[str, list[str]]]:
    """By database and command, the tests that are collected."""
    return {database: _collected(database) for database in ("sqlite", "postgresql")}


def _collected(database: str) -> dict[str, list[str]]:
    done = run(sys.executable, "-m", "tests.house.collection", database)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def test_the_two_commands_together_run_every_test_of_sqlite_once(ids: dict[str, dict[str, list[str]]]) -> None:
    of = ids["sqlite"]
    run_by_either = of["make test"] + of["make sweep-short"] + of["in a browser"]
    assert sorted(run_by_either) == sorted(of["everything"])
    assert all(of.values())


def test_on_postgresql_they_run_every_test_but_those_that_need_no_second_database(
    ids: dict[str, dict[str, list[str]]],
) -> None:
    of = ids["postgresql"]
    run_by_either = of["make test"] + of["make sweep-short"]
    left = Counter(of["everything"]) - Counter(run_by_either)
    assert Counter(run_by_either) + left == Counter(of["everything"]), "none runs twice"
    assert set(left) == {one for one in of["everything"] if one.startswith(_on_one())}
    assert set(left) <= {
        one for command in ("make test", "make sweep-short", "in a browser") for one in ids["sqlite"][command]
    }


def _on_one() -> tuple[str, ...]:
    """How the ids of tests begin that the two commands run on SQLite alone."""
    paths = (BROWSER, *ON_ONE_DATABASE)
    return tuple(f"{path}::" if path.endswith(".py") else f"{path}/" for path in paths)


def test_whatever_is_named_is_there() -> None:
    assert [path for path in (BROWSER, *CORE, *LONG, *MORE_PAGES, *ON_ONE_DATABASE) if not (ROOT / path).exists()] == []


def test_no_test_lies_beside_the_folders() -> None:
    assert [path.name for path in (ROOT / "tests").glob("test_*.py")] == []


def test_continuous_integration_runs_both() -> None:
    steps = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"make [\w-]*\s*--?[\w-]* ?test\b|directory test\b", steps)
    assert "sweep-short" in steps
