"""The style sheet stays light, and every module says what it owns."""

import ast
import gzip
from collections.abc import Iterator
from pathlib import Path

from tests.house.commands import ROOT

HEAVIEST_SHEET = 17_000
"""Bytes on the wire."""
FOLDERS = ("orchestrator", "approvals", "checkpoints", "deploy", "tests", "bench")


def test_the_style_sheet_of_the_console_weighs_at_most_17_kb_compressed() -> None:
    assert (
        len(gzip.compress((ROOT / "static/css/console.css").read_bytes(), 9))
        <= HEAVIEST_SHEET
    )


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path)
        for path in _files()
        if path.stat().st_size and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def _files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (
            path
            for path in (ROOT / folder).rglob("*.py")
            if "migrations" not in path.parts
        )
