"""docs/use-in-your-project.md followed word for word: a new project from the wheel, in
which a review is signed.

From where that page ends docs/tutorial.md goes on: an app, people, a run, a review.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.environment import Environment
from tests.house import host, tutorial
from tests.house.commands import run
from tests.house.programs import free_port, staying, wait_for
from tests.house.visitor import Visitor
from tests.house.words import beginning, blocks, script

OF_THE_HOST = """
ROOT_URLCONF = "host.all_urls"
TEMPLATES[0]["DIRS"] = [BASE_DIR / "templates"]
"""
PAGES_OF_THE_HOST = """
from django.http import HttpResponse
from django.urls import path
from host.urls import urlpatterns as ours

urlpatterns = [path("of-the-host/", lambda request: HttpResponse("theirs")), *ours]
"""
INSTALL, START = (script(block).commands for block in blocks(host.PAGE, "sh"))


def _follow(command: list[str], python: Path, folder: Path, *more: str) -> str:
    """Run a command of a page in the project; it must succeed. Returns what it said."""
    assert command[0] == "python"
    words = [word for word in command[1:] if word != "up"] + list(more)
    done = run(python, *words, cwd=folder, **tutorial.SUPERUSER)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_a_new_project_that_follows_the_page_and_the_tutorial_signs_a_review(
    tmp_path: Path,
) -> None:
    python = host.install(host.build_wheel(tmp_path), tmp_path / "venv")
    folder = host.start_project(
        python, tmp_path / "project", more_settings=OF_THE_HOST
    ).parent
    (folder / "templates").mkdir()
    (folder / "host" / "all_urls.py").write_text(PAGES_OF_THE_HOST)
    (folder / "templates" / "base.html").write_text(
        "A page of the host, which is not ours."
    )
    where = run(
        python, "-c", "import orchestrator; print(orchestrator.__file__)", cwd=folder
    ).stdout
    assert Path(where).is_relative_to(tmp_path / "venv")
    check, migrate, up = START
    assert "no issues" in _follow(check, python, folder)
    _follow(beginning(tutorial.APP, "python", "manage.py", "startapp"), python, folder)
    with (folder / "host" / "settings.py").open("a") as settings:
        settings.write('INSTALLED_APPS += ["expenses"]\n')
    tutorial.write_graphs(folder)
    tutorial.write_tests(folder)
    (test,) = tutorial.TEST
    assert set(tutorial.said_of_tests()) <= set(
        _follow(test, python, folder).splitlines()
    )
    _follow(
        ["python", "manage.py", "makemigrations", "--check", "--dry-run"],
        python,
        folder,
    )
    _follow(migrate, python, folder)
    _follow(
        beginning(tutorial.PEOPLE, "python", "manage.py", "createsuperuser"),
        python,
        folder,
        "--no-input",
    )

    port = free_port()
    log = tmp_path / "up.log"
    env = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG")
        if name in os.environ
    }
    with staying(
        [str(python), *up[1:], "--port", str(port)], cwd=folder, env=env, log=log
    ):
        wait_for(port, log)
        _visit(port, lambda command: _follow(command, python, folder))
    assert "The worker has ended" not in log.read_text()
    assert "static files copied" in _follow(
        ["python", "manage.py", "collectstatic", "--no-input"], python, folder
    )


def _visit(port: int, follow: Callable[[list[str]], str]) -> None:
    page = Visitor(port).get("/login/")
    assert page.status == 200
    assert "Sign in" in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "content-security-policy" not in Visitor(port).get("/of-the-host/").headers
    tutorial.make_people(Visitor(port))
    follow(beginning(tutorial.RUN, "python", "manage.py", "start_run"))
    rita = Visitor(port)
    review = tutorial.sign(rita, "EXP-1")
    files = tutorial.files_of(rita, review)
    assert "/static/countersign/css/console.css" in files
    assert {
        path: file.status for path, file in files.items() if file.status != 200
    } == {}
    assert "completed" in follow(
        beginning(tutorial.RUN, "python", "manage.py", "run_status")
    )


SCHEMA_OF_THE_HOST = """
from django.contrib.auth.models import User
from django.urls import resolve
from rest_framework.test import APIRequestFactory, force_authenticate

request = APIRequestFactory().get("/api/v1/schema/")
force_authenticate(request, User(username="olive"))
answer = resolve("/api/v1/schema/").func(request)
print(answer.status_code, answer.data["openapi"], len(answer.data["paths"]))
"""


def test_a_project_without_settings_for_the_rest_framework_serves_the_schema(
    tmp_path: Path,
) -> None:
    python = Path(sys.executable)
    manage = host.start_project(python, tmp_path / "project")
    done = run(
        python, manage, "shell", "-c", SCHEMA_OF_THE_HOST, PYTHONPATH=str(host.ROOT)
    )
    status, version, paths = done.stdout.split()[-3:]
    assert status == "200", done.stderr
    assert version == "3.1.0", done.stderr
    assert int(paths) > 30


def test_the_wheel_is_made_and_installed_as_the_page_says() -> None:
    assert INSTALL == [["pip", "install", "dist/django_countersign-*.whl"]]


@pytest.mark.parametrize(
    ("block", "url"),
    [(host.SQLITE, ""), (host.POSTGRESQL, "postgres://u:p@h/n")],
    ids=["sqlite", "postgresql"],
)
def test_the_options_of_the_database_are_those_of_our_own_settings(
    block: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    ours = Environment.read().database()
    theirs = {
        "DATABASES": {
            "default": dict.fromkeys(
                ["ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT"]
            )
        }
    }
    exec(block, theirs)
    options = {
        name: value
        for name, value in ours.items()
        if name not in ("ENGINE", "NAME", "USER", "PASSWORD")
    }
    theirs_set = {
        name: value
        for name, value in theirs["DATABASES"]["default"].items()
        if value is not None
    }
    assert theirs_set == {
        name: value for name, value in options.items() if name not in ("HOST", "PORT")
    }
