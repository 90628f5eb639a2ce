"""The programs in docs/job-runners.md and docs/mcp.md begin as they stand there."""

import re
from typing import Any

import pytest

from tests.house.commands import ROOT

PAGES = ("job-runners", "mcp")


def _blocks() -> list[Any]:
    blocks = []
    for page in PAGES:
        text = (ROOT / "docs" / f"{page}.md").read_text()
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            [library] = re.findall(r"orchestrator\.bridges\.(\w+)", block)
            blocks.append(pytest.param(library, block, id=library))
    return blocks


@pytest.mark.parametrize(("library", "block"), _blocks())
def test_each_program_of_the_docs_begins(library: str, block: str) -> None:
    pytest.importorskip(library, reason=f"the extra `{library}` is not installed")
    exec(compile(block, "docs", "exec"), {"__name__": "docs"})
