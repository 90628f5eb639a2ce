"""A project of somebody else takes the log-in of a company by the words of docs/login.md."""

import re
from pathlib import Path

from tests.house import host
from tests.house.commands import ROOT, run

PAGE = ROOT / "docs" / "login.md"
TRY = """
from django.test import Client

browser = Client(SERVER_NAME="localhost")
print("Sign in with your company" in browser.get("/login/").content.decode())
print(browser.get("/login/company/done/?code=a&state=b").status_code)
"""


def test_a_project_that_takes_the_log_in_has_its_pages(tmp_path: Path) -> None:
    (block,) = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    python = host.install(host.build_wheel(tmp_path), tmp_path / "venv")
    settings = f'import os\n\nALLOWED_HOSTS = ["localhost"]\n{block}'
    manage = host.start_project(python, tmp_path / "project", more_settings=settings)

    def command(*words: str) -> str:
        done = run(python, manage, *words, cwd=tmp_path, OIDC_CLIENT_SECRET="secret")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    assert "no issues" in command("check")
    command("migrate", "--verbosity=0")
    # Between the two is what the log says.
    first, *_, last = command("shell", "--verbosity=0", "-c", TRY).splitlines()
    assert (first, last) == ("True", "400")
    assert "--apply" in command("sync_groups", "--help")
