"""Memory traces as values: their names and checks, and the search for them. Pure.

A wish to change memory travels as a write to the channel `$memory:<namespace>/<key>`,
whose value is {content, strength}, or None for a deletion.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, create_model

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.call import ANY_CALL, is_call
from orchestrator.engine.graphs.channel import Channel
from orchestrator.engine.graphs.reducer import Replace
from orchestrator.engine.graphs.state import schema_of
from orchestrator.engine.values.canonical import Json, normalised
from orchestrator.engine.values.identity import Task

PREFIX = "$memory:"
LONGEST_NAMESPACE = 60
LONGEST_KEY = 120
"""In characters. The name of the channel must fit into the columns for names of
channels.
"""
MOST_FOUND = 200
"""The most traces that one search may ask for."""
MOST_TEXT = 100_000
"""The most characters of a trace that a search looks at."""
LONGEST_WORD = 64
_WORD = re.compile(r"[^\W_]+")

LIVE = "live"
JOURNALED = "journaled"


@dataclass(frozen=True, slots=True)
class Trace:
    """One remembered content. `run`, `node`, `superstep` and `at` are its origin; `at` is
    None while it is staged.

    `version` counts the changes of its key, including deletions, from 1.
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
        """The value of a write to its channel."""
        return {"content": self.content, "strength": self.strength}

    @property
    def ref(self) -> list[Json]:
        """The reference to exactly this content: [namespace, key, version, strength]."""
        return [self.namespace, self.key, self.version, self.strength]


@frozen
class Landing:
    """A change of memory that lands with a commit: the n-th (from 0) of its task, on
    version `version` of its key (None: on whatever is there). `value` None deletes.
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
    """The value of a memory channel: a content, and the strength of the memory."""

    model_config = ConfigDict(extra="forbid")

    content: Any
    strength: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        strict=True,
    )


class Channels(dict[str, Channel]):
    """The channels of a graph by name. Those of memory, and that of calls, are found
    without being listed.
    """

    def __missing__(self, name: str) -> Channel:
        # Its type depends on the node: `Compiled.channel_of` has it.
        if is_call(name):
            return ANY_CALL
        if not is_memory(name):
            raise KeyError(name)
        return _channel(name)

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        return isinstance(name, str) and is_memory(name)


# Building a model takes pydantic long, and a graph writes the same keys again.
@lru_cache(maxsize=1024)
def _channel(name: str) -> Channel:
    model = create_model("Memory", **{name: (Remembered | None, None)})  # type: ignore[call-overload]
    schema = schema_of(model)["properties"][name]
    return Channel(
        name=name,
        model=model,
        reducer=Replace,
        artifact=False,
        default=None,
        schema=schema,
    )


def is_memory(channel: str) -> bool:
    """Return whether a channel's name stands for a trace."""
    return channel.startswith(PREFIX)


def channel_of(namespace: str, key: str) -> str:
    """Return the name of a trace's channel."""
    return f"{PREFIX}{namespace}/{key}"


def address_of(channel: str) -> tuple[str, str]:
    """Return (namespace, key) of a trace's channel."""
    # The first slash ends the namespace, which must not hold one; a key may.
    namespace, _, key = channel.removeprefix(PREFIX).partition("/")
    return namespace, key


def checked(namespace: Any, key: Any) -> tuple[str, str]:
    """Return the address. Raises `InvalidValue` for one that is unusable."""
    _refuse_unusable("namespace", namespace, LONGEST_NAMESPACE)
    _refuse_unusable("key", key, LONGEST_KEY)
    # The name of its channel would be read as a shorter namespace and another key.
    if "/" in namespace:
        raise InvalidValue(
            f"memory: the namespace {namespace!r} must not hold a /", path="namespace"
        )
    return namespace, key


def _refuse_unusable(
    what: str,
    text: Any,
    longest: int,
) -> None:
    if not isinstance(text, str) or not text or len(text) > longest:
        raise InvalidValue(
            f"memory: the {what} must be a text of 1 to {longest} characters", path=what
        )
    # NUL and half of a surrogate pair fit into no column.
    normalised(text, path=(what,))


def checked_limit(limit: Any) -> int:
    """Return the limit of a search. Raises `InvalidValue` for one that is unusable."""
    # To Python True is an integer, but nobody means it as a limit.
    is_whole = isinstance(limit, int) and not isinstance(limit, bool)
    if not is_whole or not 1 <= limit <= MOST_FOUND:
        raise InvalidValue(
            f"memory: limit must be a whole number from 1 to {MOST_FOUND}", path="limit"
        )
    return int(limit)


def words_in(text: str) -> list[str]:
    """Return the words of a text as searches compare them: letters and digits only,
    without case and accents.
    """
    plain = unicodedata.normalize("NFKD", text[:MOST_TEXT]).casefold()
    # After the decomposition an accent is a character by itself.
    bare = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return [word[:LONGEST_WORD] for word in _WORD.findall(bare)]


def text_of(key: str, content: Json) -> str:
    """Return the words that a search sees: those of the key, and of all texts and
    numbers in the content.
    """
    return " ".join(words_in(" ".join([key, *_texts(content)])))[:MOST_TEXT]


def _texts(content: Json) -> Iterator[str]:
    if isinstance(content, dict):
        # In the order in which they are stored, so that the words are always the same.
        for key, value in sorted(content.items()):
            yield key
            yield from _texts(value)
    elif isinstance(content, list):
        for value in content:
            yield from _texts(value)
    elif content is not None and not isinstance(content, bool):
        yield str(content)


def ranked(
    candidates: Iterable[Trace],
    query: Sequence[str],
    limit: int,
) -> list[Trace]:
    """Return the best of these traces: those with most of the words, then the
    strongest, then the newest, then by key; none without any word.
    """
    words = set(query)
    ranks: list[tuple[tuple[Any, ...], Trace]] = []
    for trace in candidates:
        hits = len(words.intersection(text_of(trace.key, trace.content).split()))
        if hits:
            ranks.append((_rank(hits, trace), trace))
    # By rank alone, for traces themselves have no order.
    ranks.sort(key=itemgetter(0))
    return [trace for _, trace in ranks[:limit]]


def _rank(hits: int, trace: Trace) -> tuple[Any, ...]:
    # A staged trace, which has no time yet, is the newest.
    newest = float("-inf")
    if trace.at:
        newest = -trace.at.timestamp()
    return -hits, -trace.strength, newest, trace.namespace, trace.key
