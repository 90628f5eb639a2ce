"""A patch that was typed at one checkpoint, taken along to another: what of it applies there too, and what falls away.
Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpoints.core.diff import ADDED, REMOVED, Difference, differences, written
from checkpoints.core.visible_json import json_text
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.patch import PARTITIONS, apply, patched
from orchestrator.runs.departure import Departure, State
from orchestrator.views.go_on.patch_form import PatchForm, Problem, form_of_change, form_of_operations

MOST = 200
"""Changes of a patch that are moved one by one; of a larger one the channels as wholes."""
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
    kept: list[dict[str, Any]] = []
    for part, one in _changes(old.going_on, patched(old.going_on, patch)):
        if leave_out == f"{part}.{written(one.path)}":
            continue
        operation = _operation(one)
        why = _why_not(point, after, part, one.path, operation)
        if why:
            value = "" if one.kind == REMOVED else json_text(one.after)[:SHORT]
            fallen.append(Problem(f"{part}.{written(one.path)}", why, value))
        else:
            kept.append({**operation, "path": f"/{part}{operation['path']}"})
    form = form_of_change(point, after)
    folded = {one.path for one in form.folded}
    large = any(".".join(operation["path"].split("/")[1:3]) in folded for operation in kept)
    if mode == "ops" or large:
        return MovedPatch(form_of_operations(point, kept), fallen)
    form.mode = mode
    return MovedPatch(form, fallen)


def _changes(before: State, after: State) -> Iterator[tuple[str, Difference]]:
    found = [(part, one) for part in PARTITIONS for one in differences(before[part], after[part])]
    if len(found) > MOST:
        names = {(part, str(one.path[0])): one for part, one in found}
        found = [(part, _whole(before[part], after[part], name)) for part, name in names]
    # The last item of a list goes first, so that the others keep their places.
    yield from [pair for pair in found if pair[1].kind != REMOVED]
    yield from [pair for pair in reversed(found) if pair[1].kind == REMOVED]


def _whole(before: dict[str, Any], after: dict[str, Any], name: str) -> Difference:
    kind = REMOVED if name not in after else ADDED
    return Difference((name,), kind, before.get(name), after.get(name))


def _operation(one: Difference) -> dict[str, Any]:
    """A difference as an operation on its partition (RFC 6902). What was added to a list comes to its end."""
    keys = [str(key).replace("~", "~0").replace("/", "~1") for key in one.path]
    if one.kind == REMOVED:
        return {"op": "remove", "path": "/" + "/".join(keys)}
    if one.kind == ADDED and isinstance(one.path[-1], int):
        keys[-1] = "-"
    return {"op": "add" if one.kind == ADDED else "replace", "path": "/" + "/".join(keys), "value": one.after}


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
