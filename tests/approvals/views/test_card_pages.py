"""Which edit forms are drawn, and that what was typed into one shape is read in that
shape.
"""

from approvals.drafts import DraftChoice
from approvals.forms import controls
from approvals.views import review_form
from approvals.views.card_pages import FIELDS, JSON, MANY, DrawnCards, drawing_with

WRITE = "0b9f6a52-3f0e-4a55-9d34-0a7f5a1c1f11"
NOBODY = DrawnCards(fields=lambda _: False, requested=lambda _: False)


def _kept(shape: str) -> dict[str, DraftChoice]:
    return {WRITE: DraftChoice(WRITE, 1, "hash", "edit", "", {f"d-{WRITE}": shape})}


def test_a_draft_is_drawn_as_it_was_typed_however_many_writes_there_are() -> None:
    for writes in (1, MANY + 1):
        assert not drawing_with(_kept(JSON), NOBODY, writes).fields(WRITE)
        assert drawing_with(_kept(FIELDS), NOBODY, writes).fields(WRITE)


def test_what_is_posted_is_read_in_the_shape_that_was_posted_whatever_was_kept() -> (
    None
):
    posted = DrawnCards(
        fields=lambda _: False, requested=lambda _: True, posted={WRITE: JSON}
    )
    assert not drawing_with(_kept(FIELDS), posted, 1).fields(WRITE)


def test_who_asks_for_the_fields_gets_them() -> None:
    asked = DrawnCards(fields=lambda _: True, requested=lambda _: True)
    assert drawing_with(_kept(JSON), asked, MANY + 1).fields(WRITE)


def test_a_form_that_was_never_drawn_opens_with_what_the_write_holds() -> None:
    control = controls.root({"type": "string"}, prefix=f"e-{WRITE}", value="hello")
    choice = review_form.choice_of(
        DraftChoice(WRITE, 1, "hash", "edit", "", {}), control
    )
    assert choice.errors == [
        "Its edit form was not open, so nothing was edited. Now it is."
    ]
    assert choice.control is not None
    assert choice.control.value == "hello"
