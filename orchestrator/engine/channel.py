"""Channels: one named value of the state each, with its type and its reducer. Made by `compile`; nothing here does I/O.

Values come in as Python or JSON, are staged to canonical JSON once, and reduced as JSON wherever the reducer allows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as fold
from typing import Any

from pydantic import BaseModel

from orchestrator.engine import ops, values
from orchestrator.engine.canonical import Json, encode, normalised
from orchestrator.engine.errors import BROKEN, InvalidValue, PayloadTooLarge, described
from orchestrator.engine.exact import Exact
from orchestrator.engine.ops import Op
from orchestrator.engine.reducer import Custom, First, Reducer

LIMIT = 4 * 1024 * 1024
"""Bytes that one staged value may have, where the caller names no other limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Channel:
    """One channel. `sets`: its type holds sets. `is_set`: it is one. `lax_none`: its default is None although its
    type is not. `exact`: tells which values are their own JSON form.
    """

    name: str
    model: type[BaseModel]
    reducer: Reducer | Custom
    artifact: bool
    default: Json
    schema: dict[str, Any]
    sets: bool = False
    is_set: bool = False
    lax_none: bool = False
    exact: Exact | None = None

    @property
    def bound(self) -> bool:
        """Whether a held write depends on the channel's value, because the result replaces it."""
        return self.reducer.bound

    @property
    def partition(self) -> str:
        return "artifacts" if self.artifact else "scratch"

    def stage(self, value: Any, *, limit: int | None = LIMIT, exact_money: bool = False) -> Json:
        """Canonical JSON of a value of this channel's type. `limit` in bytes, None for no limit. With `exact_money` a
        float is refused where the type has a Decimal.

        Raises `InvalidValue` naming channel, path and reason, or `PayloadTooLarge`.
        """
        try:
            if self.exact and self.exact(value):
                plain = normalised(value, path=(self.name,))
            else:
                instance = values.validated(self.model, {self.name: value})
                if exact_money:
                    values.refuse_floats_for_decimals(value, getattr(instance, self.name), (self.name,))
                plain = values.round_trip(instance, sets=self.sets, only=self.name)[self.name]
        except InvalidValue as error:
            raise InvalidValue(error.message, channel=self.name, **error.facts) from error
        size = len(encode(plain)) if limit is not None else 0
        if limit is not None and size > limit:
            message = f"the value of {self.name} has {size} bytes, more than the {limit} that are allowed"
            raise PayloadTooLarge(message, channel=self.name, size=size, limit=limit)
        return plain

    def load(self, plain: Json) -> Any:
        """The Python value of canonical JSON; a fresh object each time."""
        if plain is None and self.lax_none:
            return None
        return getattr(values.read(self.model, {self.name: plain}), self.name)

    def reduce(self, old: Json, update: Json, *, unset: bool | None = None) -> tuple[Json, Op]:
        """The new value and what changed. `unset` (only First looks): nothing was written yet; None asks whether the
        value is still the default. Raises `InvalidValue` where a reducer of one's own fails.
        """
        return self.reduce_all(old, [update], unset=unset)

    def reduce_all(self, old: Json, updates: Sequence[Json], *, unset: bool | None = None) -> tuple[Json, Op]:
        """As `reduce`, for several updates in their order."""
        if self.reducer == First:
            free = (old == self.default) if unset is None else unset
            return _set(updates[0] if free else old)
        rule = _RULES.get(self.reducer.name) if isinstance(self.reducer, Reducer) else None
        return rule(self, old, updates) if rule else self._folded(old, updates)

    def _folded(self, old: Json, updates: Sequence[Json]) -> tuple[Json, Op]:
        """By the channel's own function, on Python values."""
        assert isinstance(self.reducer, Custom)
        try:
            value = fold(self.reducer.fn, [self.load(update) for update in updates], self.load(old))
        except BROKEN as error:
            message = f"the reducer {self.reducer.name} of {self.name} failed: {described(error)}"
            raise InvalidValue(message, channel=self.name, reducer=self.reducer.name) from error
        staged = self.stage(value, limit=None)
        return staged, ops.between(old, staged) or ops.put(staged)


def _set(value: Json) -> tuple[Json, Op]:
    return value, ops.put(value)


def _changed(old: Json, op: Op) -> tuple[Json, Op]:
    return ops.apply(old, op), op


def _replace(channel: Channel, old: Json, updates: Sequence[Json]) -> tuple[Json, Op]:
    return _set(updates[-1])


def _append(channel: Channel, old: Json, updates: Sequence[Json]) -> tuple[Json, Op]:
    return _changed(old, {"op": "append", "items": [item for update in updates for item in update or []]})


def _merge(channel: Channel, old: Json, updates: Sequence[Json]) -> tuple[Json, Op]:
    return _changed(old, {"op": "merge", "items": {k: v for update in updates for k, v in (update or {}).items()}})


def _union(channel: Channel, old: Json, updates: Sequence[Json]) -> tuple[Json, Op]:
    known = {encode(item) for item in old or []}
    new = []
    for item in (item for update in updates for item in update or []):
        data = encode(item)
        if data not in known:
            known.add(data)
            new.append(item)
    return _changed(old, {"op": "insert" if channel.is_set else "append", "items": new})


def _sum(channel: Channel, old: Json, updates: Sequence[Json]) -> tuple[Json, Op]:
    given = [channel.load(value) for value in (old, *updates) if value is not None]
    if not given:
        return _set(None)
    try:
        return _set(channel.stage(fold(lambda a, b: a + b, given), limit=None))
    except TypeError as error:
        raise InvalidValue(f"values of {channel.name} cannot be added: {error}", channel=channel.name) from error


def _best(better: Callable[[Any, Any], bool]) -> Callable[[Channel, Json, Sequence[Json]], tuple[Json, Op]]:
    """The value that none is better than; of equals the older. None is no value."""

    def rule(channel: Channel, old: Json, updates: Sequence[Json]) -> tuple[Json, Op]:
        best, loaded = old, channel.load(old) if old is not None else None
        for update in updates:
            value = channel.load(update) if update is not None else None
            if value is not None and (loaded is None or better(value, loaded)):
                best, loaded = update, value
        return _set(best)

    return rule


_RULES: dict[str, Callable[[Channel, Json, Sequence[Json]], tuple[Json, Op]]] = {
    "Replace": _replace,
    "Last": _replace,
    "Append": _append,
    "Merge": _merge,
    "Union": _union,
    "Sum": _sum,
    "Max": _best(lambda new, old: bool(new > old)),
    "Min": _best(lambda new, old: bool(new < old)),
    "Longest": _best(lambda new, old: len(new) > len(old)),
}
