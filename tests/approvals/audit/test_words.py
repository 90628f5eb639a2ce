"""Every kind of line that the code writes has words on the page, and stands in the
documentation.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from approvals.audit.words import KINDS, accounts_in, sentence_of, with_full_names
from checkpoints.models.audit_line import ROUTINE
from checkpoints.verification.audit import REMOVED

ROOT = Path(__file__).parents[3]
PASSED_ON = {
    "checkpoints/anchors.py": {ROUTINE},
    "checkpoints/time_stamps.py": {"audit_stamped"},
    "checkpoints/audit/key_changes.py": {"keys_changed"},
    "checkpoints/retention/policies.py": {
        "retention_policy_saved",
        "retention_policy_deleted",
    },
    "checkpoints/retention/prune_job.py": {"history_pruned"},
    "checkpoints/seal_renewal.py": {"seals_renewed"},
    "checkpoints/retention/policy_schedules.py": {"retention_policy_confirmed"},
    "checkpoints/retention/holds.py": {"hold_released", "checkpoint_unpinned"},
    "checkpoints/retention/whole_runs.py": {REMOVED},
    "approvals/people/acts.py": {
        "request_claimed",
        "request_released",
        "request_assigned",
    },
    "approvals/silence/tiers.py": {"request_reminded", "request_escalated"},
    "approvals/people/standing_policies.py": {"standing_policy_revoked"},
    "approvals/policies_in_force.py": {"standing_policy_used"},
    "approvals/views/page.py": set(),  # the keyword `refusal`
    "orchestrator/login_throttle.py": {"refused_login", "login_locked"},
    "orchestrator/company_login/accounts.py": {"account_bound", "account_unbound"},
    "orchestrator/account_changes.py": {"members_changed", "rights_changed"},
    "orchestrator/travel/verbs.py": {"rewound", "resumed"},
    "orchestrator/runs/reopenings.py": {"request_reopened"},
    "approvals/people/comments.py": {"request_commented"},
}
"""Modules in which a kind is no text at the call, and the kinds that they write there.
"""


BY_MIGRATIONS = {"rows_sealed"}


def written() -> Iterator[str]:
    """The kinds of all lines that the code writes."""
    for folder in ("approvals", "checkpoints", "orchestrator"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for call in (
                node
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Call)
            ):
                yield from (
                    word.value.value
                    for word in call.keywords
                    if word.arg == "refusal" and isinstance(word.value, ast.Constant)
                )
                if ast.unparse(call.func) in (
                    "audit_log.record",
                    "audit_log.record_act",
                ):
                    texts = [
                        node.value
                        for node in ast.walk(call.args[0])
                        if isinstance(node, ast.Constant)
                    ]
                    yield from texts or PASSED_ON[str(path.relative_to(ROOT))]


def test_every_kind_that_is_written_has_words_and_no_other() -> None:
    assert {*written(), *BY_MIGRATIONS} == set(KINDS)


def test_every_kind_is_in_the_documentation() -> None:
    table = (
        (ROOT / "docs" / "audit.md")
        .read_text()
        .split("## What is a line")[1]
        .split("\n\n")[1]
    )
    assert set(re.findall(r"`(\w+)`", table)) == set(KINDS)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_line_that_lacks_its_facts_is_still_told(kind: str) -> None:
    assert sentence_of(kind, {})


@pytest.mark.parametrize(
    ("kind", "facts", "said"),
    [
        (
            "history_pruned",
            {"checkpoints": 41206, "runs": 1, "bad": []},
            "removed 41,206 checkpoints, 1 whole run among them",
        ),
        (
            "history_pruned",
            {"checkpoints": 1, "stopped": True},
            "removed 1 checkpoint; somebody stopped it",
        ),
        (
            "history_pruned",
            {"checkpoints": 0, "skipped": 3, "bad": ["x", "y"]},
            "removed 0 checkpoints; 2 runs did not verify and stayed; 1 run could not"
            " be cleaned up and stayed",
        ),
        (
            "history_pruned",
            {"checkpoints": 2, "skipped": 2, "bad": [], "referred": ["x"]},
            "removed 2 checkpoints; rows of other apps name 1 run, which stayed; "
            "1 run could not be cleaned up and stayed",
        ),
        (
            "retention_policy_saved",
            {
                "keep_last": 3,
                "max_age_days": {"failed": 90.0},
                "remove_runs_after_days": {"rejected": 0.5},
                "archive": True,
            },
            "set the retention policy: the newest 3 stay, checkpoints of failed runs"
            " go after 90 days, "
            "rejected runs go whole after 0.5 days, a bundle is archived first",
        ),
        (
            "retention_policy_deleted",
            {"keep_last": None},
            "deleted the retention policy: nothing goes",
        ),
        (
            "run_removed",
            {"key": "CLM-1", "status": "failed"},
            "removed the run CLM-1, which was failed",
        ),
        (
            "run_erased",
            {"paths": 2, "rows": 9},
            "erased the values at 2 paths, in 9 rows",
        ),
        (
            "run_erased",
            {"paths": 0, "rows": 1},
            "erased all values of the run, in 1 row",
        ),
        (
            "members_changed",
            {"subject": "user:ada", "added": ["group:auditor"]},
            "added ada to the group auditor",
        ),
        (
            "members_changed",
            {"subject": "group:claims", "removed": ["user:ada"]},
            "removed ada from the group claims",
        ),
        (
            "rights_changed",
            {
                "subject": "group:claims",
                "added": ["perm:approvals.decide"],
                "removed": ["perm:x.y"],
            },
            "gave approvals.decide to the group claims and took x.y from the group claims",
        ),
        (
            "account_changed",
            {
                "subject": "user:ada",
                "changed": {"is_staff": True, "password": "another"},
            },
            "changed account ada (staff on, password changed)",
        ),
        (
            "refused_import",
            {"code": "forbidden"},
            "was refused: a bundle was not imported (forbidden)",
        ),
        (
            "keys_rotated",
            {"rows": {"checkpoints_run": 1200, "checkpoints_runevent": 1}, "key": "k2"},
            "encrypted 1,201 rows under k2",
        ),
        (
            "veto_asked",
            {"verdicts": {"no_veto": 2, "veto": 3}},
            "the gate's veto kept 3 writes open and let 2 through",
        ),
        (
            "veto_asked",
            {"verdicts": {"veto": 1}},
            "the gate's veto kept 1 write open",
        ),
        (
            "veto_asked",
            {"verdicts": {"no_veto": 2}},
            "the gate's veto let 2 writes through",
        ),
        ("of_tomorrow", {}, "of tomorrow"),
    ],
)
def test_a_line_says_what_was_done(kind: str, facts: dict[str, Any], said: str) -> None:
    assert sentence_of(kind, facts) == said


def test_a_line_names_people_by_full_name_and_account() -> None:
    facts = {"subject": "group:claims", "added": ["user:rita", "user:ada"]}
    assert accounts_in(facts) == {"rita", "ada"}
    shown = with_full_names(facts, {"rita": "Rita Lund", "ada": ""})
    assert (
        sentence_of("members_changed", shown)
        == "added Rita Lund (rita) and ada to the group claims"
    )
