"""A process is gone where that is proven, and nowhere else: who takes a live one for a
dead one pays twice.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from checkpoints.queue import processes
from checkpoints.queue.processes import Process, this_process
from tests.support.processes import ROOT

ITSELF = (
    "import json, signal; from dataclasses import asdict; from"
    " checkpoints.queue.processes import this_process;"
    "print(json.dumps(asdict(this_process())), flush=True); signal.pause()"
)
ENTER = [str(shutil.which("unshare")), "--pid", "--fork", "--kill-child"]


@contextmanager
def waiting(*before: str) -> Iterator[tuple[Process, "subprocess.Popen[str]"]]:
    """A process that says who it is and waits, started by these words."""
    command = [*before, sys.executable, "-c", ITSELF]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Process(**json.loads(process.stdout.readline())), process
    finally:
        process.kill()
        process.wait()


def ended() -> Process:
    """A process of this pid space that was there and is not."""
    with waiting() as (seen, _):
        assert not seen.is_gone()
    return seen


def _may_unshare() -> bool:
    try:
        return (
            subprocess.run(
                [*ENTER, "--mount-proc", "true"], capture_output=True
            ).returncode
            == 0
        )
    except OSError:
        return False


in_its_own_namespace = pytest.mark.skipif(
    not _may_unshare(), reason="`unshare --pid --mount-proc` is not allowed here"
)


def test_a_process_that_is_there_is_not_gone_and_one_that_ended_is() -> None:
    assert not this_process().is_gone()
    assert ended().is_gone()


def test_a_process_that_ended_and_was_not_waited_for_is_gone() -> None:
    with waiting() as (seen, process):
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert seen.is_gone()


def test_a_later_process_with_its_pid_is_not_taken_for_it() -> None:
    assert replace(this_process(), started=1).is_gone()


BOOT, NAMESPACE = processes.pid_space().split(":")
FORGED = {
    "another host": {"host": "elsewhere"},
    "another boot of this host": {
        "pid_space": f"00000000-0000-0000-0000-000000000000:{NAMESPACE}"
    },
    "another pid namespace": {"pid_space": f"{BOOT}:1"},
    "a row from before": {"pid_space": ""},
    "a system that tells no start": {"started": 0},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_what_differs_or_is_unknown_proves_nothing(forged: dict[str, object]) -> None:
    assert not replace(ended(), **forged).is_gone()  # type: ignore[arg-type]


def test_where_this_process_does_not_know_its_own_pid_space_nothing_is_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = ended()
    monkeypatch.setattr(processes, "pid_space", lambda: "")
    assert not there.is_gone()
    assert not replace(there, pid_space="").is_gone()


def test_a_process_that_proc_hides_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(pid: int) -> list[str]:
        raise FileNotFoundError

    def refused(pid: int) -> list[str]:
        raise PermissionError

    there = this_process()
    gone = ended()
    monkeypatch.setattr(processes, "_stat", hidden)
    assert there.is_gone() is False
    assert gone.is_gone() is True
    monkeypatch.setattr(os, "kill", lambda pid, number: refused(pid))
    assert not gone.is_gone(), "of another user"
    monkeypatch.setattr(processes, "_stat", refused)
    assert not gone.is_gone()


@in_its_own_namespace
def test_a_live_process_of_another_pid_namespace_is_not_taken_for_gone() -> None:
    with waiting(*ENTER, "--mount-proc") as (inside, process):
        assert inside.host == socket.gethostname()
        assert inside.pid == 1
        assert inside.pid_space.startswith(BOOT)
        assert inside.pid_space != processes.pid_space()
        assert processes.started_ticks(inside.pid) != inside.started, (
            "by host name, pid and ticks it would be gone"
        )
        assert not inside.is_gone()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not inside.is_gone()


@in_its_own_namespace
def test_a_process_that_sees_the_proc_of_another_namespace_claims_no_pid_space() -> (
    None
):
    with waiting(*ENTER) as (inside, _):
        assert inside.pid_space == ""
