"""`ctx.memory`: what one task reads and wishes to remember. Pure staging; what is remembered lies behind a `Shelf`.

A task sees the memory that has landed, and its own wishes on top. Nothing of what it puts or deletes is there for
others before its superstep commits (or, where a gate holds it, before people have approved it).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from orchestrator.engine import trace
from orchestrator.engine.canonical import Json, encode, loads, normalised
from orchestrator.engine.channel import LIMIT
from orchestrator.engine.errors import CountersignError, InvalidValue
from orchestrator.engine.hints import nearest
from orchestrator.engine.identity import Task
from orchestrator.engine.output import Output, WriteValue
from orchestrator.engine.trace import Landing, Trace, channel_of

Address = tuple[str, str]

CALLS = ("get", "search", "put", "delete")
"""What a node may call of its memory."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a read found. `version` is that of the key that was asked for, 0 where there never was one. `unrecorded`: it
    was read as memory is now, though the task has records of an earlier time.
    """

    traces: tuple[Trace, ...] = ()
    version: int = 0
    unrecorded: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """How a key stands: its version, and whether there is something under it."""

    version: int = 0
    there: bool = False


class Shelf(Protocol):
    """Where landed memory is read. `journal` takes down the wishes of a task that is about to end, and gives those that
    count: what was taken down first. `refused` says why the run's records of its reads cannot be trusted.
    """

    refused: CountersignError | None

    def get(self, namespace: str, key: str) -> Answer: ...
    def search(self, text: str, namespace: str, limit: int) -> Answer: ...
    def standing(self, namespace: str, key: str) -> "Standing": ...
    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]: ...


@dataclass(frozen=True, slots=True)
class _Wish:
    """`value` None: to be deleted."""

    value: Json
    version: int


@dataclass(slots=True)
class Memory:
    """The memory of one attempt of one task. `limit` in bytes per value, None for no limit. `journals`: its wishes are
    taken down when it ends; those of an effect are with its result.
    """

    shelf: Shelf
    mode: str = trace.LIVE
    journals: bool = False
    limit: int | None = LIMIT
    run: UUID | None = None
    node: str = ""
    masked: Callable[[Json], Json] = lambda value: value
    _wishes: dict[Address, _Wish] = field(default_factory=dict)
    _standings: dict[Address, Standing] = field(default_factory=dict)
    _reads: list[dict[str, Json]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"ctx.memory has no {name}; {nearest(name, CALLS, what='it has')}")

    def get(self, key: str, namespace: str) -> Trace | None:
        """The trace of that key, or None. Raises `InvalidValue` for an unusable key or namespace."""
        address = trace.checked(namespace, key)
        if address in self._wishes:
            return self._staged(address)
        answer = self.shelf.get(*address)
        # The first version that was read is the one that a write of this task lands on.
        self._standings.setdefault(address, Standing(answer.version, bool(answer.traces)))
        self._note(["get", *address], answer)
        return answer.traces[0] if answer.traces else None

    def search(self, text: str, namespace: str, limit: int = 10) -> list[Trace]:
        """Up to `limit` traces of the namespace that hold words of the text, best first; none for a text without
        words. Raises `InvalidValue`, and by name where the graph is encrypted.
        """
        trace.checked(namespace, "any")
        if not isinstance(text, str):
            raise InvalidValue("memory: what is searched for must be a text", path="text")
        normalised(text, path=("text",))
        most = trace.checked_limit(limit)
        words = trace.words_in(text)
        own = [address for address in self._wishes if address[0] == namespace]
        # Own wishes may hide as many of those that are found.
        answer = self.shelf.search(text, namespace, most + len(own))
        self._note(["search", text, namespace, most], answer)
        landed = [one for one in answer.traces if (one.namespace, one.key) not in self._wishes]
        for one in landed:
            self._standings.setdefault((one.namespace, one.key), Standing(one.version, there=True))
        staged = [wish for address in own if (wish := self._staged(address))]
        return trace.ranked([*staged, *landed], words, most)

    def put(self, key: str, content: Any, namespace: str, strength: float = 1.0) -> None:
        """Wish to remember this under that key, in place of what is there. Raises `InvalidValue`, `PayloadTooLarge`."""
        address = trace.checked(namespace, key)
        if self.masked(list(address)) != list(address):
            raise InvalidValue("memory: a namespace or key that holds a secret would be readable by all", path="key")
        channel = trace.Channels()[channel_of(*address)]
        value = channel.stage({"content": content, "strength": strength}, limit=self.limit)
        self._wishes[address] = _Wish(value, self._standing(address).version)

    def delete(self, key: str, namespace: str) -> None:
        """Wish to forget what is under that key; that there is nothing is no error. Raises `InvalidValue`."""
        address = trace.checked(namespace, key)
        standing = self._standing(address)
        self._wishes.pop(address, None)
        if standing.there:
            self._wishes[address] = _Wish(None, standing.version)

    def onto(self, output: Output) -> Output:
        """The output with what this task read, and with its wishes as writes behind its own."""
        writes = [
            WriteValue(channel_of(*address), wish.value, _label(address, wish.value), wish.version)
            for address, wish in self._wishes.items()
        ]
        kept = self.shelf.journal(writes) if self.journals else writes
        return replace(output, writes=(*output.writes, *kept), reads=tuple(self._reads))

    def _standing(self, address: Address) -> Standing:
        if address not in self._standings:
            self._standings[address] = self.shelf.standing(*address)
        return self._standings[address]

    def _staged(self, address: Address) -> Trace | None:
        wish = self._wishes[address]
        if wish.value is None:
            return None
        value = loads(encode(wish.value))
        return Trace(*address, value["content"], value["strength"], wish.version + 1, self.run, self.node)

    def _note(self, asked: list[Json], answer: Answer) -> None:
        note = {"asked": asked, "found": [one.ref for one in answer.traces], "mode": self.mode}
        self._reads.append({**note, "unrecorded": True} if answer.unrecorded else note)


def _label(address: Address, value: Json) -> str:
    namespace, key = address
    return f"{'Forget' if value is None else 'Remember'} {key} ({namespace})"


def apart(applied: Sequence[tuple[Task, WriteValue]]) -> tuple[list[tuple[Task, WriteValue]], tuple[Landing, ...]]:
    """The writes to channels of the state, and what is to land in memory, numbered for each task from 0."""
    flowing: list[tuple[Task, WriteValue]] = []
    landings: list[Landing] = []
    counts: dict[Task, int] = {}
    for task, write in applied:
        if not trace.is_memory(write.channel):
            flowing.append((task, write))
            continue
        n = counts[task] = counts.get(task, -1) + 1
        landings.append(Landing(task, n, *trace.address_of(write.channel), write.value, write.version))
    return flowing, tuple(landings)


class Remembering:
    """Memory in memory, for `play`: a shelf on which traces land at once."""

    def __init__(self, given: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`given`: {namespace: {key: content}}, remembered from before."""
        self.traces: dict[Address, Trace] = {}
        self.refused: CountersignError | None = None
        self._versions: dict[Address, int] = {}
        for namespace, contents in (given or {}).items():
            for key, content in contents.items():
                self.land([Landing(Task("", 1), 0, *trace.checked(namespace, key), _value(content))])

    def get(self, namespace: str, key: str) -> Answer:
        found = self.traces.get((namespace, key))
        return Answer((_fresh(found),) if found else (), self._versions.get((namespace, key), 0))

    def search(self, text: str, namespace: str, limit: int) -> Answer:
        mine = [_fresh(one) for one in self.traces.values() if one.namespace == namespace]
        return Answer(tuple(trace.ranked(mine, trace.words_in(text), limit)))

    def standing(self, namespace: str, key: str) -> Standing:
        return Standing(self._versions.get((namespace, key), 0), (namespace, key) in self.traces)

    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        return writes

    def land(self, landings: Sequence[Landing], *, run: UUID | None = None, superstep: int | None = None) -> None:
        """Remember and forget. To forget what is not there changes nothing."""
        for one in landings:
            address = (one.namespace, one.key)
            if self.traces.pop(address, None) is None and one.value is None:
                continue
            self._versions[address] = version = self._versions.get(address, 0) + 1
            if one.value is not None:
                content, strength = one.value["content"], one.value["strength"]
                self.traces[address] = Trace(*address, content, strength, version, run, one.task.node, superstep)

    def values(self, channels: Iterable[str]) -> dict[str, Json]:
        """What those of these channels hold that are memory's: {channel: {value, version}}."""
        named = {channel: trace.address_of(channel) for channel in channels if trace.is_memory(channel)}
        return {channel: self._held(address) for channel, address in named.items()}

    def _held(self, address: Address) -> dict[str, Json]:
        found = self.traces.get(address)
        return {"value": found.value if found else None, "version": self._versions.get(address, 0)}


def _value(content: Any) -> Json:
    return {"content": loads(encode(normalised(content))), "strength": 1.0}


def _fresh(one: Trace) -> Trace:
    return replace(one, content=loads(encode(one.content)))


Opens = Callable[[], Memory]
"""Gives the memory of an attempt when its node first asks for it."""
