"""An approval as a program reads it: where it stands, and of each item the verdict with
the value that was signed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

UNDECIDED = frozenset({"opening", "open"})
"""The states in which people may still decide."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item. `value` is what was signed once `verdict` is "approved"; `edited` says
    whether a reviewer changed what was `proposed`.
    """

    id: str
    label: str
    effect: str | None
    verdict: str
    value: Any
    proposed: Any
    edited: bool
    hash: str
    reason: str

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """Return the item of a row of `items` in an answer."""
        return cls(**{name: row[name] for name in cls.__slots__})

    @property
    def approved(self) -> bool:
        """Return whether people approved it. `Approval.approved_items` says whether it
        may be acted on.
        """
        return self.verdict == "approved"


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval. `request` is None and `url`, the page of its review, empty before
    people are asked. `raw` is the answer as it came.
    """

    id: str
    key: str
    state: str
    title: str
    items: tuple[Item, ...]
    request: str | None
    url: str
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any], *, site: str) -> Self:
        """Return the approval of an answer of the API at this site."""
        url = ""
        if answer["request"]:
            url = f"{site}/reviews/{answer['id']}/"
        return cls(
            id=answer["id"],
            key=answer["key"],
            state=answer["state"],
            title=answer["title"],
            items=tuple(Item.read(row) for row in answer["items"]),
            request=answer["request"],
            url=url,
            raw=answer,
        )

    @property
    def decided(self) -> bool:
        """Return whether waiting is over: people decided, or it was closed."""
        return self.state not in UNDECIDED

    @property
    def approved_items(self) -> tuple[Item, ...]:
        """Return the items to act on. None where the question was closed before all were
        decided, whatever was signed of one.
        """
        if self.state not in ("approved", "partial"):
            return ()
        return tuple(item for item in self.items if item.verdict == "approved")

    def item(self, id: str) -> Item:
        """Return the item with this id. Raises `KeyError`."""
        for item in self.items:
            if item.id == id:
                return item
        names = ", ".join(item.id for item in self.items)
        raise KeyError(f"approval {self.key} has no item {id!r}; it has {names}")
