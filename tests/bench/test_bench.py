"""The bench runs, checks its own results, and prints every target. No time is asserted
here.
"""

import json
import os
import subprocess
import sys

import pytest

from bench.targets import TARGETS
from tests.house.commands import ROOT


def test_a_short_bench_measures_and_prints_every_target(
    request: pytest.FixtureRequest,
) -> None:
    database = request.config.option.database
    command = [
        "--short",
        "--rounds",
        "1",
        "--no-peers",
        "--database",
        database,
        "--only",
        "W3",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *command],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    records = [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")
    ]
    assert {record["workload"].split()[0] for record in records} == {"W3"}
    assert {record["database"] for record in records} == {database}
    assert all(target.what in done.stdout for target in TARGETS)


def test_an_unknown_workload_is_refused_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--only", "W0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "no workload W0" in done.stderr
