"""The arguments and results of stores: a checkpoint's metadata, and the same with its
state. Pure; every store uses it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from checkpoints.core.arguments import checked_text
from checkpoints.core.ids import is_storable, unknown_thing
from orchestrator.engine.errors import InvalidValue, KeyConflict, UnknownThing
from orchestrator.engine.values import canonical
from orchestrator.engine.values.ops import same

PARTITIONS = ("input", "scratch", "artifacts", "diagnostics")
MOST = 1000
"""The most checkpoints of one list."""

State = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint without its state, as lists return it. Sizes are in bytes."""

    id: UUID
    run: UUID
    seq: int
    superstep: int
    line: int
    source: str
    parent: UUID | None
    graph: str
    version: str
    fingerprint: str
    nodes: tuple[str, ...]
    created_at: datetime
    stored_size: int
    state_size: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint with its state: {input, scratch, artifacts, diagnostics}, each by
    channel.
    """

    meta: Stored
    state: State


def run_id(run: UUID | str) -> UUID:
    """Return the id of a run by its id or key. A key that names no run of the database
    has an id too, always the same. Raises `InvalidValue` for a value that cannot be a
    key.
    """
    if isinstance(run, UUID):
        return run
    is_key = isinstance(run, str) and 1 <= len(run) <= 200 and is_storable(run)
    if not is_key or not {"/", ":"}.isdisjoint(run):
        raise InvalidValue(
            "a run is named by its id, "
            "or by a key of 1 to 200 characters without / and :",
            path="run",
        )
    try:
        return UUID(run)
    except ValueError:
        digest = canonical.digest(run.encode("utf-8", "surrogatepass"))
        return uuid5(NAMESPACE_URL, f"countersign:run:{digest}")


def checkpoint_id(id: UUID | str | None) -> UUID | None:
    """Return the id that a checkpoint gets; None if the store makes one. Raises
    `InvalidValue`.
    """
    if id is None or isinstance(id, UUID):
        return id
    try:
        return UUID(id)
    # Values of other types fail within `UUID`.
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidValue("a checkpoint's id is a UUID", path="id") from error


def saved_before(
    saved: Snapshot,
    run: UUID,
    state: State,
) -> Stored:
    """Return the result of a save whose id is there already. Raises `KeyConflict` if
    that is another checkpoint.
    """
    if saved.meta.run != run or not same(saved.state, state):
        raise KeyConflict(
            f"checkpoint {saved.meta.id} is there already, "
            "of another run or with another state",
            checkpoint=str(saved.meta.id),
        )
    return saved.meta


def checked_state(state: Mapping[str, Any]) -> State:
    """Return the state as it is stored: a copy as JSON, with all partitions. Raises
    `InvalidValue` naming the place.
    """
    if not isinstance(state, Mapping) or not set(state) <= set(PARTITIONS):
        raise InvalidValue(
            f"a state is an object with {', '.join(PARTITIONS)}", path=""
        )
    for name, values in state.items():
        if not isinstance(values, Mapping):
            raise InvalidValue(f"{name} is an object of channels", path=name)
    # A copy, so that the caller may change its state afterwards.
    checked = {}
    for name in PARTITIONS:
        values = dict(state.get(name, {}))
        checked[name] = canonical.normalised(values, path=(name,))
    return checked


def checked_limit(limit: int) -> int:
    """Return the limit of a list. Raises `InvalidValue`."""
    is_number = isinstance(limit, int) and not isinstance(limit, bool)
    if not is_number or not 1 <= limit <= MOST:
        raise InvalidValue(f"limit is a whole number from 1 to {MOST}", path="limit")
    return limit


@dataclass(frozen=True, slots=True)
class About:
    """The arguments of `save` that describe a checkpoint besides its state. Raises
    `InvalidValue` for those that no row can hold.
    """

    graph: str = ""
    version: str = ""
    fingerprint: str = ""
    node: str | Sequence[str] = ""
    superstep: int | None = None

    def __post_init__(self) -> None:
        for name, most in (("graph", 200), ("version", 50), ("fingerprint", 64)):
            text = getattr(self, name)
            checked_text(text, name, most=most)
        if not isinstance(self.node, Sequence) or not all(map(_is_name, self.nodes)):
            raise InvalidValue("node is a name or a list of names", path="node")
        if self.superstep is not None and not _is_number(self.superstep):
            raise InvalidValue("superstep is a whole number from 0", path="superstep")

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that made the checkpoint."""
        if not isinstance(self.node, str):
            return tuple(self.node)
        if not self.node:
            return ()
        return (self.node,)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and is_storable(value)


def _is_number(value: Any) -> bool:
    """Return whether a value is a whole number that its column holds."""
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return 0 <= value < 2**31


def unknown(checkpoint: object) -> UnknownThing:
    """Return the error that there is no such checkpoint."""
    return unknown_thing("checkpoint", checkpoint)
