"""The tutorial's graph and its tests are run as they stand in the tutorial."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator.engine.graphs.compile import compile
from tests.house import tutorial
from tests.house.commands import run

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The Python blocks; the first one is importable as expenses.graphs, as the
    tutorial says.
    """
    matches = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    for name in ("expenses", "expenses.graphs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    exec(matches[0], vars(sys.modules["expenses.graphs"]))
    return matches


def test_the_graph_of_the_tutorial_is_valid(blocks: list[str]) -> None:
    compiled = compile(vars(sys.modules["expenses.graphs"])["graph"])
    assert compiled.warnings == ()
    assert list(compiled.nodes) == ["look", "propose", "pay", "refuse"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the tutorial's app in it, whose settings are ours and the app."""
    tutorial.write_graphs(tmp_path)
    tutorial.write_tests(tmp_path)
    settings = (
        "from orchestrator.settings import *\n\nINSTALLED_APPS ="
        ' [*INSTALLED_APPS, "expenses"]\n'
    )
    (tmp_path / "site_settings.py").write_text(settings)
    return tmp_path


def test_the_tests_of_the_tutorial_are_found_run_and_pass_as_it_says(
    project: Path,
) -> None:
    ((python, *command),) = tutorial.TEST
    assert python == "python"
    done = run(
        sys.executable,
        *command,
        COUNTERSIGN_DEBUG="true",
        COUNTERSIGN_DATA_DIR=project / "data",
        DJANGO_SETTINGS_MODULE="site_settings",
        PYTHONPATH=project,
    )
    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 0, lines
    for line in tutorial.said_of_tests():
        assert line in lines
