"""The memory of an installation in short: that it stays, and that growth is noticed."""

import os
import subprocess
import sys

import pytest
from django.db import connection

from tests.soak.memory import Growth
from tests.support.processes import ROOT


def test_memory_is_within_a_fifth_after_runs_views_and_sockets() -> None:
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATABASE_URL", "PYTEST_"))
    }
    words = ["--runs=300", "--views=60", "--sockets=30"]
    command = [
        sys.executable,
        "-m",
        "tests.soak.memory",
        f"--database={connection.vendor}",
        *words,
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, (done.stdout, done.stderr[-3000:])
    assert "web: " in done.stdout
    assert "worker: " in done.stdout


@pytest.mark.parametrize(
    ("after", "is_too_much"), [(80.0, False), (120.0, False), (121.0, True)]
)
def test_growth_by_more_than_a_fifth_is_too_much(
    after: float, is_too_much: bool
) -> None:
    growth = Growth("web", 100.0, after)
    assert growth.is_too_much == is_too_much
    assert ("TOO MUCH" in str(growth)) == is_too_much
