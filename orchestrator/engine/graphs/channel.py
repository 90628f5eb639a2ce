"""Channels: named values of the state, each with its type and its reducer. Made by
`compile`; nothing here does I/O.

Values arrive as Python or JSON, are staged to canonical JSON once, and are reduced as
JSON wherever the reducer allows it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as fold
from operator import add
from typing import Any

from pydantic import BaseModel

from orchestrator.engine.errors import BROKEN, InvalidValue, PayloadTooLarge, described
from orchestrator.engine.graphs.reducer import Custom, First, Reducer
from orchestrator.engine.values import ops, values
from orchestrator.engine.values.canonical import Json, encode, normalised
from orchestrator.engine.values.exact import SCALARS, Exact
from orchestrator.engine.values.ops import Op

LIMIT = 4 * 1024 * 1024
"""The most bytes that one staged value may have, unless the caller sets another limit.
"""


@dataclass(
    frozen=True,
    slots=True,
    eq=False,
)
class Channel:
    """One channel. `sets`: its type contains sets. `is_set`: it is one. `lax_none`: its
    default is None although its type allows none. `exact`: recognizes values that are
    their own JSON form.
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
        """Return whether a held write depends on the channel's value, because the
        result replaces it.
        """
        return self.reducer.bound

    @property
    def partition(self) -> str:
        return "artifacts" if self.artifact else "scratch"

    def stage(
        self,
        value: Any,
        *,
        limit: int | None = LIMIT,
        exact_money: bool = False,
    ) -> Json:
        """Return the canonical JSON of a value of this channel's type. `limit` in
        bytes, None for no limit. With `exact_money`, a float is refused where the type
        has a Decimal.

        Raises `InvalidValue` naming channel, path and reason, or `PayloadTooLarge`.
        """
        try:
            # pydantic would give the same value back, only more slowly.
            if self.exact and self.exact(value):
                plain = normalised(value, path=(self.name,))
            else:
                plain = self._round_trip(value, exact_money=exact_money)
        except InvalidValue as error:
            raise InvalidValue(
                error.message, channel=self.name, **error.facts
            ) from error
        if limit is None:
            return plain
        # The limit is on canonical bytes, which are what is stored.
        size = len(encode(plain))
        if size > limit:
            message = (
                f"the value of {self.name} has {size} bytes, "
                f"more than the {limit} that are allowed"
            )
            raise PayloadTooLarge(
                message,
                channel=self.name,
                size=size,
                limit=limit,
            )
        return plain

    def _round_trip(
        self,
        value: Any,
        *,
        exact_money: bool,
    ) -> Json:
        """Return the JSON of a value by way of its model."""
        instance = values.validated(self.model, {self.name: value})
        if exact_money:
            values.refuse_floats_for_decimals(
                value, getattr(instance, self.name), (self.name,)
            )
        plain = values.round_trip(
            instance,
            sets=self.sets,
            only=self.name,
        )
        return plain[self.name]

    def load(self, plain: Json) -> Any:
        """Return the Python value of canonical JSON; a fresh object each time."""
        # The field's default is None although its type does not allow None, so the
        # model would refuse it.
        if plain is None and self.lax_none:
            return None
        # pydantic would give the same value back, only more slowly.
        if type(plain) in SCALARS and self.exact and self.exact(plain):
            return plain
        return getattr(values.read(self.model, {self.name: plain}), self.name)

    def reduce(
        self,
        old: Json,
        update: Json,
        *,
        unset: bool | None = None,
    ) -> tuple[Json, Op]:
        """Return the new value and the change. `unset` (for First only): nothing was
        written yet; with None, that is so while the value is the default. Raises
        `InvalidValue` if a custom reducer fails.
        """
        return self.reduce_all(
            old,
            [update],
            unset=unset,
        )

    def reduce_all(
        self,
        old: Json,
        updates: Sequence[Json],
        *,
        unset: bool | None = None,
    ) -> tuple[Json, Op]:
        """Reduce several updates in their order, as `reduce` does one."""
        reducer = self.reducer
        if isinstance(reducer, Custom):
            return self._reduce_by_function(reducer, old, updates)
        # `First` needs the values that were written before; the other rules do not.
        if reducer.name == First.name:
            if unset is None:
                unset = old == self.default
            return _set(updates[0] if unset else old)
        return _RULES[reducer.name](self, old, updates)

    def _reduce_by_function(
        self,
        reducer: Custom,
        old: Json,
        updates: Sequence[Json],
    ) -> tuple[Json, Op]:
        """Reduce by the author's function, on Python values."""
        try:
            # Fresh objects, because the author's function may modify its arguments.
            loaded_updates = [self.load(update) for update in updates]
            value = fold(reducer.fn, loaded_updates, self.load(old))
        except BROKEN as error:
            message = (
                f"the reducer {reducer.name} of {self.name} failed: {described(error)}"
            )
            raise InvalidValue(
                message,
                channel=self.name,
                reducer=reducer.name,
            ) from error
        # Each update kept the limit when it was staged; what they add up to has none.
        staged = self.stage(value, limit=None)
        # An update that leaves the same value has set the channel all the same.
        return staged, ops.between(old, staged) or ops.put(staged)


def _set(value: Json) -> tuple[Json, Op]:
    return value, ops.put(value)


def _changed(old: Json, op: Op) -> tuple[Json, Op]:
    return ops.apply(old, op), op


def _replace(
    channel: Channel,
    old: Json,
    updates: Sequence[Json],
) -> tuple[Json, Op]:
    value = updates[-1]
    return value, ops.put(value)


def _append(
    channel: Channel,
    old: Json,
    updates: Sequence[Json],
) -> tuple[Json, Op]:
    items: list[Json] = []
    for update in updates:
        items += update or []
    return _changed(old, {"op": "append", "items": items})


def _merge(
    channel: Channel,
    old: Json,
    updates: Sequence[Json],
) -> tuple[Json, Op]:
    items: dict[str, Json] = {}
    for update in updates:
        items.update(update or {})
    return _changed(old, {"op": "merge", "items": items})


def _union(
    channel: Channel,
    old: Json,
    updates: Sequence[Json],
) -> tuple[Json, Op]:
    # Compared as bytes: to Python 1, 1.0 and True are one item.
    present = {encode(item) for item in old or []}
    new: list[Json] = []
    for update in updates:
        for item in update or []:
            data = encode(item)
            if data not in present:
                present.add(data)
                new.append(item)
    # A set keeps its items in order, so that new ones are inserted.
    op = "insert" if channel.is_set else "append"
    return _changed(old, {"op": op, "items": new})


def _sum(
    channel: Channel,
    old: Json,
    updates: Sequence[Json],
) -> tuple[Json, Op]:
    # An amount is text in JSON, so values are added as what they stand for.
    summands = [channel.load(value) for value in (old, *updates) if value is not None]
    if not summands:
        return _set(None)
    try:
        return _set(channel.stage(fold(add, summands), limit=None))
    except TypeError as error:
        raise InvalidValue(
            f"values of {channel.name} cannot be added: {error}", channel=channel.name
        ) from error


def _best(
    better: Callable[[Any, Any], bool],
) -> Callable[[Channel, Json, Sequence[Json]], tuple[Json, Op]]:
    """Return the rule that keeps the best value, and of equally good ones the older.
    None is no value.
    """

    def rule(
        channel: Channel,
        old: Json,
        updates: Sequence[Json],
    ) -> tuple[Json, Op]:
        best: Json = old
        # Compared as Python values, for as text in JSON the amount 9 is more than 10.
        best_loaded = None
        if old is not None:
            best_loaded = channel.load(old)
        for update in updates:
            if update is None:
                continue
            loaded = channel.load(update)
            if loaded is None:
                continue
            if best_loaded is None or better(loaded, best_loaded):
                best = update
                best_loaded = loaded
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
