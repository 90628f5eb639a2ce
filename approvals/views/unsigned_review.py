"""A review that was posted and not signed: the page again with every choice, and with
the reason.
"""

from collections.abc import Iterable, Mapping, Sequence

from django.http import HttpRequest, HttpResponse

from approvals.views import group_form, inbox, review_form, write_cards
from approvals.views.review_form import Choice
from approvals.views.shown_review import Review, rendered
from approvals.views.write_cards import WriteCard
from approvals.views.write_groups import WriteGroup
from orchestrator.engine.errors import (
    AlreadyDecided,
    ConfirmationRequired,
    CountersignError,
    IncompatibleGraph,
    InvalidValue,
    KeyConflict,
    NotAReviewer,
    NotConsidered,
    PayloadTooLarge,
    StaleProposal,
    UnknownThing,
    WrongStatus,
)
from orchestrator.engine.graphs.confirmation import PASSKEY, PASSWORD

ANSWERS: dict[type[CountersignError], int] = {
    InvalidValue: 422,
    PayloadTooLarge: 422,
    UnknownThing: 404,
    NotAReviewer: 403,
    ConfirmationRequired: 403,
    StaleProposal: 409,
    AlreadyDecided: 409,
    KeyConflict: 409,
    NotConsidered: 409,
    WrongStatus: 410,
    IncompatibleGraph: 409,
}
"""The HTTP status with which the page answers each refusal of the verb `sign`."""


def show_again(
    request: HttpRequest,
    shown: Review,
    chosen: dict[str, Choice],
    error: CountersignError,
) -> HttpResponse:
    """Show the page again with the posted choices and why they were not signed."""
    moved = set(error.facts.get("moved", ()))
    _restore_group_choices(shown.groups, request)
    _restore_choices(shown.slips, chosen, moved)
    # Writes that other people settled while this person was choosing.
    lost = [slip for slip in shown.slips if slip.write in chosen and slip.settled_line]
    is_settled = isinstance(error, AlreadyDecided | WrongStatus)
    # If all of it was settled by others, the page names them rather than the error.
    if is_settled and len(lost) == len(chosen):
        shown.message = _lost(lost)
    else:
        shown.message = sentence_of(error, has_ended=bool(shown.ending))
    is_bad = isinstance(error, InvalidValue | ConfirmationRequired)
    shown.message_style = "bad" if is_bad else "wait"
    # Each problem links to the slip or group that it is about.
    shown.problems = [*_problems(shown, chosen), *_moved(shown, moved), *_settled(lost)]
    return rendered(request, shown, status=ANSWERS.get(type(error), 409))


def mark_refused_choice(chosen: Mapping[str, Choice], error: CountersignError) -> None:
    """Attach a refusal of the verb to the choice whose value is wrong."""
    choice = chosen.get(str(error.facts.get("write")))
    if choice is None:
        return
    errors = error.facts.get("errors") or [
        {"path": str(error.facts.get("path", "")), "reason": error.message}
    ]
    channel = str(error.facts.get("channel", ""))
    review_form.refuse(choice, error.message, errors, channel=channel)


def _restore_group_choices(groups: Sequence[WriteGroup], request: HttpRequest) -> None:
    """Put posted verdicts and reasons back onto groups. A verdict that could not count
    is not restored.
    """
    for group in groups:
        group.reason = request.POST.get(f"gr-{group.id}", group.reason)
        if not group.errors:
            group.chosen = request.POST.get(f"g-{group.id}", group.chosen)
    group_form.note_opened(groups, request.POST, request.user.pk)


def _restore_choices(
    slips: Sequence[WriteCard],
    chosen: Mapping[str, Choice],
    moved: set[str],
) -> None:
    """Put posted choices back onto slips, except those for an older revision."""
    for slip in slips:
        choice = chosen.get(slip.write)
        if choice is None:
            continue
        if slip.may and slip.write not in moved:
            write_cards.keep_choice(slip, choice)
        # Nobody can decide here now, but the choice made on the page stays readable.
        if slip.withdrawn:
            slip.not_sent = write_cards.CHOSEN[choice.verdict]


UNCONFIRMED = {
    PASSWORD: (
        "Nothing was signed: first confirm that it is you. Everything you chose is kept."
    ),
    PASSKEY: (
        "Nothing was signed: this is signed with a passkey, and none was used."
        " Everything you chose is kept."
    ),
}
"""Why nothing was signed, by how it must be confirmed."""


def sentence_of(error: CountersignError, *, has_ended: bool = False) -> str:
    """Return what went wrong, for people. `has_ended`: the page already explains why
    nothing can be decided here now.
    """
    # The page has a note on why, so the sentence is only about the choices.
    if isinstance(error, WrongStatus) and has_ended:
        return "Not signed: what you chose came too late and was not sent."
    if isinstance(error, StaleProposal):
        return (
            "Not signed: what you saw has changed since. Decide again on what moved;"
            " your other choices are kept."
        )
    if isinstance(error, AlreadyDecided):
        names = inbox.names_of(error.facts.get("by", ()))
        people = ", ".join(names.values()) or "the system"
        return f"Not signed: already settled by {people}."
    if isinstance(error, KeyConflict):
        return (
            "You already signed from this page, with other choices. What you chose now"
            " was not sent."
        )
    if isinstance(error, ConfirmationRequired | NotConsidered):
        return _left_to_do(error)
    if isinstance(error, InvalidValue) and error.facts.get("write"):
        return (
            "Nothing was signed: one write must be corrected first. All choices are"
            " kept."
        )
    return error.message


def _left_to_do(error: ConfirmationRequired | NotConsidered) -> str:
    """Return what this person has to do before the same choices can be signed."""
    if isinstance(error, NotConsidered):
        return f"Nothing was signed yet: {error.message}. Everything you chose is kept."
    return UNCONFIRMED.get(error.facts.get("confirm", ""), error.message)


def _lost(lost: Sequence[WriteCard]) -> str:
    """Return who settled everything that was chosen before it could be signed."""
    lines = {slip.settled_line for slip in lost}
    if len(lines) != 1:
        return (
            "Everything that you chose was settled meanwhile. Your drafts were not"
            " sent."
        )
    drafts_were = "draft was" if len(lost) == 1 else "drafts were"
    return f"{lines.pop()} Your {drafts_were} not sent."


def _problems(shown: Review, chosen: Mapping[str, Choice]) -> Iterable[dict[str, str]]:
    for group in shown.groups:
        for text in group.errors:
            yield {"anchor": group.anchor, "title": group.title, "text": text}
    for slip in shown.slips:
        if slip.write not in chosen:
            continue
        for text in chosen[slip.write].errors:
            yield {"anchor": slip.anchor, "title": slip.title, "text": text}


def _moved(shown: Review, moved: set[str]) -> Iterable[dict[str, str]]:
    for slip in shown.slips:
        if slip.write not in moved:
            continue
        cleared = "Your choice was for the older version, so it was cleared."
        slip.stale = slip.stale or f"Changed since you opened it. {cleared}"
        yield {
            "anchor": slip.anchor,
            "title": slip.title,
            "text": "changed since you opened it",
        }


def _settled(lost: Sequence[WriteCard]) -> Iterable[dict[str, str]]:
    for slip in lost:
        yield {"anchor": slip.anchor, "title": slip.title, "text": slip.settled_line}
