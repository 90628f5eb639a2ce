"""The image of deploy/Dockerfile. A test follows its steps in a folder, and runs the
result as in a container: not as root, and with nothing writable but its data.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from orchestrator.devtools.postgres import Postgres
from tests.deploy import dockerfile
from tests.deploy.container import USER, Container, container, reason_against
from tests.deploy.programs import program
from tests.house.commands import PRODUCTION, ROOT
from tests.house.programs import free_port
from tests.house.visitor import Visitor
from tests.support.processes import until

HOST = PRODUCTION["COUNTERSIGN_ALLOWED_HOSTS"]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the steps of the Dockerfile were followed."""
    folder = tmp_path_factory.mktemp("image")
    dockerfile.build(folder)
    return folder


@pytest.fixture
def database() -> Iterator[str]:
    """DATABASE_URL of a PostgreSQL of its own."""
    folder = Path(tempfile.mkdtemp(prefix="countersign-"))
    # The server runs as another user where this is root.
    folder.chmod(0o755)
    server = Postgres(folder / "pg")
    try:
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def env(image: Path, database: str) -> dict[str, str]:
    """The variables of a container, and its folders."""
    for name in ("data", "app", "temporary"):
        (image / name).mkdir(exist_ok=True)
    for name in ("data", "temporary"):
        os.chown(image / name, USER, USER)
    return {
        **dockerfile.environment_of_image(image),
        **PRODUCTION,
        "COUNTERSIGN_BEHIND_PROXY": "true",
        "TMPDIR": str(image / "temporary"),
        "DATABASE_URL": database,
    }


def _visit(port: int, path: str) -> int:
    try:
        return Visitor(port, host=HOST, scheme="https").get(path).status
    except OSError:
        return 0


@pytest.mark.skipif(bool(reason_against()), reason=reason_against())
def test_web_and_worker_run_without_rights_and_stop_when_asked(
    image: Path, env: dict[str, str], tmp_path: Path
) -> None:
    entry = str(image / "venv" / "bin" / "countersign")
    log = tmp_path / "log"
    start = partial(
        container,
        cwd=image / "app",
        writable=[image / "data", image / "temporary"],
        env=env,
        log=log,
    )
    port = free_port()

    with start([entry, "migrate"]) as migration:
        assert migration.outside.wait(120) == 0, log.read_text()

    with ExitStack() as containers:
        web: Container = containers.enter_context(
            start([entry, "web", "-p", str(port)])
        )
        worker: Container = containers.enter_context(start([entry, "worker"]))
        until(
            lambda: _visit(port, "/readyz/workers") == 200,
            seconds=90,
            what=f"a web process and a worker: {log.read_text()}",
        )

        assert _visit(port, "/readyz") == 200
        assert _visit(port, "/login/") == 200
        for words in (["healthy"], ["healthy", "web"], ["healthy", str(port)]):
            assert web.execute(entry, *words).returncode == 0
        assert web.execute(entry, "healthy", "web", str(free_port())).returncode == 1
        for words in (["healthy"], ["healthy", "worker"]):
            assert worker.execute(entry, *words).returncode == 0
        # A worker that runs elsewhere with the same database vouches for nobody.
        elsewhere = {**env, "TMPDIR": str(image / "data")}
        strange = subprocess.run([entry, "healthy", "worker"], env=elsewhere)
        assert strange.returncode == 1
        forbidden = worker.execute("touch", str(image / "venv" / "new"))
        assert "Read-only file system" in forbidden.stderr

        assert worker.stop(seconds=15) == 0
        assert web.stop(seconds=10) == 0
    assert "Traceback" not in log.read_text()


def test_the_static_files_are_in_the_image_under_names_that_may_be_kept(
    image: Path,
) -> None:
    assert (image / "static" / "staticfiles.json").is_file()
    assert not list((image / "collected").glob("static/*"))


def test_the_image_is_built_from_the_code_alone(tmp_path: Path) -> None:
    context = dockerfile.context(tmp_path)
    assert {path.name for path in context.iterdir()} == {
        *("LICENSE", "NOTICE", "README.md", "constraints.txt", "pyproject.toml"),
        *("approvals", "checkpoints", "orchestrator", "static", "templates"),
        "deploy",
    }
    assert [path.name for path in context.rglob("*.pyc")] == []
    assert (context / "deploy" / "entry.sh").stat().st_mode & 0o111


def test_the_last_stage_has_no_compiler_and_does_not_run_as_root() -> None:
    last = [step for step in dockerfile.instructions() if step.stage == 1]
    words = [step.word for step in last]
    assert [step.rest for step in last if step.word == "USER"] == [f"{USER}:{USER}"]
    # What follows the user could not undo it.
    assert words.index("USER") < words.index("ENTRYPOINT")
    installed = " ".join(step.rest for step in last if step.word == "RUN")
    assert "pip" not in installed
    assert "gcc" not in installed
    assert "build-essential" not in installed


def test_the_extras_of_the_image_are_those_of_its_page() -> None:
    listed = re.search(r"\.whl\)\[([\w,]+)\]", dockerfile.DOCKERFILE.read_text())
    assert listed is not None
    page = (ROOT / "docs" / "containers.md").read_text()
    sentence = re.search(r"packages of the extras (.*?), in the versions", page)
    assert sentence is not None
    assert listed[1].split(",") == re.findall(r"`(\w+)`", sentence[1])
    assert {"metrics", "otel"} <= set(listed[1].split(","))


def test_a_word_is_needed(image: Path) -> None:
    done = subprocess.run(
        [image / "venv" / "bin" / "countersign"], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "names what to run" in done.stderr


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(
        [program("hadolint"), dockerfile.DOCKERFILE], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_built_where_there_is_a_daemon() -> None:
    if shutil.which("docker") is None:
        pytest.skip("there is no docker here")
    if subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
        pytest.skip("there is no daemon of docker here: its steps are followed instead")
    build = ["docker", "build", "--file", "deploy/Dockerfile", "--quiet", "."]
    done = subprocess.run(build, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    image = done.stdout.strip()
    key = f"--env=COUNTERSIGN_SECRET_KEY={PRODUCTION['COUNTERSIGN_SECRET_KEY']}"
    run = ["docker", "run", "--rm", "--read-only", f"--tmpfs=/data:uid={USER}", key]
    done = subprocess.run([*run, image, "check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
