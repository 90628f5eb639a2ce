"""The posted review form as decisions and drafts, and a person's choices, kept for when
the page must be shown again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from approvals.drafts import DraftChoice
from approvals.forms import reading
from approvals.forms.controls import Control
from checkpoints.models import PendingWrite
from orchestrator.engine.values.ops import same

VERDICTS = ("approve", "edit", "reject", "skip")


@dataclass(slots=True)
class Choice:
    """A person's choice for one write."""

    write: str
    hash: str
    verdict: str
    reason: str
    control: Control | None = None
    value: Any = None
    errors: list[str] = field(default_factory=list)

    def decision(self) -> dict[str, Any]:
        """Return the choice as the verb `sign` takes it."""
        decision: dict[str, Any] = {
            "write": self.write,
            "hash": self.hash,
            "verdict": self.verdict,
            "reason": self.reason,
        }
        if self.verdict == "edit":
            decision["value"] = self.value
        return decision


def choices(posted: QueryDict, controls: Mapping[str, Control]) -> dict[str, Choice]:
    """Return the choices of the posted form, by write; a write without a verdict is
    none. `controls` are edit forms by write.

    An edit's value is read from its form; what cannot be read is marked on the control
    and noted in `errors`.
    """
    chosen: dict[str, Choice] = {}
    fields = posted.dict()
    for write in posted.getlist("write"):
        verdict = posted.get(f"v-{write}", "")
        if verdict in VERDICTS:
            chosen[write] = _choice(fields, write, verdict, controls.get(write))
    return chosen


def _choice(
    posted: Mapping[str, Any],
    write: str,
    verdict: str,
    control: Control | None,
) -> Choice:
    hash_ = str(posted.get(f"h-{write}", ""))
    reason = str(posted.get(f"r-{write}", "")).strip()
    choice = Choice(write, hash_, verdict, reason, control)
    if control is None:
        return choice
    if not _is_drawn(posted, write):
        # Nothing was typed: the form is drawn now with the value of the write, not with
        # empty fields.
        if verdict == "edit":
            choice.errors = [
                "Its edit form was not open, so nothing was edited. Now it is."
            ]
        return choice
    # Read in any case: what was typed is kept even if another verdict was chosen in the
    # end.
    value = reading.read_form(control, posted)
    choice.value = None if value is reading.ABSENT else value
    if verdict == "edit":
        choice.errors = _errors_of(control)
    else:
        for marked in reading.errors(control):
            marked.error = ""
    return choice


def _errors_of(control: Control) -> list[str]:
    """Return a sentence for each field of a form that is marked as wrong."""
    return [
        f"{marked.label or 'Value'}: {marked.error}"
        for marked in reading.errors(control)
    ]


def drafts_in(
    posted: QueryDict,
    rows: Mapping[str, PendingWrite],
    is_typed: Callable[[PendingWrite], bool],
) -> tuple[list[DraftChoice], list[str]]:
    """Return the choices of the posted form as drafts, and the writes that have changed
    since it was drawn. `rows` are the writes that this person may decide, by id;
    choices for others are not kept. The fields of an edit form that was not chosen are
    kept where `is_typed` returns that one was changed.
    """
    drafts: list[DraftChoice] = []
    moved: list[str] = []
    plain = posted.dict()
    for write in dict.fromkeys(posted.getlist("write")):
        row = rows.get(write)
        # Settled in the meantime, or never this person's to decide.
        if row is None:
            continue
        if plain.get(f"h-{write}") != row.hash:
            moved.append(write)
        else:
            drafts.append(_draft_of(plain, write, row, is_typed))
    return drafts, moved


def _draft_of(
    posted: Mapping[str, Any],
    write: str,
    row: PendingWrite,
    is_typed: Callable[[PendingWrite], bool],
) -> DraftChoice:
    verdict = str(posted.get(f"v-{write}", ""))
    if verdict not in VERDICTS:
        verdict = ""
    reason = str(posted.get(f"r-{write}", ""))[:10_000]
    fields = _edit_fields(posted, write)
    # A form that was drawn but never touched would be kept as an edit of nothing.
    if verdict != "edit" and not (fields and is_typed(row)):
        fields = {}
    return DraftChoice(write, row.revision, row.hash, verdict, reason, fields)


def _edit_fields(posted: Mapping[str, Any], write: str) -> dict[str, str]:
    """Return the posted fields of a write's edit form, with the one that names its
    shape.
    """
    # The name of a nested field continues after a dot.
    names = {f"d-{write}", f"e-{write}"}
    return {
        name: str(value)
        for name, value in posted.items()
        if name in names or name.startswith(f"e-{write}.")
    }


def is_as_drawn(control: Control, posted: Mapping[str, Any], value: Any) -> bool:
    """Return whether an edit form that was drawn for this value was posted without a
    change. Fills the control in.
    """
    if not same(reading.read_form(control, posted), value):
        return False
    return not reading.errors(control)


def choice_of(draft: DraftChoice, control: Control | None) -> Choice:
    """Return the choice of a draft, with its edit form filled in as it was typed."""
    posted = {
        **draft.fields,
        f"h-{draft.write}": draft.hash,
        f"r-{draft.write}": draft.reason,
    }
    # Without typed fields the form is drawn from the value of the write.
    if draft.verdict != "edit" and not draft.fields:
        control = None
    return _choice(posted, draft.write, draft.verdict, control)


def _is_drawn(posted: Mapping[str, Any], write: str) -> bool:
    """Return whether the edit form of a write was on the page: every field of a form
    that was not would count as emptied.
    """
    if f"d-{write}" in posted:
        return True
    return any(name.startswith(f"e-{write}") for name in posted)


def refuse(
    choice: Choice,
    message: str,
    errors: Sequence[Mapping[str, str]],
    *,
    channel: str,
) -> None:
    """Note the errors that the verb reports: at their fields if these can be found, and
    in the list at the top.

    `errors` are [{path, reason}] as the engine names them, paths beginning with the
    channel.
    """
    if choice.control is None or choice.verdict != "edit":
        choice.errors.append(message)
        return
    for error in errors:
        path = error["path"].removeprefix(channel).lstrip(".")
        # An error that belongs to no field is one of the whole value.
        if not reading.place(choice.control, path, error["reason"]):
            choice.control.error = error["reason"]
    choice.errors += _errors_of(choice.control)


def unreadable(chosen: Sequence[Choice]) -> bool:
    """Return whether a choice could not even be read."""
    return any(choice.errors for choice in chosen)
