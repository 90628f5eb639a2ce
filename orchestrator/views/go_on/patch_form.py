"""The patch as it is typed: a form from the channels' types, the state as JSON, or operations. Pure.

There is one patch and three views of it; a page shows one of them. It is drawn over `base`, the patch of the time when
it was drawn, which comes back with what was typed. Large values are not sent to the browser, and are not touched by
what comes back from it.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from approvals.forms import controls, reading, sent
from approvals.forms.controls import Control
from checkpoints.core.strict_json import NotStrict, parse_strict
from checkpoints.core.visible_json import escaped, indented, json_text
from orchestrator.engine import canonical
from orchestrator.engine.channel import Channel
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.patch import PARTITIONS, patched
from orchestrator.runs.departure import Departure, State
from orchestrator.views.go_on.state_changes import patch_between
from orchestrator.views.go_on.value_texts import plain_text

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
        return plain_text(self.mend[0]) if self.mend else ""


@dataclass(frozen=True, slots=True)
class Folded:
    """A channel whose value is too large to be typed over."""

    path: str
    size: int


@dataclass(slots=True)
class PatchForm:
    """What was typed, or what there is to type over; `patch` is what it comes to.

    `mode` is the view. `text` is the JSON that is typed, `before` that of the point. `base` is the patch over which the
    view is drawn, as JSON. `stays`: another view was chosen, but what was typed in this one cannot be read.
    """

    mode: str = "form"
    drawn: dict[str, Control] = field(default_factory=dict)
    folded: list[Folded] = field(default_factory=list)
    text: str = ""
    before: str = ""
    operations: str = "[]"
    base: str = "[]"
    patch: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    stays: bool = False

    @property
    def locked(self) -> dict[str, str]:
        return LOCKED


def fresh_form(point: Departure) -> PatchForm:
    """The form over the state at a point, with nothing changed."""
    return form_of_change(point, point.going_on)


def form_of_change(point: Departure, after: State, *, mode: str = "form") -> PatchForm:
    """The form as if this state had been typed over the point's."""
    form = PatchForm(mode=mode)
    form.patch = patch_between(point.going_on, after)
    form.base = json_text(list(_operations(form.patch)))
    form.operations = escaped(indented(list(_operations(form.patch))))
    shown: State = {part: {} for part in PARTITIONS}
    before: State = {part: {} for part in PARTITIONS}
    for name, channel in point.graph.channels.items():
        part = channel.partition
        old = point.going_on[part].get(name, channel.default)
        size = len(canonical.encode(old))
        if size > FOLDED:
            form.folded.append(Folded(f"{part}.{name}", size))
            continue
        before[part][name] = old
        shown[part][name] = after[part].get(name, channel.default)
        form.drawn[name] = _control(channel, shown[part][name])
    form.text = escaped(indented(shown))
    form.before = escaped(indented(before))
    return form


def form_of_operations(point: Departure, after: State, operations: list[dict[str, Any]]) -> PatchForm:
    """The form as if these operations on the whole state had been typed, which lead to `after`."""
    form = form_of_change(point, after, mode="ops")
    form.operations = escaped(indented(operations))
    form.patch = _by_partition(operations)
    return form


def _control(channel: Channel, value: Any) -> Control:
    definitions = channel.model.model_json_schema(by_alias=False).get("$defs", {})
    label = controls.humanise(channel.name)
    schema = {**channel.schema, "$defs": definitions}
    return controls.root(schema, prefix=f"s-{channel.name}", value=value, label=label, optional=True)


def posted_form(point: Departure, posted: Mapping[str, str]) -> PatchForm:
    """The form as it was posted, in the view that was chosen. What cannot be read stays in the view where it was typed,
    so that nothing typed is lost.
    """
    over, problems = _drawn_state(point, posted)
    form = form_of_change(point, over)
    form.mode = posted["mode"] if posted.get("mode") in MODES else "form"
    form.problems = problems
    after = _READERS[form.mode](form, point, over, posted)
    if after is not None and form.mode != "ops":
        form.patch = patch_between(point.going_on, after)
    view = posted.get("view", form.mode)
    if view == form.mode or view not in MODES:
        return form
    if after is None or form.problems:
        form.stays = True
        return form
    return form_of_change(point, after, mode=view)


def carried_form(point: Departure, form: PatchForm) -> PatchForm:
    """The form over what was typed, in the same view, for a page that does not show it."""
    try:
        return form_of_change(point, patched(point.going_on, form.patch), mode=form.mode)
    except InvalidValue:
        return form


def _drawn_state(point: Departure, posted: Mapping[str, str]) -> tuple[State, list[Problem]]:
    """Return the state over which the page was drawn, and a problem where the page does not tell it."""
    try:
        operations = parse_strict(posted.get("base") or "[]")
        return patched(point.going_on, _by_partition(operations)), []
    except (NotStrict, InvalidValue):
        rule = "The changes of this page cannot be read. Reset all to begin anew."
        return {part: dict(point.going_on[part]) for part in PARTITIONS}, [Problem("patch", rule)]


def _by_partition(operations: Any) -> dict[str, Any]:
    """Return operations on the whole state, sorted by partition. Raises `InvalidValue`."""
    form = PatchForm()
    if not isinstance(operations, list):
        raise InvalidValue("operations are a list")
    for number, operation in enumerate(operations):
        _add_operation(form, number, operation)
    if form.problems:
        raise InvalidValue(form.problems[0].rule)
    return form.patch


def _read_controls(form: PatchForm, point: Departure, over: State, posted: Mapping[str, str]) -> State:
    """Return the state with what was typed into fields; what is wrong with them goes to the form."""
    after = {part: dict(over[part]) for part in PARTITIONS}
    for name, control in form.drawn.items():
        if f"d-{name}" not in posted:
            continue
        channel = point.graph.channels[name]
        untouched = sent.untouched(control)
        typed = {one.name: posted[one.name].replace("\r\n", "\n") for one in control.walk() if one.name in posted}
        if typed == untouched:
            continue
        fresh = _control(channel, over[channel.partition].get(name, channel.default))
        before = reading.read_form(fresh, untouched)
        value = reading.read_form(control, posted)
        wrong = reading.errors(control)
        for one in wrong:
            path = ".".join(filter(None, (channel.partition, name, one.path)))
            form.problems.append(Problem(path, one.error, str(one.value or ""), channel=name))
        if not wrong and not _same(value, before) and _is_json(form, f"{channel.partition}.{name}", value, name):
            _put_channel(after, channel, value)
    return after


def _is_json(form: PatchForm, path: str, value: Any, channel: str = "") -> bool:
    """Return whether a state can hold a value; where it cannot, that is a problem of the form."""
    try:
        canonical.normalised(None if value is reading.ABSENT else value)
    except InvalidValue as error:
        form.problems.append(Problem(path, f"{error.message}.", channel=channel))
        return False
    return True


def _put_channel(state: State, channel: Channel, value: Any) -> None:
    """Set a channel; an absent value is its default again."""
    if value is reading.ABSENT:
        state[channel.partition].pop(channel.name, None)
    else:
        state[channel.partition][channel.name] = value


def _same(one: Any, other: Any) -> bool:
    if one is reading.ABSENT or other is reading.ABSENT:
        return one is other
    try:
        return canonical.encode(canonical.normalised(one)) == canonical.encode(canonical.normalised(other))
    except InvalidValue:
        return False


def _read_state(form: PatchForm, point: Departure, over: State, posted: Mapping[str, str]) -> State:
    """Return the state that was typed as JSON; what is wrong with it goes to the form."""
    after = {part: dict(over[part]) for part in PARTITIONS}
    form.text = posted.get("json", form.text)
    typed = _parsed(form, "json", form.text)
    if form.problems:
        return after
    if not isinstance(typed, dict):
        form.problems.append(Problem("json", "A state is an object of partitions: it begins with { and ends with }."))
        return after
    for part, values in typed.items():
        if part in PARTITIONS and isinstance(values, dict):
            _read_partition(form, point, after, part, values)
        else:
            form.problems.append(Problem(str(part), _why_locked(str(part))))
    return after


def _read_partition(form: PatchForm, point: Departure, after: State, part: str, values: dict[str, Any]) -> None:
    """Put the channels of a partition that was typed into the state; one that is left out is at its default again."""
    folded = {one.path for one in form.folded}
    left_out = [name for name in after[part] if name not in values and f"{part}.{name}" not in folded]
    for name in [*values, *left_out]:
        channel = point.graph.channels.get(name)
        if channel is None or channel.partition != part:
            form.problems.append(Problem(f"{part}.{name}", f"{part} has no channel of this name."))
            continue
        value = values.get(name, reading.ABSENT)
        # A channel that is not there is shown, and typed, as its default.
        if not _same(after[part].get(name, channel.default), channel.default if name not in values else value):
            _put_channel(after, channel, value)


def _why_locked(part: str) -> str:
    if part in PARTITIONS:
        return "A partition is an object of channels."
    return LOCKED.get(part, f"There is no such partition: a patch may change {' and '.join(PARTITIONS)}.")


def _parsed(form: PatchForm, where: str, text: str) -> Any:
    """Return what was typed as JSON, None where a state could not hold it, which is a problem of the form."""
    try:
        typed = parse_strict(text)
    except NotStrict as error:
        form.problems.append(Problem(where, f"This is no JSON: {error}."))
        return None
    return typed if _is_json(form, where, typed) else None


def _read_operations(form: PatchForm, point: Departure, over: State, posted: Mapping[str, str]) -> State | None:
    """Return the state after the operations that were typed, which are the whole patch and stay as they were typed;
    None where they cannot be done. What is wrong with them is said by whoever lays the patch over the point.
    """
    form.operations = posted.get("ops", form.operations)
    form.patch = {}
    typed = _parsed(form, "operations", form.operations) if form.operations.strip() else []
    if isinstance(typed, dict):
        _add_merge_patch(form, typed)
    elif isinstance(typed, list):
        for number, operation in enumerate(typed):
            _add_operation(form, number, operation)
    elif not form.problems:
        form.problems.append(Problem("operations", "Write a list of operations, or a merge patch, which is an object."))
    try:
        return patched(point.going_on, form.patch)
    except InvalidValue:
        return None


def _add_merge_patch(form: PatchForm, typed: Mapping[str, Any]) -> None:
    for part, change in typed.items():
        if part in PARTITIONS:
            form.patch[part] = change
        else:
            form.problems.append(Problem(str(part), _why_locked(str(part))))


_Reader = Callable[[PatchForm, Departure, State, Mapping[str, str]], State | None]
_READERS: dict[str, _Reader] = {"form": _read_controls, "json": _read_state, "ops": _read_operations}


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
    mended = form_of_change(point, after, mode=form.mode)
    unread = [one for one in form.problems if one.channel in form.drawn and one.channel != problem.channel]
    mended.drawn |= {one.channel: form.drawn[one.channel] for one in unread}
    mended.problems = unread
    return mended


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
