"""The documented deployment, word for word: its commands are read from
docs/deployment.md and run on PostgreSQL.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.devtools.postgres import Postgres
from tests.house import host, tutorial
from tests.house.commands import PRODUCTION, run
from tests.house.programs import free_port, staying, wait_for
from tests.house.visitor import Visitor
from tests.house.words import Script, blocks, script

SITE = "runs.example.org"


@pytest.fixture
def database() -> Iterator[str]:
    """DATABASE_URL of a PostgreSQL of its own."""
    folder = Path(tempfile.mkdtemp(prefix="countersign-"))
    folder.chmod(0o755)  # the server runs as another user where we are root
    server = Postgres(folder / "pg")
    try:
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _from_the_clone(folder: Path) -> Path:
    return Path(sys.executable)


def _from_the_wheel(folder: Path) -> Path:
    return host.install(host.build_wheel(folder / "wheel"), folder / "venv")


def _variables(documented: Script, folder: Path, database: str) -> dict[str, str]:
    """Return what the page has one export, with values of ours for each that cannot be
    used as it stands there.
    """
    ours = {
        "COUNTERSIGN_SECRET_KEY": PRODUCTION["COUNTERSIGN_SECRET_KEY"],
        "COUNTERSIGN_DATA_DIR": str(folder / "data"),
        "DATABASE_URL": database,
    }
    assert set(ours) <= set(documented.exports)
    variables = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG")
        if name in os.environ
    }
    return {**variables, **documented.exports, **ours}


@pytest.mark.parametrize("installed", [_from_the_clone, _from_the_wheel])
def test_the_documented_deployment_serves_pages_runs_and_reviews(
    installed: Callable[[Path], Path], tmp_path: Path, database: str
) -> None:
    python = installed(tmp_path)
    site = tmp_path / "site"
    (block,) = blocks("deployment.md", "sh")
    (settings,) = blocks("deployment.md", "python")
    documented = script(block)
    *steps, web, worker = documented.commands
    variables = _variables(documented, tmp_path, database)
    site.mkdir()
    (site / "production.py").write_text(settings)
    tutorial.write_graphs(site)

    for step in steps:
        more = ["--no-input"] if "createsuperuser" in step else []
        done = run(
            python, *step[1:], *more, cwd=site, **variables, **tutorial.SUPERUSER
        )
        assert step[0] == "python", (
            step,
            done.stdout,
            done.stderr,
        )
        assert done.returncode == 0, (
            step,
            done.stdout,
            done.stderr,
        )
        if "check" in step:
            assert "no issues" in done.stdout + done.stderr, done.stdout + done.stderr
    assert [step[3] for step in steps] == [
        "migrate",
        "collectstatic",
        "check",
        "createsuperuser",
    ]

    port = free_port()
    with ExitStack() as programs:
        for number, command in enumerate((web, worker)):
            words = [
                str(python),
                *(str(port) if word == "8000" else word for word in command[1:]),
            ]
            programs.enter_context(
                staying(words, cwd=site, env=variables, log=tmp_path / f"{number}.log")
            )
        wait_for(port, tmp_path / "0.log")
        _visit(port)


def _visit(port: int) -> None:
    """People are made, a run is started and signed; each page comes with its styles,
    under names that may be kept.
    """

    def visitor() -> Visitor:
        return Visitor(port, host=SITE, scheme="https")

    page = visitor().get("/login/")
    assert page.status == 200
    assert "Sign in" in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert Visitor(port, host=SITE).get("/healthz").status == 200
    tutorial.make_people(visitor())
    tutorial.start(visitor(), "EXP-1")
    rita = visitor()
    review = tutorial.sign(rita, "EXP-1")
    files = tutorial.files_of(rita, review)
    assert {path.rpartition(".")[2] for path in files} >= {"css", "js", "woff2", "svg"}
    for path, file in files.items():
        assert file.status == 200, path
        assert bool(file.body), path
        assert "immutable" in file.headers["cache-control"], path
