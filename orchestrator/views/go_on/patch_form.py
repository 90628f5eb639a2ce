"""The patch as it is typed: a form built from the channels' types, the state as JSON,
or operations. Pure.

There is one patch and three views of it, of which a page shows one. The view is drawn
over `base`, the patch as it was then; `base` is posted back with what was typed. Large
values are not sent to the browser, and what comes back leaves them as they are.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from approvals.display.value_types import schema_of_channel
from approvals.forms import controls, reading, sent
from approvals.forms.controls import Control
from checkpoints.core.strict_json import NotStrict, parse_strict
from checkpoints.core.visible_json import escaped, indented, json_text
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs.channel import Channel
from orchestrator.engine.travel.patch import PARTITIONS, patched
from orchestrator.engine.values import canonical
from orchestrator.travel.departure import Departure, State
from orchestrator.views.go_on.state_changes import patch_between
from orchestrator.views.go_on.value_texts import plain_text

MODES = ("form", "json", "ops")
FOLDED = 8 * 1024
"""The number of bytes from which a value is changed by its path, under operations."""
LOCKED = {
    "input": "The input is frozen since the run started.",
    "diagnostics": "Diagnostics are written by the engine only.",
}
"""The reasons why partitions cannot be patched."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An obstacle: its path, the broken rule, the offending value; and `mend`, a
    fitting value as the only item, empty if none is known.
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
    """A channel whose value is too large to be edited as a whole."""

    path: str
    size: int


@dataclass(slots=True)
class PatchForm:
    """The typed text and fields, or those to begin with; `patch` is their result.

    `mode` is the view. `text` is the state as typed JSON, `before` the state of the
    point. `base` is the patch over which the view is drawn, as JSON. `stays`: another
    view was chosen, but the text typed in this one cannot be read.
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
    """Return the form over the state at a point, with nothing changed."""
    return form_of_change(point, point.going_on)


def form_of_change(point: Departure, after: State, *, mode: str = "form") -> PatchForm:
    """Return the form as if this state had been typed over the point's."""
    form = PatchForm(mode=mode)
    form.patch = patch_between(point.going_on, after)
    operations = list(_operations(form.patch))
    form.base = json_text(operations)
    form.operations = escaped(indented(operations))

    # Values that are too large are left out of both texts and of the fields.
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


def form_of_operations(
    point: Departure, after: State, operations: list[dict[str, Any]]
) -> PatchForm:
    """Return the form as if these operations on the whole state, which lead to `after`,
    had been typed.
    """
    form = form_of_change(point, after, mode="ops")
    form.operations = escaped(indented(operations))
    form.patch = _by_partition(operations)
    return form


def _control(channel: Channel, value: Any) -> Control:
    return controls.root(
        schema_of_channel(channel),
        prefix=f"s-{channel.name}",
        value=value,
        label=controls.humanise(channel.name),
        optional=True,
    )


def posted_form(point: Departure, posted: Mapping[str, str]) -> PatchForm:
    """Return the form as it was posted, in the view that was chosen.

    Text that cannot be read stays in the view where it was typed, so that it is not
    lost.
    """
    drawn_over, problems = _drawn_state(point, posted)
    form = form_of_change(point, drawn_over)
    form.mode = posted["mode"] if posted.get("mode") in MODES else "form"
    form.problems = problems
    read = _READERS[form.mode]
    after = read(form, point, drawn_over, posted)
    # Operations stay as they were typed.
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
    """Return the form drawn over the state that its patch makes, in the same view, so
    that a page that does not show it can carry it along. A patch that does not apply is
    carried as typed.
    """
    try:
        after = patched(point.going_on, form.patch)
        return form_of_change(point, after, mode=form.mode)
    except InvalidValue:
        return form


def _drawn_state(
    point: Departure, posted: Mapping[str, str]
) -> tuple[State, list[Problem]]:
    """Return the state over which the page was drawn, and a problem if the page's
    `base` cannot be read.
    """
    try:
        operations = parse_strict(posted.get("base") or "[]")
        return patched(point.going_on, _by_partition(operations)), []
    except (NotStrict, InvalidValue):
        rule = "The changes of this page cannot be read. Reset all to begin anew."
        return _copied(point.going_on), [Problem("patch", rule)]


def _copied(state: State) -> State:
    """Return a copy of a state whose channels can be set without changing the other."""
    return {partition: dict(state[partition]) for partition in PARTITIONS}


def _by_partition(operations: Any) -> dict[str, Any]:
    """Return operations on the whole state, sorted by partition.

    Raises `InvalidValue`.
    """
    # Operations leave their problems in a form, so one is made for them alone.
    form = PatchForm()
    if not isinstance(operations, list):
        raise InvalidValue("operations are a list")
    for number, operation in enumerate(operations):
        _add_operation(form, number, operation)
    if form.problems:
        raise InvalidValue(form.problems[0].rule)
    return form.patch


def _read_controls(
    form: PatchForm, point: Departure, over: State, posted: Mapping[str, str]
) -> State:
    """Return the state with the values typed into fields; their problems are added to
    the form.
    """
    after = _copied(over)
    for name, control in form.drawn.items():
        # Fields that the page did not draw were not changed on it.
        if f"d-{name}" in posted:
            channel = point.graph.channels[name]
            value_before = over[channel.partition].get(name, channel.default)
            _read_control(form, control, channel, value_before, after, posted)
    return after


def _read_control(
    form: PatchForm,
    control: Control,
    channel: Channel,
    value_before: Any,
    after: State,
    posted: Mapping[str, str],
) -> None:
    """Set a channel in `after` to the value typed into its fields, if that differs."""
    untouched = sent.untouched(control)
    if _typed_texts(control, posted) == untouched:
        return
    # The fields as drawn are read back like the typed ones, so that only a difference
    # that was typed counts.
    before = reading.read_form(_control(channel, value_before), untouched)
    value = reading.read_form(control, posted)
    errors = reading.errors(control)
    for part in errors:
        path = ".".join(filter(None, (channel.partition, channel.name, part.path)))
        text = str(part.value or "")
        form.problems.append(Problem(path, part.error, text, channel=channel.name))
    if errors or _same(value, before):
        return
    path = f"{channel.partition}.{channel.name}"
    if _is_json(form, path, value, channel.name):
        _put_channel(after, channel, value)


def _typed_texts(control: Control, posted: Mapping[str, str]) -> dict[str, str]:
    """Return what was posted for a control and those in it, by name."""
    texts: dict[str, str] = {}
    for part in control.walk():
        if part.name in posted:
            # Browsers send each end of a line as CRLF.
            texts[part.name] = posted[part.name].replace("\r\n", "\n")
    return texts


def _is_json(form: PatchForm, path: str, value: Any, channel: str = "") -> bool:
    """Return whether a state can hold a value; if not, the form gets a problem."""
    if value is reading.ABSENT:
        return True
    try:
        canonical.normalised(value)
    except InvalidValue as error:
        form.problems.append(Problem(path, f"{error.message}.", channel=channel))
        return False
    return True


def _put_channel(state: State, channel: Channel, value: Any) -> None:
    """Set a channel; an absent value resets it to its default."""
    if value is reading.ABSENT:
        state[channel.partition].pop(channel.name, None)
    else:
        state[channel.partition][channel.name] = value


def _same(value: Any, other: Any) -> bool:
    """Return whether two values have the same canonical form."""
    if value is reading.ABSENT or other is reading.ABSENT:
        return value is other
    try:
        return _canonical(value) == _canonical(other)
    except InvalidValue:
        return False


def _canonical(value: Any) -> bytes:
    return canonical.encode(canonical.normalised(value))


def _read_state(
    form: PatchForm, point: Departure, over: State, posted: Mapping[str, str]
) -> State:
    """Return the state that was typed as JSON; its problems are added to the form."""
    after = _copied(over)
    form.text = posted.get("json", form.text)
    typed = _parsed(form, "json", form.text)
    if form.problems:
        return after
    if not isinstance(typed, dict):
        rule = "A state is an object of partitions: it begins with { and ends with }."
        form.problems.append(Problem("json", rule))
        return after
    for part, values in typed.items():
        if part in PARTITIONS and isinstance(values, dict):
            _read_partition(form, point, after, part, values)
        else:
            form.problems.append(Problem(str(part), _why_locked(str(part))))
    return after


def _read_partition(
    form: PatchForm, point: Departure, after: State, part: str, values: dict[str, Any]
) -> None:
    """Put the typed channels of a partition into the state; one that was deleted from
    the text goes back to its default.
    """
    for name in [*values, *_channels_left_out(form, after, part, values)]:
        channel = point.graph.channels.get(name)
        if channel is None or channel.partition != part:
            rule = f"{part} has no channel of this name."
            form.problems.append(Problem(f"{part}.{name}", rule))
            continue
        # A channel without a value is shown, and typed, as its default.
        value_before = after[part].get(name, channel.default)
        if not _same(value_before, values.get(name, channel.default)):
            _put_channel(after, channel, values.get(name, reading.ABSENT))


def _channels_left_out(
    form: PatchForm, state: State, part: str, values: Mapping[str, Any]
) -> list[str]:
    """Return the channels of a partition that the text showed and no longer has."""
    folded = {channel.path for channel in form.folded}
    left_out: list[str] = []
    for name in state[part]:
        if name not in values and f"{part}.{name}" not in folded:
            left_out.append(name)
    return left_out


def _why_locked(part: str) -> str:
    if part in PARTITIONS:
        return "A partition is an object of channels."
    if part in LOCKED:
        return LOCKED[part]
    return f"There is no such partition: a patch may change {' and '.join(PARTITIONS)}."


def _parsed(form: PatchForm, where: str, text: str) -> Any:
    """Return the value of a typed JSON text; None, and a problem of the form, if it is
    no JSON or a state could not hold it.
    """
    try:
        typed = parse_strict(text)
    except NotStrict as error:
        form.problems.append(Problem(where, f"This is not valid JSON: {error}."))
        return None
    return typed if _is_json(form, where, typed) else None


def _read_operations(
    form: PatchForm, point: Departure, over: State, posted: Mapping[str, str]
) -> State | None:
    """Return the state after the typed operations, or None if they cannot be applied.

    They are the whole patch, and stay as they were typed. Their problems are found by
    the caller who lays the patch over the point.
    """
    form.operations = posted.get("ops", form.operations)
    form.patch = {}
    typed: Any = []
    if form.operations.strip():
        typed = _parsed(form, "operations", form.operations)

    if isinstance(typed, dict):
        _add_merge_patch(form, typed)
    elif isinstance(typed, list):
        for number, operation in enumerate(typed):
            _add_operation(form, number, operation)
    elif not form.problems:
        rule = "Write a list of operations, or a merge patch, which is an object."
        form.problems.append(Problem("operations", rule))
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
_READERS: dict[str, _Reader] = {
    "form": _read_controls,
    "json": _read_state,
    "ops": _read_operations,
}


def _add_operation(form: PatchForm, number: int, operation: Any) -> None:
    """Sort an operation on the whole state into its partition."""
    place = f"operations[{number}]"
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        rule = "An operation is an object with op and path."
        form.problems.append(Problem(place, rule))
        return

    partition, _ = _split(operation["path"])
    within_partition = dict(operation)
    for name in ("path", "from"):
        pointer = operation.get(name)
        if not isinstance(pointer, str):
            continue
        into, rest = _split(pointer)
        if into not in PARTITIONS:
            form.problems.append(Problem(f"{place}: /{into}", _why_locked(into)))
            return
        if into != partition:
            rule = "An operation stays within one partition."
            form.problems.append(Problem(f"{place}: /{into}", rule))
            return
        within_partition[name] = rest
    form.patch.setdefault(partition, []).append(within_partition)


def _split(pointer: str) -> tuple[str, str]:
    """Return the partition that a pointer leads into, and the pointer within it."""
    partition, slash, rest = pointer.removeprefix("/").partition("/")
    return partition, f"{slash}{rest}"


def mended_form(form: PatchForm, point: Departure, problem: Problem) -> PatchForm:
    """Return the form as if the fitting value of a problem had been typed.

    Other fields whose text cannot be read keep it.
    """
    after = patched(point.going_on, form.patch)
    keys = _keys_of(problem, after)
    _put(after, keys, problem.mend[0])
    mended = form_of_change(point, after, mode=form.mode)
    for other in form.problems:
        if other.channel in form.drawn and other.channel != problem.channel:
            mended.drawn[other.channel] = form.drawn[other.channel]
            mended.problems.append(other)
    return mended


def _put(state: Any, keys: list[Any], value: Any) -> None:
    """Set a value inside a state; objects and lists on the way are copied first."""
    for key in keys[:-1]:
        state[key] = copy(state[key])
        state = state[key]
    state[keys[-1]] = value


def _operations(patch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a patch as operations on the whole state."""
    for partition, change in patch.items():
        for operation in change:
            yield {**operation, "path": f"/{partition}{operation['path']}"}


def _keys_of(problem: Problem, state: State) -> list[Any]:
    """Return the keys of a displayed path, as far as the state has them."""
    text = problem.path
    keys: list[Any] = []
    value: Any = state
    while text:
        text = text.lstrip(".")
        if text.startswith("[") and isinstance(value, list):
            number, _, text = text[1:].partition("]")
            key: Any = int(number)
        else:
            key = _longest_key(value, text)
            if key is None:
                break
            text = text[len(key) :]
        keys.append(key)
        value = value[key]
    return keys


def _longest_key(value: Any, text: str) -> str | None:
    """Return the longest key with which a path begins: keys may have dots."""
    if not isinstance(value, dict):
        return None
    matching: list[str] = []
    for key in value:
        if text == key or text.startswith((f"{key}.", f"{key}[")):
            matching.append(key)
    return max(matching, key=len, default=None)
