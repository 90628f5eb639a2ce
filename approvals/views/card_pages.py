"""What the cards of a review draw: which page of which part of a write somebody asked for, and which edit forms.

The address says it, `?part=<write>.<part>.<number>`, so that it works without scripts. What cannot be read is ignored.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from approvals.drafts import DraftChoice
from approvals.views.edit_script import Steps
from checkpoints.core.visible_json import escaped, fingerprint, indented
from orchestrator.engine.canonical import encode

Line = TypeVar("Line")
QUERY = "part"
_ASKED = re.compile(r"([0-9a-f-]{36})\.([a-z0-9]{1,12})\.([0-9]{1,6})", re.ASCII)
INLINE = 16 * 1024
"""Bytes of JSON that a card holds folded; more is fetched when somebody asks for it."""
RAW_PAGE = 32 * 1024
"""Characters of raw JSON on one page."""


@dataclass(frozen=True, slots=True)
class Pager:
    """One page of a part, the first being 0. `asked`: somebody asked for it."""

    part: str
    number: int
    pages: int
    asked: bool = False

    @property
    def many(self) -> bool:
        return self.pages > 1

    @property
    def shown(self) -> int:
        return self.number + 1

    @property
    def earlier(self) -> int | None:
        return self.number - 1 if self.number else None

    @property
    def later(self) -> int | None:
        return self.number + 1 if self.number + 1 < self.pages else None


@dataclass(frozen=True, slots=True)
class CardPages:
    """The pages that somebody asked for, by write and part."""

    asked: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def of_query(cls, values: Iterable[str]) -> "CardPages":
        """As the address says them."""
        found = (_ASKED.fullmatch(one) for one in values)
        return cls({(one[1], one[2]): int(one[3]) for one in found if one})

    @property
    def writes(self) -> set[str]:
        """The writes of which a part was asked for."""
        return {write for write, _ in self.asked}

    def is_asked(self, write: str, part: str) -> bool:
        return (write, part) in self.asked

    def pager(self, write: str, part: str, pages: int) -> Pager:
        """The page of that part to show; one that is not there is the last."""
        number = self.asked.get((write, part), 0)
        return Pager(part, min(number, pages - 1), pages, self.is_asked(write, part))


_LIST = re.compile(r"([0-9a-f-]{12,36})\.([0-9]{1,6})", re.ASCII)
LINES = 50
"""Writes on one page of a list."""


@dataclass(frozen=True, slots=True)
class LinePages:
    """The pages of lists of writes that somebody asked for, by the id of a request or of a group."""

    asked: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_query(cls, values: Iterable[str]) -> "LinePages":
        """As the address says them."""
        found = (_LIST.fullmatch(value) for value in values)
        return cls({match[1]: int(match[2]) for match in found if match})

    def is_asked(self, name: str) -> bool:
        return name in self.asked

    def pager(self, name: str, count: int) -> Pager:
        """The page of a list of so many writes; one that is not there is the last."""
        pages = max(1, -(-count // LINES))
        return Pager(name, min(self.asked.get(name, 0), pages - 1), pages, self.is_asked(name))

    def page(self, name: str, lines: Sequence[Line]) -> Sequence[Line]:
        """The writes on that page."""
        start = self.pager(name, len(lines)).number * LINES
        return lines[start : start + LINES]


@dataclass(frozen=True, slots=True)
class Raw:
    """A value as JSON, page by page. Where `closed` it is large, and nobody has asked for it yet."""

    label: str
    size: int
    fingerprint: str
    text: str
    pager: Pager
    closed: bool


def raw_json(label: str, value: Any, pages: CardPages, write: str, part: str) -> Raw:
    """A value as the raw JSON of a card."""
    data = encode(value)
    if len(data) > INLINE and not pages.is_asked(write, part):
        return Raw(label, len(data), fingerprint(data), "", Pager(part, 0, 1), True)
    text = indented(value)
    pager = pages.pager(write, part, max(1, -(-len(text) // RAW_PAGE)))
    start = pager.number * RAW_PAGE
    return Raw(label, len(data), fingerprint(data), escaped(text[start : start + RAW_PAGE]), pager, False)


Forms = Callable[[str], bool]
FIELDS, JSON = "fields", "json"
"""The two forms that a value can be edited in, as the form itself says which it is."""
MANY = 12
"""Writes above which an edit form is drawn field by field only where somebody asks for it."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a page draws of its cards: which page of which part, and which edit forms.

    `fields` says of a write whether its form is drawn field by field, the others being edited as JSON; `asked`,
    whether somebody asked for it, which a large value needs; `posted`, which of the two forms was posted, by write. All
    cards share the `steps` that comparing may take.
    """

    fields: Forms
    asked: Forms
    posted: Mapping[str, str] = field(default_factory=dict)
    pages: CardPages = field(default_factory=CardPages)
    steps: Steps = field(default_factory=Steps)


def drawing_with(kept: Mapping[str, DraftChoice], drawing: Drawing, writes: int) -> Drawing:
    """The edit forms to draw, those of kept edits included, as they were drawn when they were filled in.

    Of few `writes` all are edited field by field; of many only those that somebody asked for, so that the page stays
    light.
    """
    edits = {write: one for write, one in kept.items() if one.verdict == "edit" or one.fields}
    shapes = {write: one.fields[f"d-{write}"] for write, one in edits.items() if f"d-{write}" in one.fields}
    shapes |= drawing.posted

    def by_field(write: str) -> bool:
        # What was typed is read as the form that it was typed into, unless the other one is asked for now.
        if not drawing.posted and drawing.fields(write):
            return True
        return shapes[write] == FIELDS if write in shapes else writes <= MANY or drawing.fields(write)

    return replace(drawing, fields=by_field, asked=lambda write: write in edits or drawing.asked(write))
