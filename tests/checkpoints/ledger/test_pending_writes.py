"""What the hash of a pending write covers."""

from typing import Any
from uuid import UUID

import pytest

from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.models.fields import task_columns
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator.engine import Task
from tests.support.rows import START as AT

pytestmark = pytest.mark.django_db(transaction=True)


def _row(
    value: str = "proposed", *, base: str = "old", bound: bool = True
) -> PendingWrite:
    return pending_writes.staged(
        UUID(int=1),
        task_columns(UUID(int=2), 1, Task("propose", 1, 0)),
        position=0,
        channel="letter",
        label="the letter",
        value=value,
        base=pending_writes.StoredBase(base, {}, bound),
        shown={"title": "Pay it?"},
        policy_hash="a" * 64,
        superstep=1,
        at=AT,
        protection=PLAIN,
    )


@pytest.mark.parametrize(
    "moved",
    [
        {"run_id": UUID(int=3)},
        {"line": 2},
        {"node": "other"},
        {"visit": 2},
        {"index": 1},
        {"position": 1},
        {"revision": 2},
        {"channel": "total"},
        {"value": pack_json("other")},
        {"base": pending_writes.StoredBase("new", {}, bound=True).to_bytes()},
        {"base": pending_writes.StoredBase("old", {"total": 1}, bound=True).to_bytes()},
        {"policy_hash": "b" * 64},
        {"shown": pack_json({"title": "Pay nothing?"})},
    ],
    ids=lambda moved: " ".join(moved),
)
def test_the_hash_that_is_signed_covers_every_part_of_what_is_decided(
    moved: dict[str, Any],
) -> None:
    row = _row()
    for name, value in moved.items():
        setattr(row, name, value)
    assert pending_writes.hash_of(row, PLAIN) != row.hash


def test_a_base_that_does_not_bind_is_no_part_of_what_is_signed() -> None:
    assert _row(base="old", bound=False).hash == _row(base="new", bound=False).hash
    assert _row(base="old").hash != _row(base="new").hash
