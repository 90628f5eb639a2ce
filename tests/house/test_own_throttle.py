"""A project of somebody else takes the throttle of log-ins by the words of
docs/use-in-your-project.md.
"""

import re
from pathlib import Path

from tests.house import host
from tests.house.commands import ROOT, run

PAGE = ROOT / "docs" / "use-in-your-project.md"
FAIL = """
from django.contrib.auth.models import User
from django.test import Client

User.objects.create_user("olive", password="right")
form = {"username": "olive", "password": "wrong"}
for _ in range(5):
    answer = Client(SERVER_NAME="localhost").post("/login/", form)
print(answer.status_code)
"""
TRY = """
from django.test import Client

answer = Client(SERVER_NAME="localhost").post("/login/", {"username": "olive", "password": "right"})
print(answer.status_code)
"""


def test_a_project_that_takes_the_throttle_refuses_log_ins_in_every_process(
    tmp_path: Path,
) -> None:
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = (block for block in blocks if "AXES_HANDLER" in block)
    python = host.install(host.build_wheel(tmp_path), tmp_path / "venv")
    manage = host.start_project(python, tmp_path / "project")

    def command(*words: str) -> str:
        done = run(python, manage, *words, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    command("migrate", "--verbosity=0")
    with (tmp_path / "project" / "host" / "settings.py").open("a") as file:
        file.write(
            f'\nfrom datetime import timedelta\n\nALLOWED_HOSTS = ["localhost"]\n{block}'
        )
    assert "no issues" in command("check")
    command("migrate", "--verbosity=0")
    assert command("shell", "--verbosity=0", "-c", FAIL) == "429"
    assert command("shell", "--verbosity=0", "-c", TRY) == "429"
    command("axes_reset_username", "olive")
    assert command("shell", "--verbosity=0", "-c", TRY) == "302"
