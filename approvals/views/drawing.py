"""Which edit forms a review draws, and in which of two shapes: field by field, or as JSON."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from approvals.drafts import DraftChoice
from approvals.views.card_pages import CardPages
from approvals.views.edit_script import Steps

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
    edits = {write: one for write, one in kept.items() if one.verdict == "edit"}
    shapes = {write: one.fields[f"d-{write}"] for write, one in edits.items() if f"d-{write}" in one.fields}
    shapes |= drawing.posted

    def by_field(write: str) -> bool:
        # What was typed is read as the form that it was typed into, unless the other one is asked for now.
        if not drawing.posted and drawing.fields(write):
            return True
        return shapes[write] == FIELDS if write in shapes else writes <= MANY or drawing.fields(write)

    return replace(drawing, fields=by_field, asked=lambda write: write in edits or drawing.asked(write))
