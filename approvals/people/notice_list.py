"""The notices of a person in the console: how many are unread, what each says, and what
they chose to be listed.

The right to see what a notice is about is judged when it is shown.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Max, QuerySet
from django.urls import reverse

from approvals import permissions
from approvals.list_columns import CAME_BACK, EXPIRED, OPENED, SETTLED, STOPPED_RUN
from approvals.models import ApprovalRequest, MailPreference, PersonNotice
from approvals.notice_rows import (
    COMMENTED,
    ESCALATED,
    OUTCOME_REPORTED,
    REMINDED,
    REOPENED,
)
from checkpoints.db.clock import read_now
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator.engine.errors import InvalidValue

KINDS: Mapping[str, tuple[str, ...]] = {
    "reviews": (OPENED, CAME_BACK, REMINDED, ESCALATED),
    "outcomes": (SETTLED, OUTCOME_REPORTED, EXPIRED, REOPENED, STOPPED_RUN),
    "comments": (COMMENTED,),
}
"""Kind that people switch on and off -> its events."""
KIND_WORDS = {
    "reviews": "reviews that wait for you",
    "outcomes": "what came of what you signed",
    "comments": "comments on your reviews",
}
SENTENCES = {
    OPENED: "A review was opened",
    CAME_BACK: "A review came back",
    REMINDED: "A review still waited",
    ESCALATED: "Others were asked about a review too",
    SETTLED: "A review that you signed was decided",
    OUTCOME_REPORTED: "What you approved did not come off, as the caller reported",
    EXPIRED: "A review that you signed was closed by its deadline",
    REOPENED: "A review that you signed was re-opened",
    STOPPED_RUN: "A run in which you signed ended or stopped",
    COMMENTED: "Somebody commented on a review",
}
"""Event -> the sentence to a person."""
UNSEEN = "No longer visible to you"
MANY = 99
"""The most unread notices that are counted; a bell shows more as 99+."""


@dataclass(frozen=True, slots=True)
class ListedNotice:
    """A notice as its person reads it. It has no title, link or outcome once they may
    no longer see what it is about.
    """

    row: PersonNotice
    sentence: str
    title: str
    link: str
    outcome: str


def notices_of(user: Any) -> "QuerySet[PersonNotice]":
    """Return the notices of a person, the newest first."""
    return PersonNotice.objects.filter(user=user.pk).order_by("-notice")


def count_unread(user: Any) -> int:
    """Return how many notices a person has not read, at most one more than `MANY`. One
    look at an index, however many there are.
    """
    unread = PersonNotice.objects.filter(user=user.pk, read_at=None)
    return unread.order_by()[: MANY + 1].count()


def listed_notices(user: Any, rows: Sequence[PersonNotice]) -> list[ListedNotice]:
    """Return these notices of a person with what they are about, as far as the person
    may see it now. Two queries, and those for the person's rights.
    """
    runs = Run.objects.filter(id__in={row.run for row in rows}).defer("input")
    visible = {run.id: run for run in permissions.visible_among(user, runs)}
    titles = _titles(rows, visible)
    notices: list[ListedNotice] = []
    for row in rows:
        if row.run in visible:
            notices.append(_visible_notice(row, visible[row.run], titles))
        else:
            notices.append(ListedNotice(row, UNSEEN, "", "", ""))
    return notices


def _visible_notice(
    row: PersonNotice, run: Run, titles: Mapping[UUID | None, str]
) -> ListedNotice:
    page = "run" if row.request is None else "review"
    return ListedNotice(
        row,
        sentence=SENTENCES.get(row.event, row.event),
        title=titles.get(row.request) or run.label or run.key,
        link=reverse(page, args=[run.id]),
        outcome=row.outcome,
    )


def _titles(
    rows: Sequence[PersonNotice], visible: Mapping[UUID, Run]
) -> dict[UUID | None, str]:
    """Return the titles of the requests of visible runs, by request. One query."""
    ids = {row.request for row in rows if row.run in visible and row.request}
    titles: dict[UUID | None, str] = {}
    for request in ApprovalRequest.objects.filter(id__in=ids, run__in=visible):
        # Otherwise it would be read again, to open the title.
        request.run = visible[request.run_id]
        titles[request.id] = str(read_or_reason(request, "title") or "")
    return titles


def newest_unread(user: Any) -> int | None:
    """Return the id of a person's newest unread notice; None if there is none. One
    query.
    """
    unread = PersonNotice.objects.filter(user=user.pk, read_at=None)
    newest: int | None = unread.aggregate(newest=Max("id"))["newest"]
    return newest


def mark_read(user: Any, *, until: int) -> int:
    """Mark a person's notices up to this id as read, and return how many were unread.
    Newer ones stay unread.
    """
    # Notices are numbered when the event happens; one that commits late may follow
    # higher numbers.
    unread = PersonNotice.objects.filter(user=user.pk, read_at=None, id__lte=until)
    return unread.update(read_at=read_now())


def choose_kinds(user: Any, listed: Collection[str]) -> None:
    """List these kinds of notices for a person from now on, and no others. Raises
    `InvalidValue`.
    """
    unknown = sorted(set(listed) - KINDS.keys())
    if unknown:
        raise InvalidValue(
            f"there are no notices of the kind {unknown[0]}", path="kind"
        )
    muted = [kind for kind in KINDS if kind not in listed]
    MailPreference.objects.update_or_create(user_id=user.pk, defaults={"muted": muted})


def kind_of(event: str) -> str:
    """Return the kind of an event; empty if the console does not list it."""
    for kind, events in KINDS.items():
        if event in events:
            return kind
    return ""
