"""What floor 2 keeps of a run's values, and what is left of it. Added to `checkpoints.erasure` when it is ready."""

from collections.abc import Mapping
from typing import Any

from approvals.models import ApprovalRequest, Decision, Draft, Receipt
from checkpoints.core.eraser import Eraser
from checkpoints.erasure.places import Place, Values, column_left, payload_left
from checkpoints.erasure.sweeps import Sweep
from checkpoints.models import ErasureRecord, Run


def _of_request(row: ApprovalRequest, eraser: Eraser) -> Values:
    values = payload_left(row, "title", eraser.texts) | payload_left(row, "facts", eraser.texts)
    return values | payload_left(row, "why", eraser.error)


def _of_decision(row: Decision, eraser: Eraser) -> Values:
    values: Values = {}
    for column in ("old_value", "proposed_value", "final_value"):
        values |= payload_left(row, column, lambda value: eraser.value(row.channel, value))
    return values | payload_left(row, "reason", eraser.texts)


def _of_receipt(row: Receipt, eraser: Eraser) -> Values:
    return column_left(row, "lines", [_line_left(line, eraser) for line in row.lines])


def _line_left(line: Mapping[str, Any], eraser: Eraser) -> dict[str, Any]:
    return {**line, "label": eraser.text(line["label"])} if "label" in line else dict(line)


def _erase_drafts(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """Nobody signs in a run that has ended, so what was chosen and not signed goes."""
    Draft.objects.filter(run=run.id).delete()


PLACES = [
    Place(ApprovalRequest, lambda run: ApprovalRequest.objects.filter(run=run), _of_request),
    Place(Decision, lambda run: Decision.objects.filter(run=run), _of_decision),
    Place(Receipt, lambda run: Receipt.objects.filter(run=run), _of_receipt),
]
SWEEPS = [Sweep("drafts", lambda run: Draft.objects.filter(run=run.id).count(), _erase_drafts)]
