"""The client's types and calls are those of the schema."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.house.client_source import CLIENT, modules, schema_of_the_api
from tests.support.api_people import Client, olive

__all__ = ["olive"]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = """
import asyncio
from datetime import timedelta

from orchestrator.client import (
    Approval,
    AsyncClient,
    Client,
    DecisionSet,
    Item,
    KeyConflict,
    calls,
)


def pay(client: Client) -> str | None:
    approval = client.ask(
        title="Pay", items=[{"id": "a", "value": 1}], reviewers=["group:reviewer"],
        deadline=timedelta(days=1), on_deadline="fail",
    )
    item: Item = client.wait(approval.id, timeout=60).item("a")
    run = client.runs.start(graph="claim", input={"id": 1}, key="K")
    reveal_type(run["status"])
    for line in client.runs.events(run["id"]):
        print(line["seq"])
    for asked in client.requests.list(waiting="me"):
        decisions = DecisionSet(client.requests.get(asked["id"]))
        print(client.requests.sign(decisions)["lines"])
    for row in client.rows(calls.runs_list(graph="claim")):
        reveal_type(row["key"])
    plan = client.send(calls.checkpoints_plan_create("K:step-1", {"how": "fork"}))
    reveal_type(plan)
    return item.effect


async def read(client: AsyncClient) -> Approval:
    async for line in client.runs.events("K"):
        reveal_type(line)
    return await client.wait("K")


try:
    with Client("https://runs.example.org", token="cst_1") as client:
        pay(client)
    asyncio.run(read(AsyncClient("https://runs.example.org", token="cst_1")))
except KeyConflict as error:
    print(error.code, error.facts)
"""
WRONG = """
from orchestrator.client import Client, calls

client = Client("https://runs.example.org", token="cst_1")
client.ask(title="Pay", items=[])
client.ask(title="Pay", items=[], reviewers=[], on_deadline="approve")
client.send(calls.runs_cancel_create("K", {"why": "late"}))
client.runs.get("K")["nothing"]
"""


def test_types_and_calls_are_those_of_the_schema() -> None:
    outdated = {
        name
        for name, text in modules(schema_of_the_api()).items()
        if (CLIENT / name).read_text() != text
    }
    assert outdated == set(), "run `python -m tests.house.client_source`"


def test_the_schema_that_they_are_made_of_is_the_one_that_the_api_answers(
    olive: Client,
) -> None:
    answered = olive.get("schema/").json()
    assert modules(answered) == modules(schema_of_the_api())


def test_whoever_installs_the_package_has_its_types() -> None:
    for floor in ("orchestrator", "approvals", "checkpoints"):
        assert (ROOT / floor / "py.typed").exists()


def _checked(program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Check the types of a program with the rules of another project."""
    (folder / "program.py").write_text(program)
    rules = f"[mypy]\nstrict = true\nmypy_path = {ROOT}\nfollow_imports = silent\n"
    (folder / "mypy.ini").write_text(rules)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "program.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_program_that_uses_the_client_passes_strict_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    checked = _checked(EXAMPLE, tmp_path)
    assert checked.returncode == 0, checked.stdout
    for revealed in (
        "Literal['queued']",
        'Revealed type is "str"',
        "PlanOut",
        "Event",
    ):
        assert revealed in checked.stdout, checked.stdout


def test_a_program_that_misuses_the_client_does_not(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    checked = _checked(WRONG, tmp_path)
    lines: list[Any] = [
        int(line.split(":")[1])
        for line in checked.stdout.splitlines()
        if ": error: " in line
    ]
    assert set(lines) == {5, 6, 7, 8}, checked.stdout
