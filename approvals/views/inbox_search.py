"""The search of a folder of the inbox, by words and by the person who has taken a
review. It looks through a stretch of the folder at a time, so that it costs the same
however many reviews there are; the next page continues after the last one examined,
whatever has left the folder in the meantime.
"""

from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from approvals.inbox import InboxPlace
from approvals.models import ApprovalRequest, RequestStatus
from orchestrator.engine.frozen import frozen

STRETCH = 1_000
"""The reviews that one search looks through."""


@frozen
class InboxSearch:
    """The requests that meet the condition. `searched`: how many requests of the folder
    were looked at. `end`: the place up to which; None where there are no others after
    it.
    """

    requests: "QuerySet[ApprovalRequest]"
    searched: int
    end: InboxPlace | None


def search(
    folder: "QuerySet[ApprovalRequest]", condition: Q, *, most: int
) -> InboxSearch:
    """Look for what meets the condition, from the beginning of a folder, of which the first
    `number_read()` are sure to be complete, until a stretch ends or `most` were found.
    Two queries.
    """
    rows = folder.values_list("deadline", "opened_at", "id")[: number_read()]
    places = [InboxPlace(*row) for row in rows]
    is_whole = len(places) <= STRETCH
    places = places[:STRETCH]
    ids = [place.request for place in places]
    matching = folder.filter(condition, id__in=ids)
    matches = list(matching.values_list("id", flat=True)[: most + 1])
    if len(matches) > most:
        # The next page begins after the last one that this page shows.
        matches = matches[:most]
        places = places[: ids.index(matches[-1]) + 1]
        is_whole = False
    requests = folder.filter(id__in=matches)
    end = None if is_whole else places[-1]
    return InboxSearch(requests, len(places), end)


def number_read() -> int:
    """Return how many requests of a folder a search reads: one beyond the stretch,
    which shows whether there are others.
    """
    return STRETCH + 1


def has_words(words: str) -> Q:
    """Return the filter for requests with these words; of all for none."""
    if not words:
        return Q()
    # Titles may be encrypted, so they cannot be searched.
    of_run = Q(run__key__icontains=words) | Q(run__label__icontains=words)
    return of_run | Q(graph__icontains=words) | Q(node__icontains=words)


TAKEN = {
    "": "All",
    "nobody": "Free",
    "me": "Taken by you",
    "others": "Taken by others",
}
"""Whose claim is wanted -> its name on the page."""


def is_taken_by(whose: str, user: Any) -> Q:
    """Return the filter for requests by whose claim is on them, as in `TAKEN`. Nobody
    has taken what is not open.
    """
    now = timezone.now()
    lasts = Q(claim__isnull=False) & (
        Q(claim__until__isnull=True) | Q(claim__until__gt=now)
    )
    lasts &= Q(status=RequestStatus.OPEN)
    own = Q(claim__by=user.pk)
    if whose == "me":
        return lasts & own
    if whose == "others":
        return lasts & ~own
    if whose == "nobody":
        return ~lasts
    return Q()
