"""The services of deploy/systemd: what a worker needs to stop in peace, and nothing that a
process of ours could write but its data.
"""

import subprocess
from pathlib import Path

import pytest

from checkpoints.conf import Conf
from tests.deploy.programs import program
from tests.house.commands import ROOT

WEB = ROOT / "deploy" / "systemd" / "countersign-web.service"
WORKER = ROOT / "deploy" / "systemd" / "countersign-worker@.service"
KILL_SECONDS = 5
"""After the grace period a worker kills what hangs within this time."""
MOST_EXPOSURE = 20
"""Tenths, of a hundred, as `systemd-analyze security` counts them."""


def _values(unit: Path, name: str) -> list[str]:
    """Return the values of a directive, in their order."""
    words = [line.partition("=") for line in unit.read_text().splitlines()]
    return [value for key, _, value in words if key == name]


def test_a_signal_reaches_the_main_process_of_a_worker_alone_and_it_has_time() -> None:
    assert _values(WORKER, "KillMode") == ["mixed"]
    (seconds,) = _values(WORKER, "TimeoutStopSec")
    assert int(seconds) > Conf().grace_seconds + KILL_SECONDS


def test_a_worker_that_was_drained_is_not_started_again() -> None:
    assert _values(WORKER, "Restart") == ["on-failure"]


def test_both_are_the_same_but_for_what_they_run() -> None:
    differing = set(WEB.read_text().splitlines()) ^ set(WORKER.read_text().splitlines())
    names = {line.partition("=")[0] for line in differing if not line.startswith("#")}
    assert names == {"Description", "ExecStart"}
    (web,) = _values(WEB, "ExecStart")
    (worker,) = _values(WORKER, "ExecStart")
    assert web.endswith("-m daphne -b 127.0.0.1 -p 8000 orchestrator.asgi:application")
    assert worker.endswith("-m django worker")


@pytest.mark.parametrize("unit", [WEB, WORKER], ids=["web", "worker"])
def test_systemd_reads_the_unit_without_a_word(unit: Path, tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    # The program and the user are those of an installation, which is not here.
    text = unit.read_text().replace("/opt/countersign/venv/bin/python", "/bin/true")
    copy = tmp_path / unit.name.replace("@.", "@1.")
    copy.write_text(text)

    done = subprocess.run(
        [analyze, "verify", "--man=no", copy], capture_output=True, text=True
    )

    complaints = [line for line in done.stderr.splitlines() if unit.stem in line]
    assert complaints == []
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("unit", [WEB, WORKER], ids=["web", "worker"])
def test_the_service_is_confined(unit: Path) -> None:
    analyze = program("systemd-analyze")
    done = subprocess.run(
        [analyze, "security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", unit],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
