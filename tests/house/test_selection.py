"""`make test` and `make sweep-short` together run every test, and none of them twice on
one database.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.__main__ import (
    BROWSER,
    CORE,
    EACH_COMMIT,
    LONG,
    MORE_PAGES,
    ON_ONE_DATABASE,
    PARTS,
    passes,
)
from tests.house.commands import ROOT
from tests.support.order import part_of

FILES = sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")
)


def within(file: str, paths: Iterable[str]) -> bool:
    return any(file == path or file.startswith(f"{path}/") for path in paths)


def files_run_with(options: Iterable[str]) -> list[str]:
    """Return the files that pytest runs with the paths and the `--ignore=` among these
    options.
    """
    options = list(options)
    ignored = [
        word.removeprefix("--ignore=")
        for word in options
        if word.startswith("--ignore=")
    ]
    named = [word for word in options if word.startswith("tests/")]
    return [
        file
        for file in FILES
        if (not named or within(file, named)) and not within(file, ignored)
    ]


def files_of_both_commands(database: str) -> list[str]:
    first = passes(sweeps=False)[database]
    long = passes(sweeps=True)[database]
    return files_run_with(first) + files_run_with(long)


def test_the_two_commands_together_run_every_file_of_sqlite_once() -> None:
    in_a_browser = files_run_with([BROWSER])
    assert sorted(files_of_both_commands("sqlite") + in_a_browser) == FILES
    assert in_a_browser


def test_on_postgresql_they_run_every_file_but_those_that_need_no_second_database() -> (
    None
):
    once = {file for file in FILES if within(file, (BROWSER, *ON_ONE_DATABASE))}
    assert sorted(files_of_both_commands("postgresql")) == sorted(set(FILES) - once)


def test_whatever_is_named_is_there() -> None:
    named = (BROWSER, *CORE, *LONG, *MORE_PAGES, *ON_ONE_DATABASE, *EACH_COMMIT)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_commit_decides_which_part_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COUNTERSIGN_PART", raising=False)
    parts = []
    for number in range(PARTS):
        monkeypatch.setattr(
            "tests.__main__._commit", lambda number=number: f"{number:08x}{'a' * 32}"
        )
        parts += [
            word
            for word in passes(sweeps=True)["postgresql"]
            if word.startswith("--part=")
        ]
    assert parts == [f"--part={number}/{PARTS}" for number in range(PARTS)]


def test_one_may_ask_for_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERSIGN_PART", "all")
    assert not [
        word for word in passes(sweeps=True)["sqlite"] if word.startswith("--part=")
    ]


def test_tests_of_one_file_fall_into_all_parts() -> None:
    ids = [f"tests/test_many.py::test_n[{number}]" for number in range(200)]
    sizes = Counter(part_of(nodeid, PARTS) for nodeid in ids)
    assert sorted(sizes) == list(range(PARTS))
    assert min(sizes.values()) > 200 / PARTS / 2


def test_no_test_lies_beside_the_folders() -> None:
    assert [path.name for path in Path(ROOT / "tests").glob("test_*.py")] == []


def test_continuous_integration_runs_both() -> None:
    steps = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"make [\w-]*\s*--?[\w-]* ?test\b|directory test\b", steps)
    assert "sweep-short" in steps
