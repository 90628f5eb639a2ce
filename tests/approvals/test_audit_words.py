"""Every kind of line that the code writes has words on the page, and stands in the documentation."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from approvals.audit_words import KINDS, sentence_of
from checkpoints.models.audit_line import ROUTINE
from checkpoints.verification.audit import REMOVED

ROOT = Path(__file__).parents[2]
PASSED_ON = {
    "checkpoints/anchors.py": {ROUTINE},
    "checkpoints/policy_admin.py": {"retention_policy_saved", "retention_policy_deleted"},
    "checkpoints/retention/holds.py": {"hold_released", "checkpoint_unpinned"},
    "checkpoints/retention/whole_runs.py": {REMOVED},
    "approvals/views/page.py": set(),  # the keyword `refusal`
    "orchestrator/account_changes.py": {"members_changed", "rights_changed"},
    "orchestrator/runs/travel.py": {"rewound", "resumed"},
}
"""Modules in which a kind is no text at the call, and the kinds that they write there."""


def written() -> Iterator[str]:
    """The kinds of all lines that the code writes."""
    for folder in ("approvals", "checkpoints", "orchestrator"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
                yield from (
                    word.value.value
                    for word in call.keywords
                    if word.arg == "refusal" and isinstance(word.value, ast.Constant)
                )
                if ast.unparse(call.func) in ("audit_log.record", "audit_log.record_act"):
                    texts = [node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)]
                    yield from texts or PASSED_ON[str(path.relative_to(ROOT))]


def test_every_kind_that_is_written_has_words_and_no_other() -> None:
    assert set(written()) == set(KINDS)


def test_every_kind_is_in_the_documentation() -> None:
    table = (ROOT / "docs" / "audit.md").read_text().split("## What is a line")[1].split("\n\n")[1]
    assert set(re.findall(r"`(\w+)`", table)) == set(KINDS)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_line_that_lacks_its_facts_is_still_told(kind: str) -> None:
    assert sentence_of(kind, {})


def test_a_rotation_is_told_with_the_number_of_its_rows() -> None:
    rows = {"checkpoints_run": 1200, "checkpoints_runevent": 1}
    assert sentence_of("keys_rotated", {"rows": rows, "key": "k2"}) == "encrypted 1,201 rows under k2"
