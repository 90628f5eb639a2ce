"""What stores take and give: a checkpoint's metadata, and the same with its state. Pure; every store uses it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from checkpoints.core.arguments import checked_text
from checkpoints.core.ids import is_storable, unknown_thing
from orchestrator.engine import canonical
from orchestrator.engine.errors import InvalidValue, KeyConflict, UnknownThing

PARTITIONS = ("input", "scratch", "artifacts", "diagnostics")
MOST = 1000
"""Checkpoints of one list."""

State = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint without its state: all that a list gives. Sizes are in bytes."""

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
    """A checkpoint with its state: {input, scratch, artifacts, diagnostics}, each by channel."""

    meta: Stored
    state: State


def run_id(run: UUID | str) -> UUID:
    """The id of a run by its id or key. A key that stands for no run of the database has an id of its own, always the
    same. Raises `InvalidValue` for what can be no key.
    """
    if isinstance(run, UUID):
        return run
    if not isinstance(run, str) or not 1 <= len(run) <= 200 or set(run) & {"/", ":"} or not is_storable(run):
        raise InvalidValue("a run is named by its id, or by a key of 1 to 200 characters without / and :", path="run")
    try:
        return UUID(run)
    except ValueError:
        return uuid5(NAMESPACE_URL, f"countersign:run:{canonical.digest(run.encode('utf-8', 'surrogatepass'))}")


def checkpoint_id(id: UUID | str | None) -> UUID | None:
    """The id that a checkpoint is to have; None where the store makes one. Raises `InvalidValue`."""
    if id is None or isinstance(id, UUID):
        return id
    try:
        return UUID(id)
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidValue("a checkpoint's id is a UUID", path="id") from error


def saved_before(saved: Snapshot, run: UUID, state: State) -> Stored:
    """What a save gives whose id is there already. Raises `KeyConflict` where that is another checkpoint."""
    if saved.meta.run != run or saved.state != state:
        message = f"checkpoint {saved.meta.id} is there already, of another run or with another state"
        raise KeyConflict(message, checkpoint=str(saved.meta.id))
    return saved.meta


def checked_state(state: Mapping[str, Any]) -> State:
    """The state as it is kept: JSON of its own, all partitions there. Raises `InvalidValue` naming the place."""
    if not isinstance(state, Mapping) or not set(state) <= set(PARTITIONS):
        raise InvalidValue(f"a state is an object with {', '.join(PARTITIONS)}", path="")
    for name, values in state.items():
        if not isinstance(values, Mapping):
            raise InvalidValue(f"{name} is an object of channels", path=name)
    return {name: canonical.normalised(dict(state.get(name, {})), path=(name,)) for name in PARTITIONS}


def checked_limit(limit: int) -> int:
    """The limit of a list. Raises `InvalidValue`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
        raise InvalidValue(f"limit is a whole number from 1 to {MOST}", path="limit")
    return limit


@dataclass(frozen=True, slots=True)
class About:
    """What `save` is told of a checkpoint beside its state. Raises `InvalidValue` for what no row can hold."""

    graph: str = ""
    version: str = ""
    fingerprint: str = ""
    node: str | Sequence[str] = ""
    superstep: int | None = None

    def __post_init__(self) -> None:
        for name, most in (("graph", 200), ("version", 50), ("fingerprint", 64)):
            text = getattr(self, name)
            checked_text(text, name, most=most)
        if not isinstance(self.node, Sequence) or not all(
            isinstance(one, str) and is_storable(one) for one in self.nodes
        ):
            raise InvalidValue("node is a name or a list of names", path="node")
        number = self.superstep
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**31):
            raise InvalidValue("superstep is a whole number from 0", path="superstep")

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that made the checkpoint."""
        return tuple(self.node) if not isinstance(self.node, str) else (self.node,) if self.node else ()


def unknown(checkpoint: object) -> UnknownThing:
    """That there is no such checkpoint."""
    return unknown_thing("checkpoint", checkpoint)
