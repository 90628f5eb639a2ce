"""A stand-in for a container: a process that is number 1 of its own, runs as the user of
the image without any right, and can write nothing but its data and temporary folders.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.clusters import children

USER = 10001
PROGRAMS = ("unshare", "setpriv", "nsenter")
CONFINED = """
for folder in $WRITABLE; do mount --bind "$folder" "$folder"; done
mount -o remount,bind,ro /
exec "$@"
"""
UNPRIVILEGED = (
    "setpriv",
    f"--reuid={USER}",
    f"--regid={USER}",
    "--clear-groups",
    "--no-new-privs",
    # It may read everything, for the Python of a developer may lie in a closed folder.
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=-all,+dac_read_search",
    "--bounding-set=-all,+dac_read_search",
)


def reason_against() -> str:
    """Return why there can be no such process here; empty if there can."""
    if os.geteuid() != 0:
        return "to confine a process takes root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"there is no {', '.join(missing)} here"
    probe = subprocess.run(
        ["unshare", "--mount", "mount", "-o", "remount,bind,ro", "/"],
        capture_output=True,
        text=True,
    )
    return probe.stderr.strip()


@dataclass(frozen=True)
class Container:
    """A process that runs in one. `outside` is the process that waits for it."""

    outside: "subprocess.Popen[bytes]"
    env: Mapping[str, str]
    cwd: Path

    @property
    def process_1(self) -> int:
        """The number outside of its first process."""
        (first,) = children(self.outside.pid)
        return first

    def execute(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command beside it, as `docker exec` does."""
        inside = ["nsenter", f"--target={self.process_1}", "--mount", "--pid"]
        return subprocess.run(
            [*inside, f"--wd={self.cwd}", *UNPRIVILEGED, *command],
            env=dict(self.env),
            capture_output=True,
            text=True,
            timeout=120,
        )

    def stop(self, *, seconds: float) -> int:
        """Send process 1 the signal that asks it to stop, and return its exit code.
        Raises `TimeoutExpired` if it has not ended by then.
        """
        os.kill(self.process_1, signal.SIGTERM)
        return self.outside.wait(seconds)


@contextmanager
def container(
    command: Sequence[str],
    *,
    cwd: Path,
    writable: Sequence[Path],
    env: Mapping[str, str],
    log: Path,
) -> Iterator[Container]:
    """The command in a container while the block lasts; it is killed at the end."""
    names = " ".join(map(str, writable))
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
    confined = ["--kill-child", "sh", "-euc", CONFINED, "sh"]
    with log.open("ab") as out:
        outside = subprocess.Popen(
            [*namespaces, *confined, *UNPRIVILEGED, *command],
            cwd=cwd,
            env={**env, "WRITABLE": names},
            stdout=out,
            stderr=out,
        )
    try:
        yield Container(outside, env, cwd)
    finally:
        with contextlib.suppress(ProcessLookupError):
            outside.kill()
        outside.wait(10)
