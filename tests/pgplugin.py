"""Prepares the database of a test run before the settings are read, and tells how many
tests ran on which.

Named in pytest's `addopts`: a conftest.py would be too late, pytest-django reads the
settings before it.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from orchestrator.devtools.postgres import Postgres
from tests.support.order import part_of

DATABASES = ("sqlite", "postgresql")
ROOM = 2**30
"""Bytes that must be free in memory; a pass needs a tenth of it."""
IN_WORKER = "PYTEST_XDIST_WORKER" in os.environ
_server: list[Postgres] = []
_folders: list[Path] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database",
        choices=DATABASES,
        default="sqlite",
        help="where the tests keep their rows",
    )
    parser.addoption("--counts", help="a file that gets the number of tests, as JSON")
    parser.addoption("--part", help="K/N runs the tests of part K of N only")
    parser.addoption(
        "--each-part",
        action="append",
        default=[],
        help="a path whose tests belong to each part",
    )


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave the tests of other parts to other commits."""
    if not config.option.part:
        return
    part, parts = map(int, config.option.part.split("/"))
    chosen = []
    others = []
    for item in items:
        if (
            item.nodeid.startswith(tuple(config.option.each_part))
            or part_of(item.nodeid, parts) == part
        ):
            chosen.append(item)
        else:
            others.append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=others)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if IN_WORKER:
        return
    on_postgres = early_config.known_args_namespace.database == "postgresql"
    # A folder of its own per run: two runs at once must not share a database, and a
    # socket's path must be short.
    folder = Path(
        tempfile.mkdtemp(prefix="countersign-", dir=None if on_postgres else _memory())
    )
    _folders.append(folder)
    os.environ["COUNTERSIGN_DATA_DIR"] = str(folder)
    os.environ.pop("DATABASE_URL", None)
    if on_postgres:
        folder.chmod(0o755)  # the server runs as another user where we are root
        _server.append(Postgres(folder / "pg"))
        os.environ["DATABASE_URL"] = _server[0].start()


def _memory() -> Path | None:
    """Return where files are kept in memory, if there is room: on a disk each commit of
    SQLite waits for it.
    """
    folder = Path("/dev/shm")
    usable = (
        folder.is_dir()
        and os.access(folder, os.W_OK)
        and shutil.disk_usage(folder).free > ROOM
    )
    return folder if usable else None


def pytest_report_header(config: pytest.Config) -> str:
    return f"database: {config.option.database}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    counts = {
        word: len(terminalreporter.stats.get(word, []))
        for word in ("passed", "failed", "error", "skipped", "xfailed")
    }
    terminalreporter.write_line(
        f"{counts['passed']} tests passed on {config.option.database}"
    )
    if config.option.counts:
        Path(config.option.counts).write_text(
            json.dumps(counts | {"exit status": int(exitstatus)})
        )


def pytest_unconfigure() -> None:
    while _server:
        _server.pop().stop()
    while _folders:
        shutil.rmtree(_folders.pop(), ignore_errors=True)
