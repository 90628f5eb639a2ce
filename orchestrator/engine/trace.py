"""Memory traces as values: how they are named, checked, found and ranked. Pure.

A wish to change memory travels as a write to the channel `$memory:<namespace>/<key>`, whose value is {content,
strength}, or None for a deletion.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, create_model

from orchestrator.engine.canonical import Json, normalised
from orchestrator.engine.channel import Channel
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frozen import frozen
from orchestrator.engine.identity import Task
from orchestrator.engine.reducer import Replace

PREFIX = "$memory:"
LONGEST_NAMESPACE = 60
LONGEST_KEY = 120
"""Characters. The name of the channel must fit into the columns that keep names of channels."""
MOST_FOUND = 200
"""Traces that one search may ask for."""
MOST_TEXT = 100_000
"""Characters of a trace that a search looks at."""
LONGEST_WORD = 64
_WORD = re.compile(r"[^\W_]+")

LIVE, SNAPSHOT, JOURNALED = "live", "snapshot", "journaled"


@dataclass(frozen=True, slots=True)
class Trace:
    """One remembered thing. `run`, `node`, `superstep` and `at` say who remembered it; `at` is None while it is staged.

    `version` counts what was done to its key, deletions too, from 1.
    """

    namespace: str
    key: str
    content: Json
    strength: float
    version: int
    run: UUID | None = None
    node: str = ""
    superstep: int | None = None
    at: datetime | None = None

    @property
    def value(self) -> dict[str, Json]:
        """As a write to its channel carries it."""
        return {"content": self.content, "strength": self.strength}

    @property
    def ref(self) -> list[Json]:
        """What names exactly this content: [namespace, key, version, strength]."""
        return [self.namespace, self.key, self.version, self.strength]


@frozen
class Landing:
    """A change of memory that lands with a commit: the n-th (from 0) of its task, on version `version` of its key
    (None: on whatever is there). `value` None deletes.
    """

    task: Task
    n: int
    namespace: str
    key: str
    value: Json
    version: int | None = None

    @property
    def channel(self) -> str:
        return channel_of(self.namespace, self.key)


class Remembered(BaseModel):
    """What is remembered: its content, and how strongly."""

    model_config = ConfigDict(extra="forbid")

    content: Any
    strength: float = Field(1.0, ge=0, allow_inf_nan=False, strict=True)


class Channels(dict[str, Channel]):
    """The channels of a graph by name. Those of memory are there without being listed."""

    def __missing__(self, name: str) -> Channel:
        if not is_memory(name):
            raise KeyError(name)
        return _channel(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and is_memory(name))


@lru_cache(maxsize=1024)
def _channel(name: str) -> Channel:
    model = create_model("Memory", **{name: (Remembered | None, None)})  # type: ignore[call-overload]
    schema = model.model_json_schema(by_alias=False)["properties"][name]
    return Channel(name=name, model=model, reducer=Replace, artifact=False, default=None, schema=schema)


def is_memory(channel: str) -> bool:
    """Whether a channel's name stands for a trace."""
    return channel.startswith(PREFIX)


def channel_of(namespace: str, key: str) -> str:
    """The name of a trace's channel."""
    return f"{PREFIX}{namespace}/{key}"


def address_of(channel: str) -> tuple[str, str]:
    """(namespace, key) of a trace's channel."""
    namespace, _, key = channel.removeprefix(PREFIX).partition("/")
    return namespace, key


def checked(namespace: Any, key: Any) -> tuple[str, str]:
    """A usable address, or `InvalidValue`."""
    _refuse("namespace", namespace, LONGEST_NAMESPACE)
    _refuse("key", key, LONGEST_KEY)
    if "/" in namespace:
        raise InvalidValue(f"memory: the namespace {namespace!r} must not hold a /", path="namespace")
    return namespace, key


def _refuse(what: str, given: Any, longest: int) -> None:
    if not isinstance(given, str) or not given or len(given) > longest:
        raise InvalidValue(f"memory: the {what} must be a text of 1 to {longest} characters", path=what)
    normalised(given, path=(what,))


def checked_limit(limit: Any) -> int:
    """A usable limit of a search, or `InvalidValue`."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_FOUND:
        raise InvalidValue(f"memory: limit must be a whole number from 1 to {MOST_FOUND}", path="limit")
    return limit


def words_in(text: str) -> list[str]:
    """The words of a text as searches compare them: letters and digits only, without case and accents."""
    plain = unicodedata.normalize("NFKD", text[:MOST_TEXT]).casefold()
    bare = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return [word[:LONGEST_WORD] for word in _WORD.findall(bare)]


def text_of(key: str, content: Json) -> str:
    """What a search looks at: the words of the key and of all texts and numbers in the content."""
    return " ".join(words_in(" ".join([key, *_texts(content)])))[:MOST_TEXT]


def _texts(content: Json) -> Iterator[str]:
    if isinstance(content, dict):
        # In the order in which they are stored: the same words, whoever looks and whenever.
        for key, value in sorted(content.items()):
            yield key
            yield from _texts(value)
    elif isinstance(content, list):
        for value in content:
            yield from _texts(value)
    elif content is not None and not isinstance(content, bool):
        yield str(content)


def ranked(found: Iterable[Trace], query: Sequence[str], limit: int) -> list[Trace]:
    """The best of these traces: most of the words, then the strongest, the newest, by key; none without any word."""
    wanted = set(query)
    scored = [(len(wanted.intersection(text_of(one.key, one.content).split())), one) for one in found]
    best = sorted((pair for pair in scored if pair[0]), key=lambda pair: _rank(*pair))
    return [one for _, one in best[:limit]]


def _rank(hits: int, trace: Trace) -> tuple[Any, ...]:
    newest = -trace.at.timestamp() if trace.at else float("-inf")
    return -hits, -trace.strength, newest, trace.namespace, trace.key
