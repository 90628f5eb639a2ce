"""A short soak on the database of this pass, with real processes; and that it can fail."""

import os
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from django.db import connection

from tests.soak import graphs, judging
from tests.soak.judging import Findings, Verdict
from tests.support.processes import ROOT

LAST_LINE = re.compile(r"lost (\d+) / doubled (\d+) / stuck (\d+)")


def _soak(*words: str, **env: str) -> tuple[int, str]:
    """Exit code and output of a soak with a database of its own."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATABASE_URL", "PYTEST_"))
    }
    command = [
        sys.executable,
        "-m",
        "tests.soak",
        f"--database={connection.vendor}",
        *words,
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**own, **env},
        capture_output=True,
        text=True,
        timeout=240,
    )
    print(done.stdout, done.stderr[-3000:])
    return done.returncode, done.stdout


def test_a_soak_of_half_a_minute_loses_nothing_doubles_nothing_and_leaves_nothing_stuck() -> (
    None
):
    code, content = _soak("--minutes=0.5", "--pause=0.8", "--seed=5")
    assert content.splitlines()[-1] == "lost 0 / doubled 0 / stuck 0"
    assert code == 0
    assert len(re.findall(r"× SIG(KILL|STOP|TERM)", content)) >= 3


@pytest.mark.skipif(
    connection.vendor == "postgresql",
    reason="that a soak can fail is shown once, on SQLite",
)
def test_a_soak_without_the_guard_of_the_journal_finds_what_is_doubled_and_fails() -> (
    None
):
    words = (
        "--minutes=0.3",
        "--pause=0.6",
        "--seed=7",
        "--kill-workers",
        "--dawdle=0.3",
    )
    code, content = _soak(*words, COUNTERSIGN_SOAK_BREAK="journal")
    facts = LAST_LINE.search(content.splitlines()[-1])
    assert facts
    assert int(facts[2]) > 0, "an effect that happened twice was not found"
    assert code == 1


def _findings(**changed: Any) -> Findings:
    """Return what a good run leaves, with something changed."""
    keys = [f"k{n}" for n in range(graphs.ROUNDS)]
    good = {
        "notes": graphs.expected(),
        "answers": ["asked", "answered"],
        "calls": {(what, key): 1 for what in ("pay", "tell") for key in keys},
        "ticks": graphs.ROUNDS,
        "decided": {"a": [["asked"]], "b": ["proposed"]},
        "lines": [1, 2, 3],
        "applied": 1,
    }
    return Findings(**{**good, **changed})


def _counts(findings: Findings) -> tuple[int, int, int]:
    verdict = Verdict()
    judging.judge("run", findings, verdict)
    return len(verdict.lost), len(verdict.doubled), verdict.repeats


def test_the_judge_finds_nothing_in_a_good_run() -> None:
    assert _counts(_findings()) == (0, 0, 0)
    assert _counts(_findings(decided={"a": [None], "b": [None]}, answers=[])) == (
        0,
        0,
        0,
    )


CALLS = dict(_findings().calls)


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        ({"notes": graphs.expected()[:-1]}, (1, 0, 0)),
        ({"notes": [*graphs.expected(), "tell 1"]}, (0, 1, 0)),
        ({"notes": list(reversed(graphs.expected()))}, (1, 0, 0)),
        ({"answers": ["edited", "answered"]}, (1, 1, 0)),
        ({"answers": []}, (2, 0, 0)),
        ({"decided": {"a": [["asked"], None], "b": [None]}}, (0, 2, 0)),
        ({"ticks": graphs.ROUNDS - 1}, (1, 0, 0)),
        ({"ticks": graphs.ROUNDS + 1}, (0, 1, 0)),
        ({"calls": {**CALLS, ("tell", "k0"): 2}}, (0, 1, 0)),
        ({"calls": {**CALLS, ("pay", "k0"): 3}}, (0, 0, 2)),
        ({"calls": {**CALLS, ("pay", "other"): 1}}, (0, 1, 0)),
        (
            {"calls": {name: n for name, n in CALLS.items() if name != ("tell", "k0")}},
            (1, 0, 0),
        ),
        ({"applied": 2}, (0, 1, 0)),
        ({"applied": 0}, (1, 0, 0)),
        ({"lines": [1, 3]}, (1, 0, 0)),
    ],
)
def test_the_judge_finds_whatever_is_lost_or_doubled(
    changed: dict[str, Any], facts: tuple[int, int, int]
) -> None:
    assert _counts(_findings(**changed)) == facts


def test_the_judge_knows_what_a_run_of_the_soak_must_leave() -> None:
    assert Counter(note.split()[0] for note in graphs.expected()) == dict.fromkeys(
        ("tick", "pay", "tell", "turn"), 3
    )
