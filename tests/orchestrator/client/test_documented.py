"""docs/client.md: its program runs against a server, its command and the program in
TypeScript too.
"""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoints.models import Run
from orchestrator import runs
from tests.support import claims, node
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "client.md").read_text()
APPROVE = {"verdict": "approve"}


@pytest.fixture
def site(
    live_server: Any,
    asked_of_payers: None,
    token: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    monkeypatch.setenv("COUNTERSIGN_URL", live_server.url)
    monkeypatch.setenv("COUNTERSIGN_TOKEN", token)
    with claims.registered(claims.graph_of(name="claim")):
        yield live_server.url


def when_asked(key: str, act: Callable[[str], Any]) -> Callable[[], None]:
    """Do something with a run as soon as it is there."""

    def wait() -> None:
        while not (run := Run.objects.filter(key=key).first()):
            time.sleep(0.05)
        act(str(run.id))

    return wait


def test_the_program_of_the_page_runs(
    site: str, people: People, sign: Any, beside: Any
) -> None:
    people.starter.groups.add(*people.reviewer.groups.all())
    program = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    beside(when_asked("INVOICES-2026-48", lambda run: sign(run, APPROVE, APPROVE)))
    beside(when_asked("CLM-1", lambda run: runs.advance(run)))
    exec(compile(program, "docs/client.md", "exec"), {"__name__": "docs"})
    run = Run.objects.get(key="CLM-1")
    assert runs.advance(run.id).status == "completed"


def test_the_program_in_typescript_runs(
    streaming_site: str, token: str, sign: Any, beside: Any
) -> None:
    beside(when_asked("LETTER-7", lambda run: sign(run, APPROVE)))
    environment = {"COUNTERSIGN_URL": streaming_site, "COUNTERSIGN_TOKEN": token}
    items = node.output(node.program("client.js"), **environment)
    assert items == [{"id": "letter", "verdict": "approved", "value": "Dear Ada"}]


def test_the_types_are_made_by_the_command_of_the_page() -> None:
    command = "openapi-typescript schema.json --default-non-nullable false"
    assert f"npx {command} --output countersign.d.ts" in PAGE
    assert (
        f"{command} --output countersign.d.ts"
        in (node.EXAMPLES / "package.json").read_text()
    )
