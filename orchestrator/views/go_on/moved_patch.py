"""A patch that was typed at one checkpoint, taken along to another: what of it applies
there too, and what falls away. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpoints.core.diff import REMOVED, ValueDifference, written
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.travel.patch import PARTITIONS, apply, patched
from orchestrator.travel.departure import Departure, State
from orchestrator.views.go_on.patch_form import (
    PatchForm,
    Problem,
    form_of_change,
    form_of_operations,
)
from orchestrator.views.go_on.state_changes import changed_places, operation_of
from orchestrator.views.go_on.value_texts import plain_text

SHORT = 200
"""The most characters of a value that are shown."""


@dataclass(slots=True)
class MovedPatch:
    """The form at the other checkpoint, and what fell away, each with the reason."""

    form: PatchForm
    fallen: list[Problem] = field(default_factory=list)


def moved_patch(
    old: Departure,
    patch: Mapping[str, Any],
    point: Departure,
    *,
    mode: str,
    leave_out: str = "",
) -> MovedPatch:
    """Return the valid patch of one point laid over another, or over the same one
    without the change at the path `leave_out`; in the same editor, unless it changes a
    channel that this one folds.
    """
    after = {part: dict(point.going_on[part]) for part in PARTITIONS}
    folded = {channel.path for channel in form_of_change(point, after).folded}
    fallen: list[Problem] = []
    applied: list[dict[str, Any]] = []
    changes_folded = False
    for part, place in changed_places(old.going_on, patched(old.going_on, patch)):
        path = f"{part}.{written(place.path)}"
        if leave_out == path:
            continue
        # Applied one by one, so that one which does not fit does not void the others.
        operation = operation_of(place)
        reason = _apply_operation(point, after, part, place.path, operation)
        if reason:
            fallen.append(Problem(path, reason, _short_value(place)))
            continue
        applied.append({**operation, "path": f"/{part}{operation['path']}"})
        if f"{part}.{place.path[0]}" in folded:
            changes_folded = True

    # A folded channel has no control: only operations can change it.
    if mode == "ops" or changes_folded:
        return MovedPatch(form_of_operations(point, after, applied), fallen)
    return MovedPatch(form_of_change(point, after, mode=mode), fallen)


def _short_value(place: ValueDifference) -> str:
    if place.kind == REMOVED:
        return ""
    text = plain_text(place.after)
    if len(text) <= SHORT:
        return text
    return f"{text[:SHORT]}…"


def _apply_operation(
    point: Departure,
    after: State,
    part: str,
    path: tuple[str | int, ...],
    operation: Any,
) -> str:
    """Apply an operation to the state `after`. Return an empty text, or the reason why
    it does not apply at the point.
    """
    channel = point.graph.channels.get(str(path[0]))
    if channel is None or channel.partition != part:
        return f"Version {point.graph.version} has no such channel."
    try:
        changed = apply(after[part], [operation])
    except InvalidValue:
        return f"It is not there at checkpoint {point.checkpoint.seq}."
    if changed == after[part]:
        return f"It is so already at checkpoint {point.checkpoint.seq}."
    after[part] = changed
    return ""
