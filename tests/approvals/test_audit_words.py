"""What lines of the audit log say: every kind that is written has words of its own."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from approvals.audit_words import KINDS, sentence_of

ROOT = Path(__file__).resolve().parents[2]
SAYERS = {"record": 0, "record_act": 0, "_tell": 0, "_end": 1}
"""The calls that write a line, or say its kind to what writes it, with the place of the kind; or it is a `refusal`."""
BY_NAME = {"run_removed", "rewound"}
"""Kinds that stand in a name or a table."""


def written() -> Iterator[str]:
    """The kinds that the code writes."""
    for floor in ("checkpoints", "approvals", "orchestrator"):
        for path in (ROOT / floor).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    yield from _kinds(node)


def _kinds(call: ast.Call) -> Iterator[str]:
    place = SAYERS.get(getattr(call.func, "attr", getattr(call.func, "id", "")))
    named = [word.value for word in call.keywords if word.arg == "refusal"]
    for value in [*named, *(call.args[place : place + 1] if place is not None else ())]:
        for choice in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
            if isinstance(choice, ast.Constant) and isinstance(choice.value, str) and choice.value:
                yield choice.value


def test_every_kind_that_is_written_is_told_in_words_and_can_be_filtered() -> None:
    kinds = {*written(), *BY_NAME}
    assert {"history_pruned", "run_held", "hold_released", "checkpoint_unpinned", "refused_erase"} <= kinds
    assert kinds - {*KINDS} == set()


@pytest.mark.parametrize(
    ("kind", "facts", "said"),
    [
        (
            "history_pruned",
            {"checkpoints": 41206, "runs": 1, "bad": []},
            "removed 41,206 checkpoints, 1 whole run among them",
        ),
        ("history_pruned", {"checkpoints": 1, "stopped": True}, "removed 1 checkpoint; somebody stopped it"),
        (
            "history_pruned",
            {"checkpoints": 0, "bad": ["x", "y"]},
            "removed 0 checkpoints; 2 runs did not verify and stayed",
        ),
        (
            "retention_policy_saved",
            {
                "keep_last": 3,
                "max_age_days": {"failed": 90.0},
                "remove_runs_after_days": {"rejected": 0.5},
                "archive": True,
            },
            "set the retention policy: the newest 3 stay, checkpoints of failed runs go after 90 days, "
            "rejected runs go whole after 0.5 days, a bundle is archived first",
        ),
        ("retention_policy_deleted", {"keep_last": None}, "deleted the retention policy: nothing goes"),
        ("run_removed", {"key": "CLM-1", "status": "failed"}, "removed the run CLM-1, which was failed"),
        ("run_erased", {"paths": 2, "rows": 9}, "erased the values at 2 paths, in 9 rows"),
        ("run_erased", {"paths": 0, "rows": 1}, "erased all values of the run, in 1 row"),
        ("members_changed", {"subject": "user:ada", "added": ["group:auditor"]}, "put ada into the group auditor"),
        ("members_changed", {"subject": "group:claims", "removed": ["user:ada"]}, "took ada out of the group claims"),
        (
            "rights_changed",
            {"subject": "group:claims", "added": ["perm:approvals.decide"], "removed": ["perm:x.y"]},
            "gave approvals.decide to the group claims and took x.y from the group claims",
        ),
        ("refused_import", {"code": "forbidden"}, "was refused: a bundle was not taken in (forbidden)"),
        ("of_tomorrow", {}, "of tomorrow"),
    ],
)
def test_a_line_says_what_was_done(kind: str, facts: dict[str, Any], said: str) -> None:
    assert sentence_of(kind, facts) == said


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_of_which_nothing_is_known_is_told_too(kind: str) -> None:
    assert sentence_of(kind, {})
