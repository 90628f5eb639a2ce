"""`python -m tests.soak`: kills, freezes and restarts everything for as long as it
takes; prints what that did.

The last line says `lost 0 / doubled 0 / stuck 0`; any other figure there makes the exit
code 1. It has a database of its own, in a folder that it removes where nothing was
found.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.devtools.postgres import Postgres


def main(words: list[str]) -> int:
    """Prepare the database, and hold the campaign. Gives its exit code."""
    chosen = _parser().parse_args(words)
    # Whoever stops a soak must not leave its clusters behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="countersign-soak-"))
    os.environ.pop("DATABASE_URL", None)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "tests.soak.settings",
        "COUNTERSIGN_DATA_DIR": str(folder),
    }
    with _database(chosen.database, folder) as restart:
        code = _campaign(chosen, folder, restart)
    if code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _campaign(
    chosen: argparse.Namespace, folder: Path, restart: Callable[[], None] | None
) -> int:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from tests.soak.campaign import Campaign, Options

    options = Options(
        database=chosen.database,
        supersteps=chosen.supersteps,
        seconds=chosen.minutes * 60,
        seed=chosen.seed,
        pause=chosen.pause,
        dawdle=chosen.dawdle,
        only_workers=chosen.kill_workers,
    )
    print(f"soak: seed {options.seed}, logs in {folder}", flush=True)
    return Campaign(options, folder, restart).run()


@contextmanager
def _database(name: str, folder: Path) -> Iterator[Callable[[], None] | None]:
    """A database for the soak, and how it is restarted. The server writes as carefully
    as one in production.
    """
    if name == "sqlite":
        yield None
        return
    folder.chmod(0o755)  # the server runs as another user where we are root
    server = Postgres(folder / "pg", keep=True)
    os.environ["DATABASE_URL"] = server.start()

    def restart() -> None:
        assert server._server is not None
        server._server.send_signal(
            signal.SIGQUIT
        )  # at once, without a word to anybody: it recovers from its log
        server._server.wait(30)
        server.start()

    try:
        yield restart
    finally:
        server.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "--database", choices=("sqlite", "postgresql"), default="sqlite"
    )
    parser.add_argument(
        "--supersteps", type=int, default=10_000, help="go on until there were so many"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=60.0,
        help="but trouble them no longer than this",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the troubles")
    parser.add_argument(
        "--pause", type=float, default=1.2, help="mean seconds between two troubles"
    )
    parser.add_argument(
        "--dawdle",
        type=float,
        default=0.01,
        help="seconds that each effect may take, twice",
    )
    parser.add_argument(
        "--kill-workers",
        action="store_true",
        help="nothing but SIGKILL of busy workers",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
