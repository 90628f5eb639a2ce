"""The parts of a review's cards that an address requests: pages of long parts, pages of
lists of writes, and edit forms.

The address names them, `?part=<write>.<part>.<number>`, so that it works without
scripts. What cannot be read is ignored.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from approvals.display.edit_script import Steps
from approvals.drafts import DraftChoice
from checkpoints.core.visible_json import escaped, fingerprint, indented
from orchestrator.engine.values.canonical import encode

Line = TypeVar("Line")
QUERY = "part"
_PART = re.compile(r"([0-9a-f-]{36})\.([a-z0-9]{1,12})\.([0-9]{1,6})", re.ASCII)
INLINE = 16 * 1024
"""Bytes of JSON that a card holds folded; more is fetched on request."""
RAW_PAGE = 32 * 1024
"""The most characters of raw JSON on one page."""


def count_pages(count: int, page: int) -> int:
    """Return how many pages of `page` entries `count` entries fill; at least one."""
    return max(1, -(-count // page))


@dataclass(frozen=True, slots=True)
class Pager:
    """One page of a part, the first being 0. `requested`: by the address."""

    part: str
    number: int
    pages: int
    requested: bool = False

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
    """The requested pages, by write and part."""

    numbers: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def of_query(cls, values: Iterable[str]) -> "CardPages":
        """Read the values of the address's parameter `part`."""
        numbers: dict[tuple[str, str], int] = {}
        for value in values:
            match = _PART.fullmatch(value)
            if match is not None:
                numbers[(match[1], match[2])] = int(match[3])
        return cls(numbers)

    @property
    def writes(self) -> set[str]:
        """The writes with a requested part."""
        return {write for write, _ in self.numbers}

    def is_requested(self, write: str, part: str) -> bool:
        return (write, part) in self.numbers

    def pager(self, write: str, part: str, pages: int) -> Pager:
        """Return the page of that part to show; the last page if the requested one does
        not exist.
        """
        number = self.numbers.get((write, part), 0)
        requested = self.is_requested(write, part)
        return Pager(part, min(number, pages - 1), pages, requested)


# The id of a request is a UUID, that of a group twelve digits.
_LIST = re.compile(r"([0-9a-f-]{12,36})\.([0-9]{1,6})", re.ASCII)
LINES = 50
"""The most writes on one page of a list."""


@dataclass(frozen=True, slots=True)
class LinePages:
    """The requested pages of lists of writes, by the id of a request or of a group."""

    numbers: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_query(cls, values: Iterable[str]) -> "LinePages":
        """Read the values of the address's parameter `list`."""
        numbers: dict[str, int] = {}
        for value in values:
            match = _LIST.fullmatch(value)
            if match is not None:
                numbers[match[1]] = int(match[2])
        return cls(numbers)

    def is_requested(self, name: str) -> bool:
        return name in self.numbers

    def pager(self, name: str, count: int) -> Pager:
        """Return the page to show of a list of `count` writes; the last page where the
        requested one does not exist.
        """
        pages = count_pages(count, LINES)
        number = min(self.numbers.get(name, 0), pages - 1)
        return Pager(name, number, pages, self.is_requested(name))

    def page(self, name: str, lines: Sequence[Line]) -> Sequence[Line]:
        """Return the writes on that page."""
        start = self.pager(name, len(lines)).number * LINES
        return lines[start : start + LINES]


@dataclass(frozen=True, slots=True)
class Raw:
    """A value as JSON, page by page. Where `closed` it is large and not requested."""

    label: str
    size: int
    fingerprint: str
    text: str
    pager: Pager
    closed: bool


def raw_json(label: str, value: Any, pages: CardPages, write: str, part: str) -> Raw:
    """Return a value as the raw JSON of a card."""
    data = encode(value)
    # Size and fingerprint are shown even so: they differ if the values do.
    if len(data) > INLINE and not pages.is_requested(write, part):
        return Raw(label, len(data), fingerprint(data), "", Pager(part, 0, 1), True)
    text = indented(value)
    pager = pages.pager(write, part, count_pages(len(text), RAW_PAGE))
    start = pager.number * RAW_PAGE
    return Raw(
        label,
        len(data),
        fingerprint(data),
        escaped(text[start : start + RAW_PAGE]),
        pager,
        False,
    )


Forms = Callable[[str], bool]
FIELDS = "fields"
JSON = "json"
"""The two forms that a value can be edited in; the form itself posts which it is."""
MANY = 12
"""The number of writes above which an edit form is drawn field by field only on
request.
"""


@dataclass(frozen=True, slots=True)
class DrawnCards:
    """The parts of its cards that a page draws: which page of which part, and which
    edit forms.

    `fields` returns whether the form of a write is drawn field by field, the others
    being edited as JSON; `requested`, whether the form was requested, which that of a
    large value must be; `posted`, which of the two forms was posted, by write. All
    cards share the `steps` that comparing may take.
    """

    fields: Forms
    requested: Forms
    posted: Mapping[str, str] = field(default_factory=dict)
    pages: CardPages = field(default_factory=CardPages)
    steps: Steps = field(default_factory=Steps)


def drawing_with(
    drafts: Mapping[str, DraftChoice],
    drawing: DrawnCards,
    writes: int,
) -> DrawnCards:
    """Return a drawing with the forms of drafted edits too, in the shape in which they
    were filled in.

    If `writes` are few, all are edited field by field; if they are many, only those
    that are requested, so that the page stays light.
    """
    edits: set[str] = set()
    shapes: dict[str, str] = {}
    for write, draft in drafts.items():
        if draft.verdict != "edit" and not draft.fields:
            continue
        edits.add(write)
        shape = draft.fields.get(f"d-{write}")
        if shape is not None:
            shapes[write] = shape
    # What the page posts is newer than the draft.
    shapes |= drawing.posted

    def by_field(write: str) -> bool:
        # What was typed is read as the form that it was typed into, unless the address
        # requests the other one.
        if not drawing.posted and drawing.fields(write):
            return True
        if write in shapes:
            return shapes[write] == FIELDS
        return writes <= MANY or drawing.fields(write)

    def is_requested(write: str) -> bool:
        return write in edits or drawing.requested(write)

    return replace(drawing, fields=by_field, requested=is_requested)
