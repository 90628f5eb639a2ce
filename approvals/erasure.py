"""Declares where floor 2 stores values of a run, and what an erasure leaves of them.
Added to `checkpoints.erasure` at start-up.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.db.models import QuerySet

from approvals.doors.messages import ERASED, close_message
from approvals.models import (
    ApprovalRequest,
    Decision,
    DoorMessage,
    Draft,
    MessageStatus,
    Receipt,
    RequestComment,
)
from checkpoints.core.eraser import Eraser
from checkpoints.erasure.places import Place, Values, column_left, payload_left
from checkpoints.erasure.sweeps import Sweep
from checkpoints.models import ErasureRecord, Run


def _erased_request(row: ApprovalRequest, eraser: Eraser) -> Values:
    values: Values = {}
    values |= payload_left(row, "title", eraser.texts)
    values |= payload_left(row, "facts", eraser.texts)
    # It may be the error of the gate's check, which quotes values in forms that no
    # search finds.
    values |= payload_left(row, "why", eraser.error)
    return values


def _erased_decision(row: Decision, eraser: Eraser) -> Values:
    erase_value = partial(eraser.value, row.channel)
    values: Values = {}
    for column in ("old_value", "proposed_value", "final_value"):
        values |= payload_left(row, column, erase_value)
    values |= payload_left(row, "reason", eraser.texts)
    return values


def _erased_receipt(row: Receipt, eraser: Eraser) -> Values:
    lines = [_erased_line(line, eraser) for line in row.lines]
    return column_left(row, "lines", lines)


def _erased_line(line: Mapping[str, Any], eraser: Eraser) -> dict[str, Any]:
    erased = dict(line)
    # The label is the only text of the run in a line of a receipt.
    if "label" in line:
        erased["label"] = eraser.text(line["label"])
    return erased


def _erased_comment(row: RequestComment, eraser: Eraser) -> Values:
    return payload_left(row, "text", eraser.texts)


def _drafts(run: Run) -> "QuerySet[Draft]":
    return Draft.objects.filter(run=run.id)


def _count_drafts(run: Run) -> int:
    return _drafts(run).count()


def _erase_drafts(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """Delete the drafts of a run: it has ended, so nobody can sign in it."""
    _drafts(run).delete()


def _messages(run: Run) -> "QuerySet[DoorMessage]":
    rows = DoorMessage.objects.filter(key=run.key, graph=run.graph)
    return rows.exclude(body=b"")


def _count_messages(run: Run) -> int:
    return _messages(run).count()


def _erase_messages(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """Drop the bodies of messages that came at a door for a run and were not signed."""
    for message in _messages(run):
        close_message(message, MessageStatus.REFUSED, ERASED)


PLACES = [
    Place(ApprovalRequest, _erased_request),
    Place(Decision, _erased_decision),
    Place(Receipt, _erased_receipt),
    Place(RequestComment, _erased_comment),
]
SWEEPS = [
    Sweep(
        "drafts",
        count=_count_drafts,
        erase=_erase_drafts,
    ),
    Sweep(
        "messages at doors",
        count=_count_messages,
        erase=_erase_messages,
        # A message may come in while the erasure goes on.
        again=True,
    ),
]
