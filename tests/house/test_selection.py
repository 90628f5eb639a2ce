"""`make test` and `make sweep-short` together run every test, and none of them twice on one database."""

import re

import pytest

from tests.__main__ import BROWSER, ON_ONE_DATABASE, SWEEPS, passes
from tests.house.commands import ROOT


def folders(options: tuple[str, ...]) -> set[str]:
    """The folders of tests that a pass with these options collects."""
    everything = {f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if list(path.rglob("test_*.py"))}
    named = {word for word in options if word.startswith("tests/")}
    ignored = {word.partition("=")[2] for word in options if word.startswith("--ignore=")}
    return (named or everything) - ignored


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_the_two_commands_together_run_every_test_once(database: str) -> None:
    quick, sweeps = folders(passes(sweeps=False)[database]), folders(passes(sweeps=True)[database])
    elsewhere = {BROWSER} | (set(ON_ONE_DATABASE) if database == "postgresql" else set())
    assert quick & sweeps == set()
    assert quick | sweeps | elsewhere == folders(())
    assert sweeps == set(SWEEPS)


def test_no_test_lies_beside_the_folders() -> None:
    assert [path.name for path in (ROOT / "tests").glob("test_*.py")] == []


def test_continuous_integration_runs_both() -> None:
    steps = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"make [\w-]*\s*--?[\w-]* ?test\b|directory test\b", steps)
    assert "sweep-short" in steps
