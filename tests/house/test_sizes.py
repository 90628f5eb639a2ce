"""Nothing grows so large that one cannot read it at a sitting."""

import ast
import gzip
from collections.abc import Iterator
from pathlib import Path

from tests.house.commands import ROOT

LONGEST_FILE, LONGEST_FUNCTION = 400, 40
HEAVIEST_SHEET = 14_000
"""Bytes on the wire."""
FOLDERS = ("orchestrator", "approvals", "checkpoints", "tests", "bench")


def test_no_file_is_longer_than_400_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in _files()
        if (count := len(path.read_text().splitlines())) > LONGEST_FILE
    }
    assert long == {}


def test_no_function_is_longer_than_40_lines() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": lines
        for path in _files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := _lines(node)) > LONGEST_FUNCTION
    }
    assert long == {}


def test_the_style_sheet_of_the_console_weighs_at_most_14_kb_compressed() -> None:
    assert len(gzip.compress((ROOT / "static/css/console.css").read_bytes(), 9)) <= HEAVIEST_SHEET


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path) for path in _files() if path.stat().st_size and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def _files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*.py") if "migrations" not in path.parts)


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
