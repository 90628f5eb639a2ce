"""docs/integrity.md has the exact bytes and hashes: they are computed here, by our code
and without it.
"""

import ast
import hashlib
import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any
from uuid import UUID

import pytest
from pydantic import create_model

from orchestrator.engine.values import canonical, ops, values
from tests.house.commands import ROOT
from tests.support import vectors

PAGE = (ROOT / "docs" / "integrity.md").read_text()
BLOCKS = [
    [json.loads(line) for line in block.splitlines()]
    for block in re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
]
CHECKPOINTS, LINES = BLOCKS
FORMS = re.findall(r"^\| `([^|]+)` \| `([^|]+)` \|$", PAGE, re.MULTILINE)
TYPED = re.findall(r"^\| `([^|]+)` \| `([^|]+)` \| `([^|]+)` \|$", PAGE, re.MULTILINE)
NAMES: dict[str, Any] = {
    "date": date,
    "datetime": datetime,
    "Decimal": Decimal,
    "UUID": UUID,
    "UTC": UTC,
}


@pytest.mark.parametrize(("literal", "bytes_"), FORMS)
def test_a_value_has_the_bytes_that_the_docs_show(literal: str, bytes_: str) -> None:
    assert canonical.dumps(ast.literal_eval(literal)) == bytes_.encode()


@pytest.mark.parametrize(("kind", "expression", "bytes_"), TYPED)
def test_a_typed_value_has_the_bytes_that_the_docs_show(
    kind: str, expression: str, bytes_: str
) -> None:
    model = create_model("Typed", value=(eval(kind, dict(NAMES)), ...))
    dumped = values.round_trip(model(value=eval(expression, dict(NAMES))), sets=True)
    assert canonical.encode(dumped["value"]) == bytes_.encode()


def test_the_tables_are_read() -> None:
    assert len(FORMS) == 7
    assert len(TYPED) == 5
    assert len(CHECKPOINTS) == 3
    assert len(LINES) == 2


def test_a_run_of_two_steps_has_the_hashes_that_the_docs_show() -> None:
    assert vectors.checkpoints() == CHECKPOINTS


def test_two_lines_of_a_log_have_the_hashes_that_the_docs_show() -> None:
    assert vectors.events() == LINES


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def test_who_has_only_the_docs_comes_to_the_same_hashes_of_checkpoints() -> None:
    parent = ""
    for row in CHECKPOINTS:
        assert row["header"][0] == parent
        assert _sha256(row["change"].encode()) == row["change_hash"]
        assert (
            _sha256(_json([*row["header"], row["change_hash"]])) == row["content_hash"]
        )
        parent = row["content_hash"]


def test_who_has_only_the_docs_comes_to_the_same_hashes_of_lines() -> None:
    before = ""
    for line in LINES:
        payload = line["payload"].encode()
        assert line["fields"][0] == before
        assert (
            _sha256(_json([*line["fields"], [len(payload)]]) + payload) == line["hash"]
        )
        before = line["hash"]


def test_the_changes_come_to_the_state_of_the_last_checkpoint() -> None:
    every = [op for row in CHECKPOINTS for op in json.loads(row["change"])]
    state = reduce(ops.apply, every, {})
    assert state["scratch"] == {"notes": ["Grüße", "second"]}
