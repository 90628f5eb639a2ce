"""`manage.py up`: where it listens, and what it says."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import django
import pytest
from django.db import connection

from orchestrator.management.commands.up import _environment
from tests.house.programs import free_port
from tests.support.clusters import Command
from tests.support.processes import ROOT

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor != "sqlite", reason="the same on each database"
    ),
]


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        command = Command("up", "--port", str(number), log=tmp_path / "up.log")
        assert command.main.wait(20) == 1
        content = command.log.read_text()
    assert f"Cannot listen on 127.0.0.1 port {number}" in content
    other = re.search(
        r"choose another one with --port \(make demo PORT=(\d+)\)", content
    )
    assert other is not None
    assert int(other[1]) != number
    assert "Traceback" not in content


def test_make_demo_takes_a_port_of_ones_own() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "demo", "PORT=8123"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert "manage.py up --demo --port 8123" in done.stdout
    done = subprocess.run(
        ["make", "--dry-run", "demo"], cwd=ROOT, capture_output=True, text=True
    )
    assert "manage.py up --demo --port 8000" in done.stdout


def test_the_demo_says_last_who_can_sign_in_and_in_which_file_that_stays(
    tmp_path: Path,
) -> None:
    # Its own database: the one of the tests is not to have the demo's runs.
    port = free_port()
    env = {"COUNTERSIGN_DATA_DIR": str(tmp_path), "DATABASE_URL": ""}
    command = Command(
        "up", "--demo", "--port", str(port), log=tmp_path / "up.log", **env
    )
    try:
        command.says("This line stays in")
        said = command.log.read_text()
        line = next(
            line for line in said.splitlines() if line.startswith("Sign in as: olive ")
        )
        assert said.index(line) > said.index("is running at")
        assert (tmp_path / "sign-ins.txt").read_text().strip() == line
    finally:
        command.kill_all()


def test_called_as_python_m_django_its_children_find_the_current_folder_and_not_djangos_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "argv", [str(Path(django.__file__).parent / "__main__.py"), "up"]
    )
    paths = _environment(("127.0.0.1", 8000), demo=False)["PYTHONPATH"].split(
        os.pathsep
    )
    assert paths[0] == str(tmp_path)
    assert str(Path(django.__file__).parent) not in paths
