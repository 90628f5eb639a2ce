"""docs/go-back-in-time.md followed on the demo: its commands and calls, one after
another, and what it says of each.
"""

import io
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.core.management import CommandError, call_command
from django.test import Client
from rest_framework.test import APIClient

from checkpoints import timeline
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs, tokens
from orchestrator.demo.claims.models import Payment
from tests.house.commands import ROOT
from tests.house.words import blocks

PAGE = "go-back-in-time.md"
TEXT = (ROOT / "docs" / PAGE).read_text()
PYTHON = [".venv/bin/python", "manage.py"]
KEY = "CLM-118894"
AGAIN = "CLM-118894-again"
OLD = "PT50000201231234567890154"
NEW = "PT50002700000001234567833"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the reader is: with the patch of the page in a file."""
    (patch,) = blocks(PAGE, "json")
    (tmp_path / "account.json").write_text(patch)
    (tmp_path / "wrong.json").write_text('{"scratch": {"payout": {"payee": 7}}}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def demo(live_server: Any, settings: Any) -> Run:
    """The demo after `make demo`: its runs have come to rest."""
    settings.COUNTERSIGN_DEMO_PAYMENTS_URL = f"{live_server.url}/demo/payments/"
    call_command("demo_data", "--wait", "0", stdout=io.StringIO())
    run = runs.advance(runs.get(KEY).id)
    assert run.status == "completed"
    return run


class Reader:
    """Types what the page says."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}

    def type(self, line: str) -> str:
        """Run one line of a shell, and return what it prints: a command of ours, curl,
        or an export of what a command printed.
        """
        if match := re.fullmatch(r"export (\w+)=\$\((.*)\)", line):
            self.variables[match[1]] = self.type(match[2]).strip()
            return ""
        words = [
            re.sub(r"\$(\w+)", lambda match: self.variables[match[1]], word)
            for word in shlex.split(line)
        ]
        if words[: len(PYTHON)] == PYTHON:
            out = io.StringIO()
            call_command(*words[len(PYTHON) :], stdout=out, stderr=io.StringIO())
            return out.getvalue()
        assert words[0] == "curl", line
        assert words[1] == "-H", line
        name, _, value = words[2].partition(": ")
        assert name == "Authorization"
        address = urlsplit(words[3])
        answer = APIClient().get(
            f"{address.path}?{address.query}", headers={"authorization": value}
        )
        assert answer.status_code == 200, answer.content
        return answer.content.decode()


def sign_as_rita(run: Run) -> None:
    """The page says how on the console; here by the API, which takes the same
    decisions.
    """
    http = APIClient()
    token = tokens.make_token(
        User.objects.get(username="rita"), scopes=["read", "decide"]
    )
    http.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    (request,) = http.get(
        "/api/v1/requests/", {"waiting": "me", "run": run.key}
    ).json()["results"]
    writes = http.get(f"/api/v1/requests/{request['id']}/").json()["writes"]
    assert {write["channel"] for write in writes} == {"payout", "letter"}
    decisions = [
        {"write": write["id"], "hash": write["hash"], "verdict": "approve"}
        for write in writes
    ]
    answer = http.post(
        f"/api/v1/requests/{request['id']}/decisions/",
        {"decisions": decisions},
        format="json",
    )
    assert answer.status_code == 200, answer.content


def open_pages(client: Client) -> None:
    """Each address of the demo that the page links to."""
    client.force_login(User.objects.get(username="olive"))
    for address in re.findall(
        r"<http://127.0.0.1:8000(/(?:compare|runs|demo)/[^>]*)>", TEXT
    ):
        assert client.get(address).status_code == 200, address


def test_a_newcomer_who_follows_the_page_pays_the_right_account_with_signatures(
    demo: Run, folder: Path, client: Client
) -> None:
    before = list(Run.objects.filter(id=demo.id).values())
    find, plan, fork, stopped, resume, compare = (
        block.splitlines() for block in blocks(PAGE, "sh")
    )
    reader = Reader()
    _, blamed, changed = (reader.type(line) for line in find)
    assert json.loads(blamed)["checkpoint"]["alias"] == f"{KEY}:at-6"
    assert json.loads(blamed)["node"] == "review"
    payout = next(
        change
        for change in json.loads(changed)["changes"]
        if change["path"].startswith("payout")
    )
    assert payout["kind"] == "changed"
    assert payout["set_by"] == "review"

    printed = reader.type(plan[0])
    said = next(block for block in blocks(PAGE) if block.startswith("fork from"))
    assert printed.splitlines()[1:] == said.splitlines()[1:]
    assert Run.objects.filter(key=AGAIN).count() == 0

    made, status = (reader.type(line) for line in fork)
    assert "queued" in made
    run = runs.advance(runs.get(AGAIN).id)
    status = reader.type(fork[1])
    assert "paused" in status
    assert "waits for a decision" in status
    assert "$patch:1:0" in status
    assert timeline.head_state(run.id)["scratch"]["payout"]["account"] == OLD
    assert Payment.objects.filter(claim_id=KEY).count() == 1

    sign_as_rita(run)
    runs.advance(run.id)
    assert "stops before update_case" in reader.type(stopped[0])
    assert [
        payment.account
        for payment in Payment.objects.filter(claim_id=KEY).order_by("pk")
    ] == [OLD, NEW]
    assert "ending in 7833" in mail.outbox[-1].body
    reader.type(resume[0])
    assert runs.advance(run.id).status == "completed"

    parted, differs, forks = (json.loads(reader.type(line)) for line in compare)
    assert parted["split"]["a"]["seq"] == 6
    assert "payout.account" in {change["path"] for change in differs["changes"]}
    assert [result["key"] for result in forks["results"]] == [AGAIN]
    open_pages(client)
    assert list(Run.objects.filter(id=demo.id).values()) == before
    assert [list(verify_run(one.id)) for one in (demo, run)] == [[], []]


def test_the_slip_that_the_page_shows_is_refused_as_it_says(
    demo: Run, folder: Path
) -> None:
    (block,) = [block for block in blocks(PAGE, "console") if "wrong.json" in block]
    typed, said = block.splitlines()
    with pytest.raises(CommandError) as refused:
        Reader().type(typed.removeprefix("$ "))
    assert f"CommandError: {refused.value}" == said
    assert os.listdir(folder)


def test_each_command_in_the_table_exists() -> None:
    for name in re.findall(r"`(\w+_runs?) ", TEXT):
        with pytest.raises(SystemExit):
            call_command(name, "--help")
