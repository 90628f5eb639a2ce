"""What a node returned, checked and staged: the one form in which results are recorded, held, reduced and replayed."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.engine.canonical import Json, normalised
from orchestrator.engine.channel import LIMIT
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.frozen import frozen
from orchestrator.engine.hints import nearest
from orchestrator.engine.identity import Task
from orchestrator.engine.node import Node
from orchestrator.engine.write import Command, Send, Write

SEALED = ("input", "diagnostics")
"""Partitions that no node writes."""


@frozen
class WriteValue:
    """A write with its value as canonical JSON. `version`: of a write to memory, the version that it was made on."""

    channel: str
    value: Json
    label: str | None = None
    version: int | None = None

    def to_json(self) -> dict[str, Json]:
        plain = {"channel": self.channel, "value": self.value, "label": self.label}
        return plain if self.version is None else {**plain, "version": self.version}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "WriteValue":
        return cls(kept["channel"], kept["value"], kept["label"], kept.get("version"))


@frozen
class Output:
    """A task's result. `goto` None: the node's own edges are taken. `sends`: (target, payload). `reads`: what it read
    from memory, as {asked, found: [[namespace, key, version, strength]], mode}. `metadata` and `figures` (in
    millionths) by name, as it noted them.
    """

    writes: tuple[WriteValue, ...] = ()
    goto: tuple[str, ...] | None = None
    sends: tuple[tuple[str, Json], ...] = ()
    reads: tuple[dict[str, Json], ...] = ()
    metadata: tuple[tuple[str, Json], ...] = ()
    figures: tuple[tuple[str, int], ...] = ()

    def to_json(self) -> dict[str, Json]:
        plain: dict[str, Json] = {
            "writes": [write.to_json() for write in self.writes],
            "goto": None if self.goto is None else list(self.goto),
            "sends": [[target, payload] for target, payload in self.sends],
        }
        if self.reads:
            plain["reads"] = list(self.reads)
        if self.metadata:
            plain["metadata"] = dict(self.metadata)
        if self.figures:
            plain["figures"] = dict(self.figures)
        return plain

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Output":
        return cls(
            tuple(WriteValue.from_json(write) for write in kept["writes"]),
            None if kept["goto"] is None else tuple(kept["goto"]),
            tuple((target, payload) for target, payload in kept["sends"]),
            tuple(kept.get("reads", ())),
            tuple(kept.get("metadata", {}).items()),
            tuple(kept.get("figures", {}).items()),
        )


def output_of(compiled: Compiled, node_name: str, returned: Any, *, limit: int | None = LIMIT) -> Output:
    """Check and stage what a node returned: nothing, a dict, a list of `Write`s or of `Send`s, or a `Command`.

    `limit` in bytes per value. Raises `InvalidValue` naming node, channel and reason, or `PayloadTooLarge`.
    """
    node = compiled.nodes[node_name]
    update, goto, sends = _parts(returned)
    return Output(
        tuple([_staged(compiled, node, *wish, limit) for wish in _wishes(node, update)]),
        _goto(node, goto),
        tuple([_send(node, send) for send in _listed(node, "send", sends)]) if sends != () else (),
    )


def require_proposal(node: Node, task: Task) -> None:
    """Of a task that wrote nothing: raise `InvalidValue` where it is gated. With nothing to decide nobody could ever
    sign, and with nobody signing nothing may go through the gate.
    """
    if node.gated:
        message = f"{task} has a gate but proposed no write; a gated node must propose at least one"
        raise InvalidValue(message, node=node.name)


def _parts(returned: Any) -> tuple[Any, Any, Any]:
    """Update, goto and sends."""
    if isinstance(returned, Command):
        return returned.update, returned.goto, returned.send
    if isinstance(returned, list | tuple) and returned and all(isinstance(one, Send) for one in returned):
        return None, None, returned
    return returned, None, ()


def _wishes(node: Node, update: Any) -> list[tuple[Any, Any, Any]]:
    """Channel, value and label of each write."""
    if update is None:
        return []
    if isinstance(update, dict):
        return [(channel, value, None) for channel, value in update.items()]
    if isinstance(update, list | tuple) and all(isinstance(one, Write) for one in update):
        return [(one.channel, one.value, one.label) for one in update]
    what = "a list of mixed things" if isinstance(update, list | tuple) else f"a {type(update).__name__}"
    message = f"node {node.name} returned {what}; return nothing, a dict, a list of Write or of Send, or a Command"
    raise InvalidValue(message, node=node.name)


def _staged(compiled: Compiled, node: Node, name: Any, value: Any, label: Any, limit: int | None) -> WriteValue:
    channel = compiled.channels.get(name) if isinstance(name, str) else None
    if channel is None:
        sealed = "which nothing may write" if name in SEALED else "which is no channel of the state"
        hint = "" if name in SEALED else f"; {nearest(name, list(compiled.channels))}"
        message = f"node {node.name} writes {name}, {sealed}{hint}"
        raise InvalidValue(message, node=node.name, channel=str(name), reason=sealed)
    if label is not None and not isinstance(label, str):
        raise InvalidValue(f"node {node.name}: the label of a write must be text", node=node.name, channel=name)
    try:
        return WriteValue(name, channel.stage(value, limit=limit, exact_money=True), label)
    except (InvalidValue, PayloadTooLarge) as error:
        message = f"node {node.name}, channel {channel.name}: {error.message}"
        raise type(error)(message, node=node.name, **error.facts) from error


def _listed(node: Node, what: str, given: Any) -> Sequence[Any]:
    if isinstance(given, list | tuple) and all(isinstance(one, Send) for one in given):
        return given
    raise InvalidValue(f"node {node.name}: {what} must be a list of Send", node=node.name)


def _goto(node: Node, goto: Any) -> tuple[str, ...] | None:
    if goto is None:
        return None
    targets = (goto,) if isinstance(goto, str) else tuple(goto)
    if not targets:
        raise InvalidValue(f"node {node.name}: goto names no target; say END to end this branch", node=node.name)
    _declared(node, "goto", targets, node.goto)
    return tuple(dict.fromkeys(targets))


def _send(node: Node, send: Send) -> tuple[str, Json]:
    _declared(node, "sends", (send.node,), node.sends)
    try:
        return send.node, normalised(send.payload)
    except InvalidValue as error:
        message = f"node {node.name}: the payload for {send.node}: {error.message}"
        raise InvalidValue(message, node=node.name, **error.facts) from error


def _declared(node: Node, what: str, targets: Sequence[str], declared: Sequence[str]) -> None:
    for target in targets:
        if target not in declared:
            cure = f"write @graph.node({what}=[{target!r}])"
            message = f"node {node.name} names {target}, which it does not declare in {what}=; {cure}"
            raise InvalidValue(message, node=node.name, target=str(target))
