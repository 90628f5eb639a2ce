"""A patch that was typed at one checkpoint, taken along to another: what of it applies there too, and what falls away.
Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpoints.core.diff import REMOVED, written
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.patch import PARTITIONS, apply, patched
from orchestrator.runs.departure import Departure, State
from orchestrator.views.go_on.patch_form import PatchForm, Problem, form_of_change, form_of_operations
from orchestrator.views.go_on.state_changes import changed_places, operation_of
from orchestrator.views.go_on.value_texts import plain_text

SHORT = 200
"""Characters of a value that are shown."""


@dataclass(slots=True)
class MovedPatch:
    """The form at the other checkpoint, and what fell away, each with the reason."""

    form: PatchForm
    fallen: list[Problem] = field(default_factory=list)


def moved_patch(
    old: Departure, patch: Mapping[str, Any], point: Departure, *, mode: str, leave_out: str = ""
) -> MovedPatch:
    """The sound patch of one point laid over another, or over the same without the value of one path; in the same
    editor, unless it changes what that one folds.
    """
    after = {part: dict(point.going_on[part]) for part in PARTITIONS}
    fallen: list[Problem] = []
    applied: list[dict[str, Any]] = []
    large = False
    folded = {one.path for one in form_of_change(point, after).folded}
    for part, place in changed_places(old.going_on, patched(old.going_on, patch)):
        path = f"{part}.{written(place.path)}"
        if leave_out == path:
            continue
        operation = operation_of(place)
        why = _why_not(point, after, part, place.path, operation)
        if why:
            value = "" if place.kind == REMOVED else plain_text(place.after)[:SHORT]
            fallen.append(Problem(path, why, value))
        else:
            applied.append({**operation, "path": f"/{part}{operation['path']}"})
            large = large or f"{part}.{place.path[0]}" in folded
    if mode == "ops" or large:
        return MovedPatch(form_of_operations(point, after, applied), fallen)
    return MovedPatch(form_of_change(point, after, mode=mode), fallen)


def _why_not(point: Departure, after: State, part: str, path: tuple[str | int, ...], operation: Any) -> str:
    """Why an operation does not apply at a point, empty where it did: it is done on `after` then."""
    channel = point.graph.channels.get(str(path[0]))
    if channel is None or channel.partition != part:
        return f"Version {point.graph.version} has no such channel."
    try:
        done = apply(after[part], [operation])
    except InvalidValue:
        return f"It is not there at checkpoint {point.checkpoint.seq}."
    if done == after[part]:
        return f"It is so already at checkpoint {point.checkpoint.seq}."
    after[part] = done
    return ""
