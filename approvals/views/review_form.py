"""What the review form posts, as decisions; and what a person chose, kept for when the page must be shown again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from approvals.drafts import DraftChoice
from approvals.forms import reading
from approvals.forms.controls import Control
from checkpoints.models import PendingWrite
from orchestrator.engine.ops import same

VERDICTS = ("approve", "edit", "reject")


@dataclass(slots=True)
class Choice:
    """What was chosen for one write."""

    write: str
    hash: str
    verdict: str
    reason: str
    control: Control | None = None
    value: Any = None
    errors: list[str] = field(default_factory=list)

    def decision(self) -> dict[str, Any]:
        """As the signing verb wants it."""
        found: dict[str, Any] = {"write": self.write, "hash": self.hash, "verdict": self.verdict, "reason": self.reason}
        if self.verdict == "edit":
            found["value"] = self.value
        return found


def choices(posted: QueryDict, controls: Mapping[str, Control]) -> dict[str, Choice]:
    """The choices of the posted form, by write; a write without a verdict is none. `controls` are edit forms by write.

    An edit's value is read from its form; what cannot be read is marked on the control and noted in `errors`.
    """
    found, plain = {}, posted.dict()
    for write in posted.getlist("write"):
        verdict = posted.get(f"v-{write}", "")
        if verdict in VERDICTS:
            found[write] = _choice(plain, write, verdict, controls.get(write))
    return found


def _choice(posted: Mapping[str, Any], write: str, verdict: str, control: Control | None) -> Choice:
    seen, reason = str(posted.get(f"h-{write}", "")), str(posted.get(f"r-{write}", "")).strip()
    choice = Choice(write, seen, verdict, reason, control)
    if control is not None and not _is_drawn(posted, write):
        # Nothing was typed: what is drawn now is what the write holds, not empty fields.
        if verdict == "edit":
            choice.errors = ["Its edit form was not open, so nothing was edited. Now it is."]
    elif control is not None:
        # Read in any case: what was typed is kept also where another verdict was chosen in the end.
        value = reading.read_form(control, posted)
        choice.value = None if value is reading.ABSENT else value
        marked = reading.errors(control)
        if verdict == "edit":
            choice.errors = [f"{one.label or 'Value'}: {one.error}" for one in marked]
        else:
            for one in marked:
                one.error = ""
    return choice


def drafts_in(
    posted: QueryDict, rows: Mapping[str, PendingWrite], is_typed: Callable[[PendingWrite], bool]
) -> tuple[list[DraftChoice], list[str]]:
    """What the posted form chose, as drafts, and the writes that have changed since it was drawn. `rows` are the writes
    that this person may decide, by id; what is posted for others is not kept. Of an edit form that was not chosen the
    fields are kept where `is_typed` says that somebody changed one.
    """
    found, moved, plain = [], [], posted.dict()
    for write in dict.fromkeys(posted.getlist("write")):
        row, verdict = rows.get(write), str(plain.get(f"v-{write}", ""))
        if row is None:
            continue
        if plain.get(f"h-{write}") != row.hash:
            moved.append(write)
            continue
        verdict = verdict if verdict in VERDICTS else ""
        reason = str(plain.get(f"r-{write}", ""))[:10_000]
        names = (n for n in plain if n == f"d-{write}" or n == f"e-{write}" or n.startswith(f"e-{write}."))
        fields = {name: str(plain[name]) for name in names}
        fields = fields if verdict == "edit" or (fields and is_typed(row)) else {}
        found.append(DraftChoice(write, row.revision, row.hash, verdict, reason, fields))
    return found, moved


def is_as_drawn(control: Control, posted: Mapping[str, Any], value: Any) -> bool:
    """Whether an edit form that was drawn for this value was posted without a change. Fills the control in."""
    return same(reading.read_form(control, posted), value) and not reading.errors(control)


def choice_of(draft: DraftChoice, control: Control | None) -> Choice:
    """What a draft chose, with its edit form filled in as it was typed."""
    own = {f"h-{draft.write}": draft.hash, f"r-{draft.write}": draft.reason}
    return _choice(
        {**draft.fields, **own},
        draft.write,
        draft.verdict,
        control if draft.fields or draft.verdict == "edit" else None,
    )


def _is_drawn(posted: Mapping[str, Any], write: str) -> bool:
    """Whether the edit form of a write was on the page: of one that was not, every field would count as emptied."""
    return f"d-{write}" in posted or any(name.startswith(f"e-{write}") for name in posted)


def refuse(choice: Choice, message: str, found: Sequence[Mapping[str, str]], *, channel: str) -> None:
    """Note what the verb found wrong: at the fields where that can be told, and in the list at the top.

    `found` is [{path, reason}] as the engine names it, paths beginning with the channel.
    """
    if choice.control is None or choice.verdict != "edit":
        choice.errors.append(message)
        return
    for one in found:
        path = one["path"].removeprefix(channel).lstrip(".")
        if not reading.place(choice.control, path, one["reason"]):
            choice.control.error = one["reason"]
    choice.errors += [f"{one.label or 'Value'}: {one.error}" for one in reading.errors(choice.control)]


def unreadable(found: Sequence[Choice]) -> bool:
    """Whether something could not even be read."""
    return any(choice.errors for choice in found)
