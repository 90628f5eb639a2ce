"""The output of a node, checked and staged: the one form in which results are recorded,
held, reduced and replayed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.answer_schema import is_of_amount, one_budget
from orchestrator.engine.graphs.call import CALL
from orchestrator.engine.graphs.channel import LIMIT, Channel
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.effect import HUMAN
from orchestrator.engine.graphs.node import Node
from orchestrator.engine.graphs.question import question_of
from orchestrator.engine.graphs.write import (
    MOST_SCHEMA_BYTES,
    Command,
    Send,
    Write,
    form_of,
    require_fitting_form,
    schema_size,
    shown_form,
)
from orchestrator.engine.values.canonical import Json, normalised
from orchestrator.engine.values.hints import nearest
from orchestrator.engine.values.identity import Task

SEALED = ("input", "diagnostics")
"""Partitions that no node writes."""


@frozen
class WriteValue:
    """A write with its value as canonical JSON. `version`: for a write to memory, the
    version that it was based on. `question`: what people are asked for instead, where
    the write has no value. `form`: what is shown of it besides its label.
    """

    channel: str
    value: Json
    label: str | None = None
    version: int | None = None
    question: dict[str, Json] | None = None
    form: dict[str, Json] | None = None

    def to_json(self) -> dict[str, Json]:
        plain = {"channel": self.channel, "value": self.value, "label": self.label}
        if self.version is not None:
            plain["version"] = self.version
        if self.question is not None:
            plain["question"] = self.question
        if self.form is not None:
            plain["form"] = self.form
        return plain

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "WriteValue":
        return cls(
            stored["channel"],
            stored["value"],
            stored["label"],
            stored.get("version"),
            stored.get("question"),
            stored.get("form"),
        )


class Recorded(NamedTuple):
    """The number of records that a task had on a line of a run (its id, in
    hexadecimal).
    """

    run: str
    line: int
    rows: int


@frozen
class Output:
    """A task's result.

    `goto` None: the node's own edges are taken. `sends`: (target, payload). `reads`:
    what it read from memory, as {asked, found: [[namespace, key, version, strength]],
    mode}. `metadata` and `figures` (in millionths): its notes by name. `recorded`:
    which records of its reads were there when it ended.
    """

    writes: tuple[WriteValue, ...] = ()
    goto: tuple[str, ...] | None = None
    sends: tuple[tuple[str, Json], ...] = ()
    reads: tuple[dict[str, Json], ...] = ()
    metadata: tuple[tuple[str, Json], ...] = ()
    figures: tuple[tuple[str, int], ...] = ()
    recorded: Recorded | None = None

    def to_json(self) -> dict[str, Json]:
        plain: dict[str, Json] = {
            "writes": [write.to_json() for write in self.writes],
            "goto": None if self.goto is None else list(self.goto),
            "sends": [[target, payload] for target, payload in self.sends],
        }
        # Parts that most results lack are left out of their JSON.
        if self.reads:
            plain["reads"] = list(self.reads)
        if self.metadata:
            plain["metadata"] = dict(self.metadata)
        if self.figures:
            plain["figures"] = dict(self.figures)
        if self.recorded:
            plain["recorded"] = list(self.recorded)
        return plain

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Output":
        goto = None
        if stored["goto"] is not None:
            goto = tuple(stored["goto"])
        recorded = None
        if "recorded" in stored:
            recorded = Recorded(*stored["recorded"])
        return cls(
            writes=tuple(WriteValue.from_json(write) for write in stored["writes"]),
            goto=goto,
            sends=tuple((target, payload) for target, payload in stored["sends"]),
            reads=tuple(stored.get("reads", ())),
            metadata=tuple(stored.get("metadata", {}).items()),
            figures=tuple(stored.get("figures", {}).items()),
            recorded=recorded,
        )


def output_of(
    compiled: Compiled,
    node_name: str,
    returned: Any,
    *,
    limit: int | None = LIMIT,
) -> Output:
    """Check and stage what a node returned: nothing, a dict, a list of `Write`s or of
    `Send`s, or a `Command`.

    `limit` in bytes per value. Raises `InvalidValue` naming node, channel and reason,
    or `PayloadTooLarge`.
    """
    node = compiled.nodes[node_name]
    # Whatever form the author chose, it comes down to these three.
    update, goto, sends = _update_goto_sends(returned)
    writes: list[WriteValue] = []
    if isinstance(update, list | tuple):
        # However many writes have a schema, judging them takes no longer than one may.
        with one_budget():
            writes = _staged_writes(compiled, node, update, limit)
    else:
        # The writes of a dict have no schemas.
        for channel, value, label, _ in _wished_writes(node, update):
            staged = _stage_write(compiled, node, channel, value, label, limit)
            writes.append(staged)
    if goto is not None:
        goto = _checked_goto(node, goto)
    # The usual case of no sends costs one comparison.
    if sends != ():
        sends = _checked_sends(node, sends)
    return Output(tuple(writes), goto, sends)


def _staged_writes(
    compiled: Compiled, node: Node, update: Any, limit: int | None
) -> list[WriteValue]:
    writes: list[WriteValue] = []
    schema_bytes = 0
    for channel, value, label, write in _wished_writes(node, update):
        staged = _stage_write(compiled, node, channel, value, label, limit)
        if write is not None and (write.schema, write.effect) != (None, None):
            staged = _with_form(compiled, node, staged, write)
            schema_bytes += schema_size(staged.form or {})
        writes.append(staged)
    if schema_bytes > MOST_SCHEMA_BYTES:
        raise _too_large_schemas(node, schema_bytes)
    return writes


def _too_large_schemas(node: Node, size: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"node {node.name}: the schemas of its writes have {size:,} bytes together; "
        f"at most {MOST_SCHEMA_BYTES:,}",
        node=node.name,
    )


def asked_write(
    compiled: Compiled, node_name: str, channel: Any, prompt: Any, schema: Any
) -> WriteValue:
    """Return the write for whose value people are asked. Raises `InvalidValue` naming
    node, channel and reason, or `PayloadTooLarge`.
    """
    node = compiled.nodes[node_name]
    if node.effect != HUMAN:
        raise InvalidValue(
            f"node {node.name}: ctx.ask is for nodes with effect='human'; "
            "others have nobody to ask",
            node=node.name,
        )
    # `get` finds no channel of memory, which only `ctx.memory` may write.
    is_channel = isinstance(channel, str) and compiled.channels.get(channel) is not None
    if not is_channel:
        raise _no_such_channel(compiled, node, channel)
    if not isinstance(prompt, str) or not prompt.strip():
        raise InvalidValue(
            f"node {node.name}: ctx.ask for {channel} needs a prompt, which is text",
            node=node.name,
            channel=channel,
        )
    of_decimal = is_of_amount(compiled.channels[channel].schema)
    question = question_of(schema, of_decimal=of_decimal)
    return WriteValue(channel, None, prompt, question=question)


def with_questions(output: Output, questions: Sequence[WriteValue]) -> Output:
    """Return the output with the writes whose values people are asked for, after those
    that the node returned.
    """
    return replace(output, writes=(*output.writes, *questions))


def call_output(
    compiled: Compiled,
    node_name: str,
    prepared: Any,
    *,
    limit: int | None = LIMIT,
) -> Output:
    """Check and stage what the `prepare` of a node returned: the arguments of its call,
    as the proposal that people decide on. Raises as `output_of` does.
    """
    node = compiled.nodes[node_name]
    channel = compiled.channel_of(node_name, CALL)
    return Output((_staged(node, channel, CALL, prepared, None, limit),))


def require_proposal(node: Node, task: Task) -> None:
    """Raise `InvalidValue` for a task that wrote nothing, if its node is gated. With no
    write there is nothing to decide, so nobody could ever sign; and without a signature
    nothing may pass the gate.
    """
    if node.gated:
        message = (
            f"{task} has a gate but proposed no write; "
            "a gated node must propose at least one"
        )
        raise InvalidValue(message, node=node.name)


def _update_goto_sends(returned: Any) -> tuple[Any, Any, Any]:
    """Return update, goto and sends of what a node returned."""
    if returned is None or isinstance(returned, dict):
        return returned, None, ()
    if isinstance(returned, Command):
        return returned.update, returned.goto, returned.send
    # An empty list is an update without writes, not a list of sends.
    if _is_list_of(Send, returned) and returned:
        return None, None, returned
    return returned, None, ()


def _is_list_of(kind: type, value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(item, kind) for item in value)


def _wished_writes(node: Node, update: Any) -> list[tuple[Any, Any, Any, Write | None]]:
    """Return channel, value and label of each write, unchecked, and the `Write` itself
    where the node returned one.
    """
    wished: list[tuple[Any, Any, Any, Write | None]] = []
    if update is None:
        return wished
    if isinstance(update, dict):
        for channel, value in update.items():
            wished.append((channel, value, None, None))
        return wished
    if _is_list_of(Write, update):
        for write in update:
            wished.append((write.channel, write.value, write.label, write))
        return wished
    what = f"a {type(update).__name__}"
    if isinstance(update, list | tuple):
        what = "a list of mixed things"
    message = (
        f"node {node.name} returned {what}; "
        "return nothing, a dict, a list of Write or of Send, or a Command"
    )
    raise InvalidValue(message, node=node.name)


def _stage_write(
    compiled: Compiled,
    node: Node,
    # What an author wrote there may be anything.
    name: Any,
    value: Any,
    label: Any,
    limit: int | None,
) -> WriteValue:
    channel = None
    if isinstance(name, str):
        # `get` finds no channel of memory, which only `ctx.memory` may write.
        channel = compiled.channels.get(name)
    if channel is None:
        raise _no_such_channel(compiled, node, name)
    if label is not None and not isinstance(label, str):
        raise InvalidValue(
            f"node {node.name}: the label of a write must be text",
            node=node.name,
            channel=name,
        )
    return _staged(node, channel, name, value, label, limit)


def _with_form(
    compiled: Compiled, node: Node, staged: WriteValue, write: Write
) -> WriteValue:
    """Return a write with its form. Raises `InvalidValue` if nobody would be asked
    about it, or if its own value does not fit its schema.
    """
    try:
        if not node.gated:
            raise InvalidValue("schema= and effect= are for nodes with a gate")
        of_decimal = is_of_amount(compiled.channels[staged.channel].schema)
        form = form_of(write.schema, write.effect, of_decimal=of_decimal)
        require_fitting_form(shown_form(form), staged.channel, staged.value)
    except (InvalidValue, PayloadTooLarge) as error:
        message = f"node {node.name}, channel {staged.channel}: {error.message}"
        raise type(error)(message, node=node.name, **error.facts) from error
    return replace(staged, form=form)


def _staged(
    node: Node,
    channel: Channel,
    name: str,
    value: Any,
    label: str | None,
    limit: int | None,
) -> WriteValue:
    try:
        staged = channel.stage(
            value,
            limit=limit,
            # A float that a node computed may have lost the exact amount already.
            exact_money=True,
        )
    except (InvalidValue, PayloadTooLarge) as error:
        message = f"node {node.name}, channel {name}: {error.message}"
        raise type(error)(message, node=node.name, **error.facts) from error
    return WriteValue(name, staged, label)


def _no_such_channel(
    compiled: Compiled,
    node: Node,
    name: Any,
) -> InvalidValue:
    if name in SEALED:
        reason = "which nothing may write"
        hint = ""
    else:
        reason = "which is no channel of the state"
        hint = f"; {nearest(name, list(compiled.channels))}"
    message = f"node {node.name} writes {name}, {reason}{hint}"
    return InvalidValue(
        message,
        node=node.name,
        channel=str(name),
        reason=reason,
    )


def _checked_goto(node: Node, goto: Any) -> tuple[str, ...]:
    targets = (goto,) if isinstance(goto, str) else tuple(goto)
    if not targets:
        raise InvalidValue(
            f"node {node.name}: goto names no target; say END to end this branch",
            node=node.name,
        )
    _refuse_undeclared(node, "goto", targets, node.goto)
    # A target named twice is one edge, which is taken once.
    return tuple(dict.fromkeys(targets))


def _checked_sends(node: Node, sends: Any) -> tuple[tuple[str, Json], ...]:
    if not _is_list_of(Send, sends):
        raise InvalidValue(
            f"node {node.name}: send must be a list of Send", node=node.name
        )
    return tuple([_checked_send(node, send) for send in sends])


def _checked_send(node: Node, send: Send) -> tuple[str, Json]:
    _refuse_undeclared(node, "sends", (send.node,), node.sends)
    try:
        return send.node, normalised(send.payload)
    except InvalidValue as error:
        message = f"node {node.name}: the payload for {send.node}: {error.message}"
        raise InvalidValue(message, node=node.name, **error.facts) from error


def _refuse_undeclared(
    node: Node,
    option: str,
    targets: Sequence[str],
    declared: Sequence[str],
) -> None:
    for target in targets:
        if target not in declared:
            cure = f"write @graph.node({option}=[{target!r}])"
            message = (
                f"node {node.name} names {target}, "
                f"which it does not declare in {option}=; {cure}"
            )
            raise InvalidValue(
                message,
                node=node.name,
                target=str(target),
            )
