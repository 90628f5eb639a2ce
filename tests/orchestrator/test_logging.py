"""What a node says to `ctx.log`, and what anybody else writes to the log, holds no
secret of the settings.
"""

import base64
import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
import structlog

from orchestrator.engine import END, START
from orchestrator.logging import configure, masked_logger
from tests.house.commands import PRODUCTION, manage
from tests.support.small_graphs import advanced, graph

SECRET = "t0ken/of+the bank"


class Shown:
    def __repr__(self) -> str:
        return f"Shown({SECRET})"


def _raise(log: Any) -> None:
    try:
        raise ConnectionError(f"refused {SECRET}")
    except ConnectionError:
        log.exception("refused")


def _cause(log: Any) -> None:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ConnectionError("refused") from error
    except ConnectionError:
        log.exception("refused")


SAYS: dict[str, Callable[[Any], None]] = {
    "event": lambda log: log.info(SECRET),
    "f-string": lambda log: log.warning(f"with {SECRET}."),
    "argument": lambda log: log.info("with %s", SECRET),
    "value": lambda log: log.info("x", token=SECRET),
    "nested value": lambda log: log.info("x", request={"headers": [("token", SECRET)]}),
    "key": lambda log: log.info("x", request={SECRET: 1}),
    "name": lambda log: log.info("x", **{SECRET: 1}),
    "bytes": lambda log: log.info("x", body=SECRET.encode()),
    "repr": lambda log: log.info("x", client=Shown()),
    "exception as a value": lambda log: log.info("x", error=ValueError(SECRET)),
    "traceback": _raise,
    "cause in a traceback": _cause,
    "base64": lambda log: log.info(
        "x", header="Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
    ),
    "urlencoded": lambda log: log.info(
        "x", url=f"https://bank.example.org/?token={quote_plus(SECRET)}"
    ),
    "bound": lambda log: log.bind(token=SECRET).info("x"),
    "bound to the context": lambda log: _bound_to_context(log),
}
CLEAR = (
    SECRET,
    quote_plus(SECRET),
    base64.b64encode(f"me:{SECRET}".encode()).decode()[6:-4],
)


def _bound_to_context(log: Any) -> None:
    with structlog.contextvars.bound_contextvars(token=SECRET):
        log.info("x")


@pytest.fixture(autouse=True)
def secrets(configure_secrets: None) -> None:
    """The secret that everybody knows here."""


@pytest.fixture
def configure_secrets(configure: Any) -> None:
    configure(SECRETS={"bank_token": SECRET})


@pytest.fixture(params=[True, False], ids=["json", "console"])
def lines(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """Yield what is written to the log by the project's own settings."""
    written = io.StringIO()
    settings = configure(as_json=request.param, level="DEBUG")["formatters"]["lines"]
    handler = logging.StreamHandler(written)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=settings["foreign_pre_chain"],
            processors=settings["processors"],
        )
    )
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel("DEBUG")
    yield written
    root.removeHandler(handler)
    root.setLevel(level)


def clear(text: str) -> list[str]:
    return [form for form in CLEAR if form in text]


@pytest.mark.parametrize("form", SAYS)
def test_what_a_node_says_to_its_log_is_masked(form: str, lines: io.StringIO) -> None:
    SAYS[form](masked_logger("countersign.node", run="CLM-1"))
    assert lines.getvalue()
    assert clear(lines.getvalue()) == []
    assert "•••" in lines.getvalue() or "\\u2022" in lines.getvalue()


@pytest.mark.parametrize("form", SAYS)
def test_it_is_masked_in_a_project_that_configures_structlog_itself(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[Any] = []

    def keep(logger: Any, method: str, event: Any) -> Any:
        messages.append(repr(event))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep], cache_logger_on_first_use=False)
    try:
        SAYS[form](masked_logger("countersign.node", run="CLM-1"))
    finally:
        structlog.configure(**before)
    assert messages
    assert clear("".join(messages)) == []


@pytest.mark.parametrize(
    "form",
    [
        form
        for form in SAYS
        if form
        not in (
            "name",
            "bound",
            "value",
            "nested value",
            "key",
            "bytes",
            "repr",
            "exception as a value",
            "base64",
            "urlencoded",
        )
    ],
)
def test_what_libraries_write_to_the_log_is_masked(
    form: str, lines: io.StringIO
) -> None:
    SAYS[form](logging.getLogger("a.library"))
    assert lines.getvalue()
    assert clear(lines.getvalue()) == []


@pytest.mark.parametrize("form", SAYS)
def test_what_our_own_code_writes_to_the_log_is_masked(
    form: str, lines: io.StringIO
) -> None:
    SAYS[form](structlog.get_logger("orchestrator.somewhere"))
    assert lines.getvalue()
    assert clear(lines.getvalue()) == []


@pytest.mark.django_db(transaction=True)
def test_the_log_of_a_running_node_is_masked_and_names_run_and_task(
    lines: io.StringIO,
) -> None:
    flow = graph("talker")

    @flow.node("talk")
    def talk(state: Any, ctx: Any) -> None:
        ctx.log.info("called", token=ctx.secrets["bank_token"])

    flow.edge(START, "talk")
    flow.edge("talk", END)
    run = advanced(flow)
    (line,) = [line for line in lines.getvalue().splitlines() if "called" in line]
    assert clear(line) == []
    assert run.key in line
    assert "talk:1:0" in line


def test_a_line_stays_an_object_of_json_whatever_a_secret_is(tmp_path: Path) -> None:
    code = "import logging; logging.getLogger('some.place').warning('paid \"%s\"', '\",\"')"
    environment = {
        "COUNTERSIGN_DATA_DIR": tmp_path,
        "COUNTERSIGN_SECRETS": json.dumps({"odd": '","'}),
        **PRODUCTION,
    }
    done = manage("shell", "-v0", "-c", code, **environment)
    line = json.loads(
        next(line for line in done.stderr.splitlines() if "some.place" in line)
    )
    assert line["event"] == 'paid "•••"'
