"""The tutorial's graph and its tests are run as they stand in the tutorial."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator.engine import play
from orchestrator.engine.compile import compile

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The Python blocks; the first one is importable as expenses.graphs, as the tutorial says."""
    found = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    for name in ("expenses", "expenses.graphs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    exec(found[0], vars(sys.modules["expenses.graphs"]))
    return found


def test_the_graph_of_the_tutorial_is_valid(blocks: list[str]) -> None:
    compiled = compile(vars(sys.modules["expenses.graphs"])["graph"])
    assert compiled.warnings == ()
    assert list(compiled.nodes) == ["look", "propose", "pay", "refuse"]


def test_the_tests_of_the_tutorial_pass(blocks: list[str]) -> None:
    module = {"play": play}
    exec(blocks[1], module)
    tests = [value for name, value in module.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()
