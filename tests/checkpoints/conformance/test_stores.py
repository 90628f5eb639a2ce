"""The suite for stores finds one that breaks a rule, in any one way."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from checkpoints.store import MemoryStore, Stored, conformance
from orchestrator.engine.errors import InvalidValue, UnknownThing

pytestmark = pytest.mark.django_db(transaction=True)


class Last(MemoryStore):
    """Keeps one checkpoint a run."""

    def save(self, run: UUID | str, state: Any, **about: Any) -> Stored:
        self.clear(run)
        return super().save(run, state, **about)


class Loose(MemoryStore):
    """Takes % and _ of a key for any letters, as LIKE does."""

    def clear(self, run: UUID | str) -> int:
        key = str(run)
        for neighbour in (
            [f"{key[:-1]}{sign}" for sign in "%_x"] if key[-1] in "%_" else []
        ):
            super().clear(neighbour)
        return super().clear(run)


class Unpatched(MemoryStore):
    def fork(self, checkpoint: UUID | str, patch: Any = None) -> Stored:
        return super().fork(checkpoint)


class Prefix(MemoryStore):
    """Deletes the whole run with one checkpoint."""

    def delete(self, checkpoint: UUID | str) -> None:
        try:
            self.clear(self.get(checkpoint).meta.run)
        except UnknownThing:
            return


class Strict(MemoryStore):
    def delete(self, checkpoint: UUID | str) -> None:
        self.get(checkpoint)
        super().delete(checkpoint)


class OldestFirst(MemoryStore):
    def list(self, *args: Any, **kwargs: Any) -> Any:
        return list(super().list(*args, **kwargs))[::-1]


class ForkInPlace(MemoryStore):
    def fork(self, checkpoint: UUID | str, patch: Any = None) -> Stored:
        origin = self.get(checkpoint)
        return self.save(origin.meta.run, origin.state)


class Unlimited(MemoryStore):
    def list(
        self, graph: Any = None, run: Any = None, limit: int = 50, before: Any = None
    ) -> Any:
        return super().list(graph, run, 1000, before)


class TakesAnything(MemoryStore):
    def save(self, run: UUID | str, state: Any, **about: Any) -> Stored:
        try:
            return super().save(run, state, **about)
        except InvalidValue:
            return super().save(run, {})


@pytest.mark.parametrize(
    "kind",
    [
        Last,
        Loose,
        Unpatched,
        Prefix,
        Strict,
        OldestFirst,
        ForkInPlace,
        Unlimited,
        TakesAnything,
    ],
)
def test_a_store_that_breaks_one_rule_is_found(kind: Callable[[], Any]) -> None:
    with pytest.raises(conformance.Broken):
        conformance.check_store(kind)
