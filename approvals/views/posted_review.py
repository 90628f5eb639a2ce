"""A posted review: the choices made on the page, and what keeps them from being signed."""

from collections.abc import Mapping
from operator import attrgetter

from django.http import HttpRequest, QueryDict

from approvals.views import group_form, review_form
from approvals.views.card_pages import FIELDS, DrawnCards
from approvals.views.review_form import Choice
from approvals.views.shown_review import Review
from orchestrator.engine.errors import CountersignError, InvalidValue

NEWER = (
    "Not signed: another page of yours has newer choices. Look at what is chosen now,"
    " and sign again."
)


def choices_posted(request: HttpRequest, shown: Review) -> dict[str, Choice]:
    """Return everything that was chosen, by write. The page of a review of many posts
    only the writes open on it and the verdicts of groups; the person's other choices
    are taken from the drafts.
    """
    # Only what is drawn has an edit form; edits of other writes are in the drafts.
    controls = {
        slip.write: slip.control for slip in shown.slips if slip.control is not None
    }
    posted = review_form.choices(request.POST, controls)
    # A smaller review has each write on its page.
    if not shown.many:
        return posted
    group_form.note_opened(shown.groups, request.POST, request.user.pk)
    of_groups = group_form.group_choices(shown.groups, request.POST)
    on_page = set(request.POST.getlist("write"))
    drafted: dict[str, Choice] = {}
    for line in shown.lines:
        if line.may and line.chosen and line.write not in on_page:
            drafted[line.write] = review_form.choice_of(
                shown.drafts[line.write], controls.get(line.write)
            )
    # A choice on the page itself outranks the verdict of its group, and both a draft.
    return {**drafted, **of_groups, **posted}


def posted_number(posted: QueryDict) -> int:
    """Return the number under which the posted page saves drafts; 1 if it cannot be
    read.
    """
    number = posted.get("number", "")
    # The length first: Python refuses to read a number of thousands of digits.
    if number.isdecimal() and len(number) < 16:
        return int(number)
    return 1


def as_posted(posted: QueryDict) -> DrawnCards:
    """Return a drawing with the posted edit forms, each in the shape that it names; the
    form of an edit that was chosen without its form on the page is drawn too.
    """
    drawn: set[str] = set()
    shapes: dict[str, str] = {}
    for name, value in posted.items():
        if name.startswith("e-"):
            drawn.add(name.removeprefix("e-").partition(".")[0])
        elif name.startswith("d-"):
            shapes[name.removeprefix("d-")] = str(value)

    def by_field(write: str) -> bool:
        if write in shapes:
            return shapes[write] == FIELDS
        # A form that names no shape was posted as JSON when its only field is there.
        return f"e-{write}" not in posted

    def is_requested(write: str) -> bool:
        return write in drawn or posted.get(f"v-{write}") == "edit"

    return DrawnCards(fields=by_field, requested=is_requested, posted=shapes)


def obstacle_to_signing(
    shown: Review,
    chosen: Mapping[str, Choice],
    posted: QueryDict,
) -> CountersignError | None:
    """Return why the posted choices cannot be given to the verb `sign`; None if they
    can.
    """
    if shown.refusal is not None:
        return shown.refusal
    # The page of a review of many posts only what is open on it; newer drafts of other
    # writes would be signed without having been seen on it.
    if shown.many and _has_newer(shown, posted):
        return CountersignError("newer_choices", NEWER)
    if any(map(attrgetter("errors"), shown.groups)):
        return InvalidValue("Nothing was signed: a group cannot be decided yet.")
    if review_form.unreadable(list(chosen.values())):
        return InvalidValue("An edit cannot be read. Nothing was signed.")
    if not chosen:
        return InvalidValue(
            "Nothing was decided, so nothing was signed. Choose for at least one write."
        )
    return None


def _has_newer(shown: Review, posted: QueryDict) -> bool:
    """Return whether another page of this person has saved drafts since the posted page
    was drawn or last saved.
    """
    at = posted_number(posted)
    return any(draft.number >= at for draft in shown.drafts.values())
