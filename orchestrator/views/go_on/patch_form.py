"""The patch as it is typed: a form from the channels' types, the state as JSON, or operations. Pure.

Whichever way it is typed, it becomes what the verbs take: {partition: operations or merge patch}. Large values are not
sent to the browser, and are not touched by what comes back from it.
"""

import json
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from approvals.forms import controls, reading
from approvals.forms.controls import Control
from checkpoints.core.strict_json import NotStrict, parse_strict
from checkpoints.core.visible_json import escaped, indented
from orchestrator.engine import canonical
from orchestrator.engine.channel import Channel
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.patch import PARTITIONS, patched
from orchestrator.runs.departure import Departure, State

MODES = ("form", "json", "ops")
FOLDED = 8 * 1024
"""Bytes from which a value is changed by its path, under operations."""
LOCKED = {
    "input": "The input is frozen since the run started.",
    "diagnostics": "Diagnostics are written by the engine only.",
}
"""Why a partition cannot be patched."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that stands in the way: where, which rule, what was given; and `mend`, the value that would fit in that
    place, in a list, empty where there is none.
    """

    path: str
    rule: str
    value: str = ""
    mend: tuple[Any, ...] = ()
    channel: str = ""

    @property
    def mended(self) -> str:
        return json.dumps(self.mend[0], ensure_ascii=False) if self.mend else ""


@dataclass(frozen=True, slots=True)
class Folded:
    """A channel whose value is too large to be typed over."""

    path: str
    size: int


@dataclass(slots=True)
class PatchForm:
    """What was typed, or what there is to type over; `patch` is what it comes to. `text` is the JSON that is typed,
    `before` that of the point.
    """

    mode: str = "form"
    drawn: dict[str, Control] = field(default_factory=dict)
    folded: list[Folded] = field(default_factory=list)
    text: str = ""
    before: str = ""
    operations: str = "[]"
    patch: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    @property
    def locked(self) -> dict[str, str]:
        return LOCKED


def fresh_form(point: Departure) -> PatchForm:
    """The form over the state at a point, with nothing changed."""
    return _form_over(point, point.going_on)


def _form_over(point: Departure, state: State) -> PatchForm:
    shown = {part: dict[str, Any]() for part in PARTITIONS}
    before = {part: dict[str, Any]() for part in PARTITIONS}
    form = PatchForm()
    for name, channel in point.graph.channels.items():
        old = point.going_on[channel.partition].get(name, channel.default)
        size = len(canonical.encode(old))
        value = state[channel.partition].get(name, channel.default)
        if size > FOLDED:
            form.folded.append(Folded(f"{channel.partition}.{name}", size))
        else:
            shown[channel.partition][name], before[channel.partition][name] = value, old
            form.drawn[name] = _control(channel, value)
    form.text, form.before = escaped(indented(shown)), escaped(indented(before))
    return form


def _control(channel: Channel, value: Any) -> Control:
    definitions = channel.model.model_json_schema(by_alias=False).get("$defs", {})
    label = controls.humanise(channel.name)
    return controls.root(
        {**channel.schema, "$defs": definitions}, prefix=f"s-{channel.name}", value=value, label=label, optional=True
    )


def posted_form(point: Departure, posted: Mapping[str, str]) -> PatchForm:
    """The form as it was posted."""
    form = fresh_form(point)
    form.text = posted.get("json", form.text)
    form.operations = posted.get("ops", form.operations)
    form.mode = posted["mode"] if posted.get("mode") in MODES else "form"
    readers = {"form": _read_controls, "json": _read_state, "ops": _read_operations}
    readers[form.mode](form, point, posted)
    return form


def _read_controls(form: PatchForm, point: Departure, posted: Mapping[str, str]) -> None:
    for name, control in form.drawn.items():
        if f"d-{name}" not in posted:
            continue
        channel = point.graph.channels[name]
        untouched = _untouched(control)
        sent = {one.name: posted[one.name].replace("\r\n", "\n") for one in control.walk() if one.name in posted}
        if sent == untouched:
            continue  # an object that is not set has fields that nobody filled in
        fresh = _control(channel, point.going_on[channel.partition].get(name, channel.default))
        before, value = reading.read_form(fresh, untouched), reading.read_form(control, posted)
        if wrong := reading.errors(control):
            for one in wrong:
                path = ".".join(filter(None, (channel.partition, name, one.path)))
                form.problems.append(Problem(path, one.error, str(one.value or ""), channel=name))
        elif not _same(value, before):
            _set(form.patch, channel, value)


def _untouched(control: Control) -> dict[str, str]:
    """Return what a browser sends of the form where nobody types into it."""
    sent: dict[str, str] = {}
    for one in control.walk():
        text = _sent_of(one)
        if text is not None:
            sent[one.name] = text
    return sent


def _sent_of(control: Control) -> str | None:
    """Return what a browser sends of one control as it is drawn, None where it sends nothing."""
    if control.switch:
        return controls.NOT_SET if control.value is None else controls.SET
    if control.children:
        return None
    if control.kind == "bool":
        return "true" if control.value else None
    if control.kind == "radio" and control.value is None:
        # No button is chosen, unless one of them says that there is no value.
        return "" if control.nullable else None
    return "" if control.value is None else str(control.value)


def _same(one: Any, other: Any) -> bool:
    if one is reading.ABSENT or other is reading.ABSENT:
        return one is other
    try:
        return canonical.encode(canonical.normalised(one)) == canonical.encode(canonical.normalised(other))
    except InvalidValue:
        return False


def _set(patch: dict[str, Any], channel: Channel, value: Any) -> None:
    """Put a whole value in the place of a channel's; an absent one is its default again."""
    path = f"/{channel.name}"
    operation = {"op": "add", "path": path, "value": value}
    patch.setdefault(channel.partition, []).append(
        {"op": "remove", "path": path} if value is reading.ABSENT else operation
    )


def _read_state(form: PatchForm, point: Departure, posted: Mapping[str, str]) -> None:
    given = _parsed(form, "json", form.text)
    if given is None:
        return
    if not isinstance(given, dict):
        form.problems.append(Problem("json", "A state is an object of partitions: it begins with { and ends with }."))
        return
    folded = {one.path for one in form.folded}
    for part, values in given.items():
        if part not in PARTITIONS or not isinstance(values, dict):
            form.problems.append(Problem(str(part), _why_locked(str(part))))
            continue
        before = point.going_on[part]
        for name in [*values, *(n for n in before if n not in values and f"{part}.{n}" not in folded)]:
            channel = point.graph.channels.get(name)
            if channel is None or channel.partition != part:
                form.problems.append(Problem(f"{part}.{name}", f"{part} has no channel of this name."))
            elif not _same(values.get(name, reading.ABSENT), before.get(name, reading.ABSENT)):
                _set(form.patch, channel, values.get(name, reading.ABSENT))


def _why_locked(part: str) -> str:
    if part in PARTITIONS:
        return "A partition is an object of channels."
    return LOCKED.get(part, f"There is no such partition: a patch may change {' and '.join(PARTITIONS)}.")


def _parsed(form: PatchForm, where: str, text: str) -> Any:
    try:
        return parse_strict(text)
    except NotStrict as error:
        form.problems.append(Problem(where, f"This is no JSON: {error}."))
        return None


def _read_operations(form: PatchForm, point: Departure, posted: Mapping[str, str]) -> None:
    given = _parsed(form, "operations", form.operations) if form.operations.strip() else []
    if isinstance(given, dict):
        for part, change in given.items():
            if part in PARTITIONS:
                form.patch[part] = change
            else:
                form.problems.append(Problem(str(part), _why_locked(str(part))))
    elif isinstance(given, list):
        for number, operation in enumerate(given):
            _add_operation(form, number, operation)
    elif given is not None:
        form.problems.append(Problem("operations", "Write a list of operations, or a merge patch, which is an object."))


def _add_operation(form: PatchForm, number: int, operation: Any) -> None:
    """Sort an operation on the whole state into its partition."""
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        form.problems.append(Problem(f"operations[{number}]", "An operation is an object with op and path."))
        return
    parts = {name: _split(operation[name]) for name in ("path", "from") if isinstance(operation.get(name), str)}
    part = parts["path"][0]
    for one, _ in parts.values():
        if one not in PARTITIONS or one != part:
            rule = _why_locked(one) if one not in PARTITIONS else "An operation stays within one partition."
            form.problems.append(Problem(f"operations[{number}]: /{one}", rule))
            return
    form.patch.setdefault(part, []).append({**operation, **{name: rest for name, (_, rest) in parts.items()}})


def _split(pointer: str) -> tuple[str, str]:
    """The partition that a pointer leads into, and the pointer within it."""
    part, slash, rest = pointer.removeprefix("/").partition("/")
    return part, f"{slash}{rest}"


def mended_form(form: PatchForm, point: Departure, problem: Problem) -> PatchForm:
    """The form as if the value that would fit had been typed. What cannot be read elsewhere stays as it was typed."""
    after = patched(point.going_on, form.patch)
    keys = _keys_of(problem, after)
    _put(after, keys, problem.mend[0])
    found = form_of_change(point, after)
    found.mode = form.mode
    found.operations = escaped(indented(list(_operations(found.patch)))) if form.mode == "ops" else form.operations
    unread = [one for one in form.problems if one.channel in form.drawn and one.channel != problem.channel]
    found.drawn |= {one.channel: form.drawn[one.channel] for one in unread}
    found.problems = unread
    return found


def form_of_change(point: Departure, after: State) -> PatchForm:
    """The form as if this state had been typed over the point's."""
    found = _form_over(point, after)
    for part in PARTITIONS:
        for name in dict.fromkeys([*after[part], *point.going_on[part]]):
            value = after[part].get(name, reading.ABSENT)
            if not _same(value, point.going_on[part].get(name, reading.ABSENT)) and name in point.graph.channels:
                _set(found.patch, point.graph.channels[name], value)
    return found


def form_of_operations(point: Departure, operations: list[dict[str, Any]]) -> PatchForm:
    """The form as if these operations on the whole state had been typed."""
    found = fresh_form(point)
    found.mode, found.operations = "ops", escaped(indented(operations))
    _read_operations(found, point, {})
    return found


def _put(state: Any, keys: list[Any], value: Any) -> None:
    for key in keys[:-1]:
        state[key] = copy(state[key])
        state = state[key]
    state[keys[-1]] = value


def _operations(patch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A patch as operations on the whole state."""
    for part, change in patch.items():
        yield from ({**operation, "path": f"/{part}{operation['path']}"} for operation in change)


def _keys_of(problem: Problem, state: State) -> list[Any]:
    """The keys that a path as it is shown leads through, as far as they are there."""
    text, found = problem.path, list[Any]()
    at: Any = state
    while text:
        text = text.lstrip(".")
        if text.startswith("[") and isinstance(at, list):
            number, _, text = text[1:].partition("]")
            key: Any = int(number)
        else:
            known = [k for k in at if text == k or text.startswith((f"{k}.", f"{k}["))] if isinstance(at, dict) else []
            if not known:
                break
            key = max(known, key=len)
            text = text[len(key) :]
        found.append(key)
        at = at[key]
    return found
