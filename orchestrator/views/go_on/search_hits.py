"""The places of a word in a state. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from approvals.display.drawn_change import ONE_LINE
from checkpoints.core.diff import Path, written
from checkpoints.core.visible_json import json_text
from orchestrator.engine.travel.patch import PARTITIONS
from orchestrator.travel.departure import State
from orchestrator.views.go_on.value_texts import plain_text
from orchestrator.views.run_details import compact

MOST_HITS = 50
"""The most places of a word that are shown."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A value of the state that contains a word, or whose path does; its channel leads
    to its field.
    """

    path: str
    channel: str
    value: str


def search_hits(
    state: State,
    word: str,
) -> list[Hit]:
    """Return the places of a word in keys and values, in upper or lower case; one more
    than are shown, if there are more.
    """
    word = word.strip().casefold()
    if not word:
        return []
    return list(islice(_places_of(word, state), MOST_HITS + 1))


def _places_of(word: str, state: State) -> Iterator[Hit]:
    for path, channel, value in _leaves(state):
        if word in path.casefold() or word in _searched_text(value):
            text = _shown_text(value)
            yield Hit(path, channel, text)


def _searched_text(value: Any) -> str:
    return _text(value).casefold()


def _shown_text(value: Any) -> str:
    if isinstance(value, dict | list):
        return compact(value)
    # A long text is shown as its beginning.
    if len(_text(value)) > ONE_LINE:
        return compact(value)
    return plain_text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _leaves(state: State) -> Iterator[tuple[str, str, Any]]:
    """Yield path, channel and value of each leaf of a state."""
    for part in PARTITIONS:
        for channel, value in state[part].items():
            for path, leaf in _below((part, channel), value):
                yield written(path), channel, leaf


def _below(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the values inside a value that contain no others, with their paths.

    Without recursion, for a state may be deep.
    """
    pending = [(path, value)]
    while pending:
        here, inner = pending.pop()
        children = _children(inner)
        if not children:
            yield here, inner
        # The last one pushed comes first.
        for key, child in reversed(children):
            below = (*here, key)
            pending.append((below, child))


def _children(value: Any) -> list[tuple[str | int, Any]]:
    """Return the values directly inside a value, with their keys."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return list(enumerate(value))
    return []
