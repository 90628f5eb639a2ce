"""Who installs the wheel into a project of his own gets everything: code, tables, pages and their files."""

from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.house import host
from tests.house.commands import run

VISIT = """
import orchestrator
from django.contrib.staticfiles import finders
from django.test import Client

answer = Client().get("/login/")
print(answer.status_code)
print("countersign/css/console.css" in answer.content.decode())
print(bool(finders.find("countersign/css/console.css")))
print(orchestrator.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_every_module_the_licence_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name for name in names if name.endswith(".py")} == host.our_modules()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "orchestrator", "approvals", "checkpoints", "django_countersign",
    }  # fmt: skip


def test_a_new_project_with_the_wheel_migrates_and_shows_a_page(wheel: Path, tmp_path: Path) -> None:
    python = host.install(wheel, tmp_path / "venv")
    manage = host.start_project(python, tmp_path / "project")

    def command(*words: str) -> str:
        done = run(python, manage, *words, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    command("check")
    command("makemigrations", "--check", "--dry-run")
    command("migrate", "--verbosity=0")
    status, styled, found, where = command("shell", "--verbosity=0", "-c", VISIT).split()
    assert (status, styled, found) == ("200", "True", "True")
    assert Path(where).is_relative_to(tmp_path / "venv")
    assert "static files copied" in command("collectstatic", "--no-input")
