"""Every column that can hold a value is in the list of what is erased, or in that of
what holds none.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db.models import BinaryField, CharField, Field, JSONField, TextField

from approvals.models import Door, Webhook
from checkpoints.core.eraser import WholeEraser
from checkpoints.core.tombstone import TEXT, is_tombstone
from checkpoints.erasure import PLACES
from checkpoints.erasure.places import KEPT_FACTS, _fact_left
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.execution.replay import OTHER_MEMORY

PAGE = Path(__file__).resolve().parents[3] / "docs" / "erasure.md"
LONG = 200
"""Characters from which a column of names could hold a text."""
OTHERS = (
    "account_",
    "auth_",
    "demo_",
    "django_content_type",
    "socialaccount_",
    "tests_",
)
"""Accounts, and tables of demo and tests: not ours to erase."""


def listed(heading: str) -> set[tuple[str, str]]:
    """(table, column) of the table below a heading."""
    part = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", part, re.MULTILINE)
    return {
        (table, column)
        for table, columns in rows
        for column in re.findall(r"`(\w+)`", columns)
    }


def can_hold_a_value(field: "Field[Any, Any]") -> bool:
    if str(field.column).endswith("seal"):
        return False
    return isinstance(field, BinaryField | JSONField | TextField) or (
        isinstance(field, CharField)
        and (field.max_length or LONG) >= LONG
        and not field.choices
    )


def test_every_column_that_can_hold_a_value_is_listed() -> None:
    erased = listed("What is erased")
    others = listed("What holds no value")
    columns = {
        (model._meta.db_table, str(field.column)): can_hold_a_value(field)
        for model in apps.get_models(include_auto_created=True)
        if not model._meta.db_table.startswith(OTHERS)
        for field in model._meta.concrete_fields
    }
    assert (
        sorted({column for column, holds in columns.items() if holds} - erased - others)
        == []
    )
    assert sorted((erased | others) - columns.keys()) == [], (
        "the page names columns that are not there"
    )
    assert erased & others == set()


def test_every_payload_column_is_erased() -> None:
    erased = listed("What is erased")
    # Secrets of webhooks and doors are encrypted too, and are no values of a run.
    for model in set(apps.get_models()) - {Door, Webhook}:
        names = (
            ("change", "snapshot")
            if model is Checkpoint
            else getattr(model, "PAYLOADS", ())
        )
        for name in names:
            assert (model._meta.db_table, name) in erased


def test_every_sealed_table_with_values_has_a_place() -> None:
    placed = {place.model._meta.db_table for place in PLACES} | {
        Run._meta.db_table,
        Checkpoint._meta.db_table,
    }
    sealed = {
        model._meta.db_table
        for model in apps.get_models()
        if hasattr(model, "seal") and getattr(model, "PAYLOADS", ())
    }
    # Drafts are deleted, and bodies of messages; the others belong to no run, and are swept.
    elsewhere = {
        "approvals_draft",
        "approvals_door",
        "approvals_doormessage",
        "approvals_webhook",
        "orchestrator_bulkfork",
        "checkpoints_erasurerecord",
    }
    assert sealed - placed == elsewhere


@pytest.mark.parametrize("why", ["no_record", "other_input", OTHER_MEMORY])
def test_why_a_replay_went_another_way_stays_for_it_is_a_code(why: str) -> None:
    assert _fact_left("why", why, WholeEraser("1")) == why
    assert _fact_left("why", "Ada is late", WholeEraser("1")) == TEXT


@pytest.mark.django_db
def test_a_fact_that_nobody_knows_is_erased() -> None:
    from checkpoints.sealing import sealed_columns
    from tests.support.rows import a_run, an_event

    line = an_event(a_run(), 1, type="task_failed", payload={"new": "Ada", "code": "x"})
    place = next(place for place in PLACES if place.model is RunEvent)
    left = place.left(line, WholeEraser("1"))
    assert sealed_columns.unpack_json(left["payload"]) == {"new": TEXT, "code": "x"}
    assert "code" in KEPT_FACTS
    assert read_value(line, "payload") == {"new": "Ada", "code": "x"}
    assert not is_tombstone("Ada")
