"""What is posted of a group of writes: one verdict for all, the seal of what was shown, and proof of what was opened.

A page that draws a write signs that this person was shown this revision; three such signatures of the right writes let
a group be approved. Each write is still decided, and drafted, by itself, with the hash that the group's seal covers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.signing import Signer
from django.http import QueryDict
from django.utils.crypto import constant_time_compare

from approvals.drafts import DraftChoice
from approvals.views.review_form import Choice
from approvals.views.write_groups import Group, WriteLine, choose_by_drafts

SALT = "approvals.views.group_form.opened"
VERDICTS = ("approve", "reject")
CHANGED = "Something in this group changed since you opened the page. Nothing was decided for it: look at it again."
UNOPENED = "Open the samples of this group before you approve it."


def opened_token(user_id: Any, write: str, hash_: str) -> str:
    """What proves that this person was shown this revision of a write."""
    return Signer(salt=SALT).signature(f"{user_id} {write} {hash_}")


def note_opened(groups: Iterable[Group], posted: QueryDict, user_id: Any) -> None:
    """Note in each group which of its samples the posted form proves to have been opened."""
    for group in groups:
        for line in group.samples:
            token = posted.get(f"o-{line.write}", "")
            if token and constant_time_compare(token, opened_token(user_id, line.write, str(line.row.hash))):
                group.seen.add(line.write)


def note_drafts(groups: Iterable[Group], kept: Mapping[str, DraftChoice]) -> None:
    """Put what was drafted onto groups; a draft for another revision than the newest is none."""
    for group in groups:
        for line in group.lines:
            line.chosen = drafted_verdict(line, kept)
        choose_by_drafts(group)
        reasons = {kept[line.write].reason for line in group.lines if line.chosen == group.chosen != ""}
        group.reason = reasons.pop() if len(reasons) == 1 else ""


def drafted_verdict(line: WriteLine, kept: Mapping[str, DraftChoice]) -> str:
    """The verdict that is drafted for a write as it stands; empty where there is none."""
    draft = kept.get(line.write)
    return draft.verdict if draft is not None and draft.hash == line.row.hash else ""


def decided_writes(group: Group, posted: QueryDict) -> list[WriteLine]:
    """The writes of a group that its verdict is for: all but those that were decided on their own."""
    own = {line.write for line in group.lines if posted.get(f"v-{line.write}")}
    return [line for line in group.lines if line.write not in own and line.chosen in ("", group.chosen)]


def refusal_of(group: Group, posted: QueryDict) -> str:
    """Why the verdict that was posted for a group cannot count; empty where it can."""
    if posted.get(f"gs-{group.id}") != group.seal:
        return CHANGED
    if posted.get(f"g-{group.id}") == "approve" and not group.may_approve:
        return UNOPENED
    return ""


def group_choices(groups: Sequence[Group], posted: QueryDict) -> dict[str, Choice]:
    """The choices that the posted verdicts of groups stand for, by write. What cannot count is noted in `errors`."""
    found: dict[str, Choice] = {}
    for group in groups:
        verdict = posted.get(f"g-{group.id}", "")
        if verdict not in VERDICTS:
            continue
        refusal = refusal_of(group, posted)
        if refusal:
            group.errors.append(refusal)
            continue
        reason = posted.get(f"gr-{group.id}", "").strip()[:10_000]
        for line in decided_writes(group, posted):
            found[line.write] = Choice(line.write, str(line.row.hash), verdict, reason)
    return found


def group_drafts(groups: Sequence[Group], posted: QueryDict) -> tuple[list[DraftChoice], list[str]]:
    """What the posted groups draft for each of their writes, none included; and the groups that have changed since."""
    found: list[DraftChoice] = []
    moved: list[str] = []
    posted_groups = set(posted.getlist("group"))
    for group in groups:
        if group.id not in posted_groups:
            continue
        if refusal_of(group, posted):
            moved.append(group.id)
            continue
        verdict = posted.get(f"g-{group.id}", "")
        reason = posted.get(f"gr-{group.id}", "")[:10_000]
        verdict = verdict if verdict in VERDICTS else ""
        for line in decided_writes(group, posted):
            revision, hash_ = line.row.revision, str(line.row.hash)
            found.append(DraftChoice(line.write, revision, hash_, verdict, reason if verdict else "", {}))
    return found, moved
