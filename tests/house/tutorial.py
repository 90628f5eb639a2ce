"""Follows docs/tutorial.md in an installation: its app, its people, its run, its
review, each over HTTP.
"""

import json
import re
from pathlib import Path
from typing import Any

from tests.house.visitor import Answer, Visitor
from tests.house.words import blocks, script
from tests.support.processes import until

GRAPHS, TESTS = blocks("tutorial.md", "python")
APP, TEST, PEOPLE, RUN, _TOKEN = (
    script(block).commands for block in blocks("tutorial.md")
)
"""The commands of its blocks, in their order."""
ADMIN = "admin"
PASSWORD = "a-door-of-oak-41"
SUPERUSER = {
    "DJANGO_SUPERUSER_USERNAME": ADMIN,
    "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
    "DJANGO_SUPERUSER_EMAIL": "admin@example.org",
}
"""What `createsuperuser` is told instead of asking."""


def make_people(admin: Visitor) -> None:
    """The superuser logs in and makes olive and rita on the pages of the admin."""
    admin.log_in(ADMIN, PASSWORD, "/admin/login/?next=/admin/")
    for name, real, group in (
        ("olive", "Olive Hart", "operator"),
        ("rita", "Rita Lund", "reviewer"),
    ):
        made = admin.send(
            "/admin/auth/user/add/",
            username=name,
            password1=PASSWORD,
            password2=PASSWORD,
        )
        assert re.fullmatch(r"/admin/auth/user/\d+/change/", made.path), made.text[
            :2000
        ]
        first, last = real.split()
        admin.send(made.path, first_name=first, last_name=last, groups=group)


def start(olive: Visitor, key: str) -> None:
    """Olive logs in and starts the tutorial's run from the form of its graph."""
    olive.log_in("olive", PASSWORD)
    fields = {
        "i.employee": "Kim Lund",
        "i.amount": "120.50",
        "i.reason": "train to Lyon",
        "key": key,
    }
    begun = olive.send("/graphs/expense/start/", **fields)
    assert begun.status == 200, begun.text[:2000]
    assert begun.path.startswith("/runs/") is True, begun.text[:2000]


def sign(rita: Visitor, key: str) -> Answer:
    """Rita logs in, finds the review among hers, approves what it proposes, and gets
    her receipt.
    """
    rita.log_in("rita", PASSWORD)
    inbox = until(lambda: _asked(rita), seconds=60, what="the review")
    (path,) = set(re.findall(r'href="(/reviews/[0-9a-f-]{36}/)', inbox))
    page = rita.get(path)
    assert "Pay 120.50 to Kim Lund?" in _words(page.text)
    writes = set(re.findall(r'name="(v-[^"]+)"', page.text))
    assert len(writes) == 2
    receipt = rita.send(path, **dict.fromkeys(writes, "approve"))
    assert receipt.status == 200, receipt.text[:3000]
    assert receipt.path.startswith("/receipts/") is True, receipt.text[:3000]
    until(
        lambda: run(rita, key)["status"] == "completed", seconds=60, what="the payment"
    )
    return page


def run(who: Visitor, key: str) -> Any:
    """The run as the API shows it to somebody who is logged in."""
    return json.loads(who.get(f"/api/v1/runs/{key}/").text)


def _asked(who: Visitor) -> str:
    text = who.get("/reviews/").text
    return text if "/reviews/" in text and "Pay 120.50" in _words(text) else ""


def _words(text: str) -> str:
    """Return the words of a page without its elements, such as those that keep an
    amount on one line.
    """
    return re.sub(r"<[^>]+>", "", text)


def files_of(who: Visitor, page: Answer) -> dict[str, Answer]:
    """Return all files that a page has the browser load, by their addresses."""
    matches = re.findall(r'<(?:link|script)[^>]* (?:href|src)="([^"]+)"', page.text)
    return {path: who.get(path) for path in matches}


def write_graphs(folder: Path) -> None:
    """`expenses/graphs.py` as it stands in the tutorial, in an app that may be there
    already.
    """
    (folder / "expenses").mkdir(exist_ok=True)
    (folder / "expenses" / "__init__.py").touch()
    (folder / "expenses" / "graphs.py").write_text(GRAPHS)


def write_tests(folder: Path) -> None:
    """`expenses/tests.py` as it stands in the tutorial, in the place of what `startapp`
    wrote.
    """
    (folder / "expenses" / "tests.py").write_text(TESTS)


def said_of_tests() -> list[str]:
    """The lines that the tutorial shows of its test run."""
    (block,) = blocks("tutorial.md", "console")
    return block.splitlines()
