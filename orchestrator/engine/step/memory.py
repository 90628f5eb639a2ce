"""`ctx.memory`: the reads of one task, and its wishes to remember. Pure staging; the
memory itself lies behind a `Shelf`.

A task sees the memory that has landed, with its own wishes on top. Others see its puts
and deletes only once its superstep has committed (or, if a gate holds them, once people
have approved them).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from orchestrator.engine.errors import CountersignError, InvalidValue
from orchestrator.engine.graphs import trace
from orchestrator.engine.graphs.channel import LIMIT
from orchestrator.engine.graphs.trace import Landing, Trace, channel_of
from orchestrator.engine.step.output import Output, Recorded, WriteValue
from orchestrator.engine.values.canonical import Json, encode, loads, normalised
from orchestrator.engine.values.hints import nearest
from orchestrator.engine.values.identity import Task

Address = tuple[str, str]

CALLS = ("get", "search", "put", "delete")
"""The methods of its memory that a node may call."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a read. `version` is that of the requested key, 0 if it never had
    one. `unrecorded`: memory was read as it is now, although the task has records of an
    earlier time.
    """

    traces: tuple[Trace, ...] = ()
    version: int = 0
    unrecorded: bool = False


@dataclass(frozen=True, slots=True)
class KeyStanding:
    """The standing of a key: its version, and whether something is stored under it."""

    version: int = 0
    there: bool = False


class Shelf(Protocol):
    """The source of landed memory.

    `journal` records the wishes of a task that is about to end, and returns the wishes
    that count: those recorded first. `refused` is the reason why the run's records of
    its reads cannot be trusted; `recorded` counts them, if they were looked at.
    """

    refused: CountersignError | None

    @property
    def recorded(self) -> Recorded | None: ...

    def get(
        self,
        namespace: str,
        key: str,
    ) -> Answer: ...
    def search(
        self,
        text: str,
        namespace: str,
        limit: int,
    ) -> Answer: ...
    def standing(
        self,
        namespace: str,
        key: str,
    ) -> "KeyStanding": ...
    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]: ...


@dataclass(frozen=True, slots=True)
class _Wish:
    """A wish to remember `value`, or to forget the key if it is None."""

    value: Json
    version: int


@dataclass(slots=True)
class Memory:
    """The memory of one attempt of one task. `limit` in bytes per value, None for no
    limit. `journals`: its wishes are recorded when it ends; those of an effect are
    recorded with its result.
    """

    shelf: Shelf
    mode: str = trace.LIVE
    journals: bool = False
    limit: int | None = LIMIT
    run: UUID | None = None
    node: str = ""
    masked: Callable[[Json], Json] = lambda value: value
    _wishes: dict[Address, _Wish] = field(default_factory=dict)
    _standings: dict[Address, KeyStanding] = field(default_factory=dict)
    _reads: list[dict[str, Json]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"ctx.memory has no {name}; {nearest(name, CALLS, what='it has')}"
        )

    def get(
        self,
        key: str,
        namespace: str,
    ) -> Trace | None:
        """Return the trace of that key, or None. Raises `InvalidValue` for an unusable
        key or namespace.
        """
        address = trace.checked(namespace, key)
        if address in self._wishes:
            return self._staged(address)
        answer = self.shelf.get(*address)
        # The version of the first read is the one that a write of this task lands on.
        self._standings.setdefault(
            address, KeyStanding(answer.version, bool(answer.traces))
        )
        self._note(["get", *address], answer)
        return answer.traces[0] if answer.traces else None

    def search(
        self,
        text: str,
        namespace: str,
        limit: int = 10,
    ) -> list[Trace]:
        """Return up to `limit` traces of the namespace that contain words of the text,
        best first; none for a text without words. Raises `InvalidValue`, and by name if
        the graph is encrypted.
        """
        # A search has no key; with the stand-in the namespace is checked as elsewhere.
        trace.checked(namespace, "any")
        if not isinstance(text, str):
            raise InvalidValue(
                "memory: what is searched for must be a text", path="text"
            )
        # The text is kept with the result, so it must be one that JSON can hold.
        normalised(text, path=("text",))
        most = trace.checked_limit(limit)
        words = trace.words_in(text)
        own = [address for address in self._wishes if address[0] == namespace]
        # Each wish of this task may hide one of the landed traces.
        answer = self.shelf.search(text, namespace, most + len(own))
        self._note(["search", text, namespace, most], answer)

        candidates: list[Trace] = []
        for address in own:
            staged = self._staged(address)
            if staged:
                candidates.append(staged)
        for landed in answer.traces:
            address = (landed.namespace, landed.key)
            # This task has replaced or forgotten it.
            if address in self._wishes:
                continue
            self._standings.setdefault(address, KeyStanding(landed.version, there=True))
            candidates.append(landed)
        return trace.ranked(candidates, words, most)

    def put(
        self,
        key: str,
        content: Any,
        namespace: str,
        strength: float = 1.0,
    ) -> None:
        """Record the wish to remember this under a key, replacing any earlier content.
        Raises `InvalidValue`, `PayloadTooLarge`.
        """
        address = trace.checked(namespace, key)
        # A content is masked when the attempt has ended; an address cannot be.
        if self.masked(list(address)) != list(address):
            raise InvalidValue(
                "memory: a namespace or key that holds a secret "
                "would be readable by all",
                path="key",
            )
        # Staged now, so that the node learns at once of a value that does not fit.
        channel = trace.Channels()[channel_of(*address)]
        value = channel.stage(
            {"content": content, "strength": strength}, limit=self.limit
        )
        self._wishes[address] = _Wish(value, self._standing(address).version)

    def delete(
        self,
        key: str,
        namespace: str,
    ) -> None:
        """Add a wish to forget what is under that key; an empty key is no error. Raises
        `InvalidValue`.
        """
        address = trace.checked(namespace, key)
        standing = self._standing(address)
        # A key that exists only as a wish of this task is forgotten by dropping that.
        self._wishes.pop(address, None)
        if standing.there:
            self._wishes[address] = _Wish(None, standing.version)

    def onto(self, output: Output) -> Output:
        """Return the output with the reads of this task, and with its wishes as writes
        after those that it has.
        """
        wishes: Sequence[WriteValue] = [
            _as_write(address, wish) for address, wish in self._wishes.items()
        ]
        if self.journals:
            # A repeated attempt gets the wishes that were recorded first.
            wishes = self.shelf.journal(wishes)
        return replace(
            output,
            writes=(*output.writes, *wishes),
            reads=tuple(self._reads),
            recorded=self.shelf.recorded,
        )

    def _standing(self, address: Address) -> KeyStanding:
        # Kept from the first look on, for that is what the wish was based on.
        if address not in self._standings:
            self._standings[address] = self.shelf.standing(*address)
        return self._standings[address]

    def _staged(self, address: Address) -> Trace | None:
        """Return the trace that the wish would leave, None if it would be deleted."""
        wish = self._wishes[address]
        if wish.value is None:
            return None
        # A copy: the node may change what it gets.
        value = loads(encode(wish.value))
        return Trace(
            *address,
            value["content"],
            value["strength"],
            wish.version + 1,
            self.run,
            self.node,
        )

    def _note(
        self,
        query: list[Json],
        answer: Answer,
    ) -> None:
        note: dict[str, Json] = {
            "asked": query,
            "found": [landed.ref for landed in answer.traces],
            "mode": self.mode,
        }
        if answer.unrecorded:
            note["unrecorded"] = True
        self._reads.append(note)


def _as_write(address: Address, wish: _Wish) -> WriteValue:
    namespace, key = address
    verb = "Forget" if wish.value is None else "Remember"
    return WriteValue(
        channel=channel_of(namespace, key),
        value=wish.value,
        label=f"{verb} {key} ({namespace})",
        version=wish.version,
    )


def apart(
    applied: Sequence[tuple[Task, WriteValue]],
) -> tuple[list[tuple[Task, WriteValue]], tuple[Landing, ...]]:
    """Separate the writes to channels of the state from those that land in memory,
    which are numbered for each task from 0.
    """
    flowing: list[tuple[Task, WriteValue]] = []
    landings: list[Landing] = []
    counts: dict[Task, int] = {}
    for task, write in applied:
        if not write.channel.startswith(trace.PREFIX):
            flowing.append((task, write))
            continue
        # A landing is unique by task and number, so a recovery cannot land it twice.
        number = counts.get(task, 0)
        counts[task] = number + 1
        namespace, key = trace.address_of(write.channel)
        landings.append(
            Landing(task, number, namespace, key, write.value, write.version)
        )
    return flowing, tuple(landings)


class Remembering:
    """Memory in memory, for `play`: a shelf on which traces land at once."""

    recorded: Recorded | None = None

    def __init__(
        self, remembered: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """`remembered`: {namespace: {key: content}} from before."""
        self.traces: dict[Address, Trace] = {}
        self.refused: CountersignError | None = None
        # Beside the traces, for a key that was forgotten keeps its version.
        self._versions: dict[Address, int] = {}
        for namespace, contents in (remembered or {}).items():
            for key, content in contents.items():
                address = trace.checked(namespace, key)
                self.land([Landing(Task("", 1), 0, *address, _value(content))])

    def get(
        self,
        namespace: str,
        key: str,
    ) -> Answer:
        address = (namespace, key)
        version = self._versions.get(address, 0)
        landed = self.traces.get(address)
        if landed is None:
            return Answer((), version)
        return Answer((_copied(landed),), version)

    def search(
        self,
        text: str,
        namespace: str,
        limit: int,
    ) -> Answer:
        candidates: list[Trace] = []
        for landed in self.traces.values():
            if landed.namespace == namespace:
                candidates.append(_copied(landed))
        ranked = trace.ranked(candidates, trace.words_in(text), limit)
        return Answer(tuple(ranked))

    def standing(
        self,
        namespace: str,
        key: str,
    ) -> KeyStanding:
        address = (namespace, key)
        return KeyStanding(self._versions.get(address, 0), address in self.traces)

    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        return writes

    def land(
        self,
        landings: Sequence[Landing],
        *,
        run: UUID | None = None,
        superstep: int | None = None,
    ) -> None:
        """Remember and forget. Forgetting an empty key changes nothing."""
        for landing in landings:
            address = (landing.namespace, landing.key)
            replaced = self.traces.pop(address, None)
            if replaced is None and landing.value is None:
                continue
            version = self._versions.get(address, 0) + 1
            self._versions[address] = version
            if landing.value is not None:
                self.traces[address] = Trace(
                    *address,
                    landing.value["content"],
                    landing.value["strength"],
                    version,
                    run,
                    landing.task.node,
                    superstep,
                )

    def values(self, channels: Iterable[str]) -> dict[str, Json]:
        """Return the content of the channels that belong to memory, others left out:
        {channel: {value, version}}.
        """
        values: dict[str, Json] = {}
        for channel in channels:
            if trace.is_memory(channel):
                values[channel] = self._held(trace.address_of(channel))
        return values

    def _held(self, address: Address) -> dict[str, Json]:
        landed = self.traces.get(address)
        return {
            "value": landed.value if landed else None,
            "version": self._versions.get(address, 0),
        }


def _value(content: Any) -> Json:
    return {"content": loads(encode(normalised(content))), "strength": 1.0}


def _copied(landed: Trace) -> Trace:
    return replace(landed, content=loads(encode(landed.content)))


Opens = Callable[[], Memory]
"""A function that opens the memory of an attempt on the node's first use of it."""
