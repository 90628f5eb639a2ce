"""The posted form of a group of writes: one verdict for all, the seal of the writes
that were shown, and proof of the samples that were opened.

A page that draws a write signs that this person was shown this revision; three such
signatures of the right writes let a group be approved. Each write is still decided, and
drafted, by itself, with the hash that the group's seal covers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.signing import Signer
from django.http import QueryDict
from django.utils.crypto import constant_time_compare

from approvals.drafts import DraftChoice
from approvals.views.review_form import Choice
from approvals.views.write_groups import WriteGroup, WriteLine, choose_by_drafts

SALT = "approvals.views.group_form.opened"
VERDICTS = ("approve", "reject")
CHANGED = (
    "Something in this group changed since you opened the page. Nothing was decided for"
    " it: look at it again."
)
UNOPENED = "Open the samples of this group before you approve it."


def opened_token(user_id: Any, write: str, hash_: str) -> str:
    """Return the proof that this person was shown this revision of a write."""
    return Signer(salt=SALT).signature(f"{user_id} {write} {hash_}")


def note_opened(groups: Iterable[WriteGroup], posted: QueryDict, user_id: Any) -> None:
    """Note in each group which of its samples the posted form proves to have been
    opened.
    """
    for group in groups:
        for line in group.samples:
            token = posted.get(f"o-{line.write}", "")
            if not token:
                continue
            # Compared in constant time, as a secret: a token must not be guessed.
            expected = opened_token(user_id, line.write, str(line.row.hash))
            if constant_time_compare(token, expected):
                group.seen.add(line.write)


def note_drafts(
    groups: Iterable[WriteGroup], drafts: Mapping[str, DraftChoice]
) -> None:
    """Put drafts onto groups; a draft for another revision than the newest counts as
    none.
    """
    for group in groups:
        for line in group.lines:
            line.chosen = drafted_verdict(line, drafts)
        choose_by_drafts(group)
        group.reason = _shared_reason(group, drafts)


def _shared_reason(group: WriteGroup, drafts: Mapping[str, DraftChoice]) -> str:
    """Return the reason that all drafts with the group's verdict give; empty if they
    differ.
    """
    if not group.chosen:
        return ""
    # The reason for a single write is no reason for the group.
    reasons = {
        drafts[line.write].reason for line in group.lines if line.chosen == group.chosen
    }
    return reasons.pop() if len(reasons) == 1 else ""


def drafted_verdict(line: WriteLine, drafts: Mapping[str, DraftChoice]) -> str:
    """Return the verdict drafted for the newest revision of a write; empty if there is
    none.
    """
    draft = drafts.get(line.write)
    if draft is None or draft.hash != line.row.hash:
        return ""
    return draft.verdict


def decided_writes(group: WriteGroup, posted: QueryDict) -> list[WriteLine]:
    """Return the writes of a group that its verdict is for: all except those decided on
    their own.
    """
    # A draft that differs from the verdict of its group was chosen on the write itself.
    return [
        line
        for line in group.lines
        if not posted.get(f"v-{line.write}") and line.chosen in ("", group.chosen)
    ]


def refusal_of(group: WriteGroup, posted: QueryDict) -> str:
    """Return why the verdict posted for a group cannot count; empty if it can."""
    # The seal covers all revisions that were shown.
    if posted.get(f"gs-{group.id}") != group.seal:
        return CHANGED
    if posted.get(f"g-{group.id}") == "approve" and not group.may_approve:
        return UNOPENED
    return ""


def group_choices(groups: Sequence[WriteGroup], posted: QueryDict) -> dict[str, Choice]:
    """Return the choices that the posted verdicts of groups stand for, by write. What
    cannot count is noted in the group's `errors`.
    """
    chosen: dict[str, Choice] = {}
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
            # Each write is signed by its own hash, which the seal covers.
            chosen[line.write] = Choice(line.write, str(line.row.hash), verdict, reason)
    return chosen


def group_drafts(
    groups: Sequence[WriteGroup],
    posted: QueryDict,
) -> tuple[list[DraftChoice], list[str]]:
    """Return a draft for each write of the posted groups, even if no verdict is
    drafted; and the groups that have changed since.
    """
    drafts: list[DraftChoice] = []
    moved: list[str] = []
    posted_groups = set(posted.getlist("group"))
    for group in groups:
        if group.id not in posted_groups:
            continue
        if refusal_of(group, posted):
            moved.append(group.id)
        else:
            drafts += _drafts_of_group(group, posted)
    return drafts, moved


def _drafts_of_group(group: WriteGroup, posted: QueryDict) -> list[DraftChoice]:
    verdict = posted.get(f"g-{group.id}", "")
    reason = posted.get(f"gr-{group.id}", "")[:10_000]
    if verdict not in VERDICTS:
        verdict = ""
        reason = ""
    drafts = []
    for line in decided_writes(group, posted):
        hash_ = str(line.row.hash)
        drafts.append(
            DraftChoice(line.write, line.row.revision, hash_, verdict, reason, {})
        )
    return drafts
