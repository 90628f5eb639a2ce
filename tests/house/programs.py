"""Programs of an installation that stay: started with words and variables of the
documentation, ended with the test.
"""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import until


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def staying(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path
) -> Iterator[None]:
    """The program while the block lasts; then it is asked to end, and killed with all
    its children if it does not.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)


def wait_for(port: int, log: Path) -> None:
    """Wait until something listens there."""
    until(
        lambda: _listens(port),
        seconds=90,
        what=f"port {port}: {log.read_text() if log.exists() else ''}",
    )


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
