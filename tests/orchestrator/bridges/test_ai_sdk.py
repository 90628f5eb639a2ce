"""A conversation of the AI SDK that waits for people, in processes that come and go, and
the program of the page that shows how.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoints.models import Run
from orchestrator import asking, runs
from tests.orchestrator.client.conftest import asked_of_payers, sign, token
from tests.support import node

__all__ = ["asked_of_payers", "sign", "token"]

pytestmark = pytest.mark.django_db(transaction=True)
PROPOSED = {"to": "ACME", "amount": "100.00"}
GoOn = Callable[..., Any]


@pytest.fixture
def go_on(tmp_path: Path, live_server: Any, asked_of_payers: None, token: str) -> GoOn:
    """Begin the conversation, or go on with it, in a process of its own."""
    program = node.program("conversation.js")

    def process(
        *, forged: str = "", losses: int = 0, chat: str = "messages", lost: str = ""
    ) -> Any:
        file = str(tmp_path / f"{chat}.json")
        words = (live_server.url, token, file, forged, str(losses), lost)
        return node.output(program, *words)

    return process


def asked() -> str:
    """The id of the only approval that was asked for."""
    run = Run.objects.get()
    assert run.key.startswith("ai-sdk-")
    return str(run.id)


def outcome() -> str | None:
    """Return what was reported of it."""
    [item] = asking.approval_of(Run.objects.get()).items
    return item.outcome and item.outcome.result


def test_a_tool_runs_once_people_have_approved_it(go_on: GoOn, sign: Any) -> None:
    begun = go_on()
    assert begun == {"waits": True, "paid": [], "heard": ""}
    runs.advance(asked())
    assert go_on()["waits"] is True
    sign(asked(), {"verdict": "approve"})
    ended = go_on()
    assert ended["paid"] == [PROPOSED]
    assert "paid 100.00" in ended["heard"]
    assert outcome() == "done"
    assert go_on() == {"waits": True, "paid": [], "heard": ""}
    assert Run.objects.count() == 1


def test_it_runs_with_the_value_that_was_signed(go_on: GoOn, sign: Any) -> None:
    go_on()
    edited = {"to": "ACME", "amount": "90.00"}
    sign(asked(), {"verdict": "edit", "value": edited})
    ended = go_on()
    assert ended["paid"] == [edited]
    assert "paid 90.00" in ended["heard"]


def test_a_rejection_runs_nothing_and_the_model_hears_why(
    go_on: GoOn, sign: Any
) -> None:
    go_on()
    sign(asked(), {"verdict": "reject", "reason": "paid last week"})
    ended = go_on()
    assert ended["paid"] == []
    assert "execution-denied" in ended["heard"]
    assert "paid last week" in ended["heard"]


def test_an_answer_that_nobody_signed_runs_nothing(go_on: GoOn) -> None:
    go_on()
    runs.advance(asked())
    ended = go_on(forged="forged")
    assert ended["paid"] == []
    assert "nobody approved pay" in ended["heard"]


def test_answers_that_were_lost_ask_once(go_on: GoOn) -> None:
    assert go_on(losses=2)["waits"] is True
    assert asked()


def test_two_conversations_whose_model_counts_its_calls_share_no_signature(
    go_on: GoOn, sign: Any
) -> None:
    go_on()
    sign(asked(), {"verdict": "approve"})
    assert go_on()["paid"] == [PROPOSED]
    assert go_on(chat="another") == {"waits": True, "paid": [], "heard": ""}
    assert Run.objects.count() == 2


def test_a_tool_that_throws_is_reported_as_unknown(go_on: GoOn, sign: Any) -> None:
    go_on()
    sign(asked(), {"verdict": "edit", "value": {"to": "nobody", "amount": "1.00"}})
    assert "no such account" in go_on()["heard"]
    assert outcome() == "unknown"


def test_a_call_that_was_done_is_not_made_again(
    go_on: GoOn, sign: Any, tmp_path: Path
) -> None:
    go_on()
    sign(asked(), {"verdict": "approve"})
    messages = (tmp_path / "messages.json").read_text()
    assert go_on()["paid"] == [PROPOSED]
    (tmp_path / "messages.json").write_text(messages)
    again = go_on()
    assert again["paid"] == []
    assert "pay was done before" in again["heard"]
    assert outcome() == "done"


def test_a_report_that_is_lost_breaks_nothing(go_on: GoOn, sign: Any) -> None:
    go_on()
    sign(asked(), {"verdict": "approve"})
    ended = go_on(chat="messages", lost="outcomes")
    assert ended["paid"] == [PROPOSED]
    assert outcome() is None


def test_the_bridge_is_short() -> None:
    source = node.EXAMPLES / "countersign-ai-sdk.ts"
    lines = source.read_text().splitlines()
    assert len(lines) <= 110
    assert max(map(len, lines)) <= 100
