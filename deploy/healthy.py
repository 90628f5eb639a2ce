"""Ends with 0 if the process of this container is alive, else with 1 and a sentence.
Needs no package and no database, so that a probe costs little.

    healthy.py [web|worker] [PORT]

Without the first word process 1 is taken for what it was started as. A web process must
answer on its port; a worker must have touched its file lately.
"""

import argparse
import os
import sys
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path

PATIENCE_SECONDS = 5.0
USUAL_PORT = 8000
OLDEST_SECONDS = 30.0
"""A worker touches its file once a second, and waits no longer than half of this for a
database that does not answer.
"""


def words_of_process_1() -> list[str]:
    """Return the command line that the container was started with."""
    try:
        line = Path("/proc/1/cmdline").read_bytes()
    except OSError:
        return []
    return line.decode(errors="replace").split("\0")


def role_among(words: list[str]) -> str:
    """Return "worker" if the words start a worker, else "web"."""
    return "worker" if "worker" in words else "web"


def port_among(words: list[str]) -> int:
    """Return the port of the web process that the words start."""
    # What stands before is meant for others, as an option of tini's; without tini the
    # entry has become daphne.
    starts = [words.index(name) + 1 for name in ("web", "daphne") if name in words]
    options = words[starts[0] :] if starts else []
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-p", "--port", type=int, default=USUAL_PORT)
    return int(parser.parse_known_args(options)[0].port)


def first_host() -> str:
    """Return a host name that the web process answers."""
    names = os.environ.get("COUNTERSIGN_ALLOWED_HOSTS", "").split(",")
    first = names[0].strip()
    # A leading dot stands for the domain and all below it, an asterisk for any name.
    return first.lstrip(".*") or "localhost"


def fault_of_web(port: int) -> str:
    """Return why the web process counts as dead; empty if it answers without an error
    of its own. One that refuses this host name is alive, too.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/healthz", headers={"Host": first_host()})
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        return f"nobody answers on port {port}: {error}"
    finally:
        connection.close()
    return f"port {port} answers {status}" if status >= 500 else ""


def fault_of_worker(file: str) -> str:
    """Return why the worker counts as dead; empty if it touched its file lately."""
    try:
        touched = Path(file).stat().st_mtime
    except OSError as error:
        return f"the worker has not begun: {error}"
    # The clock may have been set back. A worker that is alive mends the file at once.
    age = abs(time.time() - touched)
    if age > OLDEST_SECONDS:
        return f"the worker has not touched {file} for {age:.0f} s"
    return ""


def fault(words: list[str]) -> str:
    """Return why the process that the words name counts as dead; empty if it lives."""
    started_with = words_of_process_1()
    role = role_among(started_with)
    if words[:1] in (["web"], ["worker"]):
        role = words[0]
        words = words[1:]
    if role == "worker":
        return fault_of_worker(os.environ.get("COUNTERSIGN_ALIVE_FILE", ""))
    port = int(words[0]) if words else port_among(started_with)
    return fault_of_web(port)


if __name__ == "__main__":
    sys.exit(fault(sys.argv[1:]) or 0)
