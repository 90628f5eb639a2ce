"""The engine is pure: no framework, no clock, no chance, no files, no network."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import orchestrator.engine

HOME = Path(orchestrator.engine.__file__).parent
FOREIGN = {
    "time",
    "random",
    "secrets",
    "os",
    "socket",
    "threading",
    "pathlib",
    "subprocess",
    "django",
    "structlog",
}


@pytest.mark.parametrize("path", sorted(HOME.glob("*.py")), ids=lambda path: path.name)
def test_no_module_imports_what_could_make_it_impure(path: Path) -> None:
    collected = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            collected |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            collected.add(node.module.split(".")[0])
    assert collected & FOREIGN == set()


def test_importing_the_engine_loads_no_framework() -> None:
    code = (
        "import sys, orchestrator.engine;"
        " print([m for m in ('django', 'structlog', 'channels') if m in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=HOME.parents[1],
    )
    assert shown.stdout.strip() == "[]"


def test_the_fingerprint_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from typing import Annotated\nfrom pydantic import BaseModel\nfrom"
        " orchestrator.engine import *\n"
        "from orchestrator.engine.graphs.compile import compile\n"
        "class S(BaseModel):\n    tags: Annotated[set[str], Union] = {'a', 'b', 'c', 'd'}\n"
        "class I(BaseModel):\n    x: set[str] = {'p', 'q', 'r'}\n"
        "g = Graph('g', input=I, state=S)\n"
        "g.node('n')(lambda s, c: None)\ng.edge(START, 'n')\ng.edge('n', END)\n"
        "c = compile(g)\nprint(c.fingerprint, c.fresh_state(), c.stage_input({}))"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=HOME.parents[1],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(HOME.parents[1])},
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(shown) == 1
