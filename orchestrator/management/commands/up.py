"""`manage.py up`: run the web server and a worker in one terminal, for the demo,
development and small installations.
"""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from checkpoints.conf import conf
from orchestrator import environment
from orchestrator.devtools.postgres import Postgres, PostgresMissing
from orchestrator.management import command_line
from orchestrator.worker.child_process import end_with_parent
from orchestrator.worker.configuration import find_faults
from orchestrator.worker.process_group import ProcessGroup

Address = tuple[str, int]

DEFAULT_PORT = 8000
WEB_START_SECONDS = 60.0
GRACE_BEYOND_RUNS = 8.0
"""Seconds by which this command waits longer than a worker does, because the worker
should be the one to kill what hangs.
"""


class Command(command_line.ClearCommand):
    """Ends with 0 when it was stopped by a signal and everything ended in time."""

    help = "Runs the web server and a worker together. Ctrl-C stops both."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--demo",
            action="store_true",
            help="with the example graphs, people and runs",
        )
        parser.add_argument(
            "--postgres",
            action="store_true",
            help="on a PostgreSQL of its own in the data folder",
        )
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=DEFAULT_PORT)

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare the database, start both processes, print their address, and wait for
        them.
        """
        address = (options["host"], options["port"])
        # Otherwise the worker would refuse these settings, be started again, and refuse
        # them forever.
        faults = find_faults()
        if faults:
            raise CommandError(faults[0])
        _refuse_taken(address)
        env = _environment(address, demo=options["demo"])
        with _database(env, own=options["postgres"]):
            _run_first("migrate", env)
            # The rows of an older release: the worker would refuse them, be started
            # again, and refuse them forever.
            _run_first("seal_anew", env)
            grace = conf().grace_seconds + GRACE_BEYOND_RUNS
            processes = ProcessGroup(
                web=_web_command(address),
                worker=_command("worker"),
                env=env,
                grace=grace,
            )
            try:
                processes.start()
                if processes.wait_for(address, seconds=WEB_START_SECONDS):
                    self._greet(processes, address, options)
                code = processes.run()
            finally:
                processes.end()
        if code:
            sys.exit(code)

    def _greet(
        self, processes: ProcessGroup, address: Address, options: dict[str, Any]
    ) -> None:
        """Print where the site is, and how to sign in to the demo."""
        if options["demo"] and processes.beside(_command("demo_data")):
            raise CommandError("`manage.py demo_data` failed, see above")
        # The stop ended `demo_data` too, perhaps before it wrote how to sign in.
        if processes.stop.requested:
            return
        if options["postgres"]:
            url = processes.env["DATABASE_URL"]
            self.stdout.write(
                f"For other commands on its database: export DATABASE_URL='{url}'"
            )
        self.stdout.write(
            f"Countersign is running at {_site(address)} - stop it with Ctrl-C."
        )
        if options["demo"]:
            file = environment.sign_ins_file()
            self.stdout.write(file.read_text().strip())
            self.stdout.write(f"This line stays in {file}.")
        self.stdout.flush()


def _refuse_taken(address: Address) -> None:
    """Raise `CommandError` naming a free port if this address cannot be listened on."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as probe:
        # Old connections of a server that has ended do not keep its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            place = f"{address[0]} port {address[1]} ({error.strerror})"
            port = _free_port(address[0], family)
            raise CommandError(
                f"Cannot listen on {place}: "
                f"choose another one with --port (make demo PORT={port})"
            ) from None


def _free_port(host: str, family: socket.AddressFamily) -> int:
    """Return a port on which nothing listens now."""
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            # It is the host, not the port, that cannot be listened on.
            return DEFAULT_PORT
        return int(probe.getsockname()[1])


def _environment(address: Address, *, demo: bool) -> dict[str, str]:
    """Return the environment of the child processes: that of this process, with the
    folder of manage.py importable from wherever it was called.
    """
    env = dict(os.environ)
    folder = str(_project_folder())
    path = env.get("PYTHONPATH")
    env["PYTHONPATH"] = f"{folder}{os.pathsep}{path}" if path else folder
    if demo:
        env["COUNTERSIGN_DEMO"] = "true"
    # The demo pays over HTTP, at the web server that is about to start.
    env.setdefault("COUNTERSIGN_DEMO_PAYMENTS_URL", f"{_site(address)}demo/payments/")
    return env


def _project_folder() -> Path:
    script = Path(sys.argv[0]).resolve()
    # With `python -m django` the script is Django's, and its folder would hide modules
    # of Python's library, `http` among them.
    if script.name == "__main__.py":
        return Path.cwd()
    return script.parent


def _site(address: Address) -> str:
    """Return the URL at which this machine reaches the server."""
    local_hosts = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound here
    host = local_hosts.get(address[0], address[0])
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{address[1]}/"


@contextlib.contextmanager
def _database(env: dict[str, str], *, own: bool) -> Iterator[None]:
    """With `own`, run a PostgreSQL while the block lasts, and pass its address to the
    child processes.
    """
    if not own:
        yield
        return
    server = Postgres(environment.data_dir() / "postgres", keep=True)
    try:
        env["DATABASE_URL"] = server.start()
    except (PostgresMissing, RuntimeError) as error:
        raise CommandError(str(error)) from None
    try:
        yield
    finally:
        server.stop()


def _web_command(address: Address) -> list[str]:
    module, _, name = settings.ASGI_APPLICATION.rpartition(".")
    return [
        sys.executable,
        "-m",
        "daphne",
        "-b",
        address[0],
        "-p",
        str(address[1]),
        f"{module}:{name}",
    ]


def _command(*words: str) -> list[str]:
    """Return the command line of another management command, run as this one was."""
    script = sys.argv[0]
    if script.endswith("__main__.py"):
        return [sys.executable, "-m", "django", *words]
    return [sys.executable, script, *words]


def _run_first(name: str, env: dict[str, str]) -> None:
    """Run a command that prepares the database. Raises `CommandError` if it fails."""
    command = _command(name, "--verbosity", "0")
    ended = subprocess.run(command, env=env, preexec_fn=end_with_parent, check=False)
    if ended.returncode:
        raise CommandError(f"`manage.py {name}` failed, see above")
