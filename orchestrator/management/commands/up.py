"""`manage.py up`: the web server and a worker in one terminal, for the demo, development and small installations."""

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
"""More than a worker itself takes, which should be the one to kill what hangs."""


class Command(command_line.ClearCommand):
    """Ends with 0 when it was asked to stop and everything ended in time."""

    help = "Runs the web server and a worker together. Ctrl-C stops both."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--demo", action="store_true", help="with the example graphs, people and runs")
        parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own in the data folder")
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=DEFAULT_PORT)

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare the database, start both, say where, and stay."""
        address = (options["host"], options["port"])
        # Else the worker would refuse them, be started again, and refuse them for ever.
        if faults := find_faults():
            raise CommandError(faults[0])
        _refuse_taken(address)
        env = _environment(address, demo=options["demo"])
        with _database(env, own=options["postgres"]):
            _migrate(env)
            grace = conf().grace_seconds + GRACE_BEYOND_RUNS
            together = ProcessGroup(web=_web(address), worker=_command("worker"), env=env, grace=grace)
            try:
                together.start()
                if together.wait_for(address, seconds=WEB_START_SECONDS):
                    self._greet(together, address, options)
                code = together.run()
            finally:
                together.end()
        if code:
            sys.exit(code)

    def _greet(self, together: ProcessGroup, address: Address, options: dict[str, Any]) -> None:
        if options["demo"] and together.beside(_command("demo_data")):
            raise CommandError("`manage.py demo_data` failed, see above")
        if options["postgres"]:
            url = together.env["DATABASE_URL"]
            self.stdout.write(f"For other commands on its database: export DATABASE_URL='{url}'")
        self.stdout.write(f"Countersign is running at {_site(address)} - stop it with Ctrl-C.")
        if options["demo"]:
            file = environment.sign_ins_file()
            self.stdout.write(file.read_text().strip())
            self.stdout.write(f"This line stays in {file}.")
        self.stdout.flush()


def _refuse_taken(address: Address) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            where = f"{address[0]} port {address[1]} ({error.strerror})"
            cure = f"choose another one with --port (make demo PORT={_free_port(address[0], family)})"
            raise CommandError(f"Cannot listen on {where}: {cure}") from None


def _free_port(host: str, family: socket.AddressFamily) -> int:
    """Return a port on which nothing listens now."""
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError:  # it is the host that cannot be had
            return DEFAULT_PORT
        return int(probe.getsockname()[1])


def _environment(address: Address, *, demo: bool) -> dict[str, str]:
    """For the children: ours, with the folder of manage.py importable wherever we were called from."""
    env = dict(os.environ)
    script = Path(sys.argv[0]).resolve()
    # Of `python -m django` it is the current one: Django's own would hide modules of Python, `http` among them.
    folder = Path.cwd() if script.name == "__main__.py" else script.parent
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), env.get("PYTHONPATH", "")]))
    if demo:
        env["COUNTERSIGN_DEMO"] = "true"
    # The demo pays over HTTP, at the web server that is about to start.
    env.setdefault("COUNTERSIGN_DEMO_PAYMENTS_URL", f"{_site(address)}demo/payments/")
    return env


def _site(address: Address) -> str:
    """Where we are reached from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address[0], address[0])  # noqa: S104 - not bound here
    return f"http://{f'[{host}]' if ':' in host else host}:{address[1]}/"


@contextlib.contextmanager
def _database(env: dict[str, str], *, own: bool) -> Iterator[None]:
    """With `own`, a PostgreSQL as long as the block lasts; its address goes to the children."""
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


def _web(address: Address) -> list[str]:
    module, _, name = settings.ASGI_APPLICATION.rpartition(".")
    return [sys.executable, "-m", "daphne", "-b", address[0], "-p", str(address[1]), f"{module}:{name}"]


def _command(*words: str) -> list[str]:
    """Another management command, called as we were."""
    script = sys.argv[0]
    return [sys.executable, *(["-m", "django"] if script.endswith("__main__.py") else [script]), *words]


def _migrate(env: dict[str, str]) -> None:
    command = _command("migrate", "--verbosity", "0")
    if subprocess.run(command, env=env, preexec_fn=end_with_parent, check=False).returncode:
        raise CommandError("`manage.py migrate` failed, see above")
