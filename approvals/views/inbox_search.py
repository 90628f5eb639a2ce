"""The search of a folder of the inbox. It looks through a stretch of the folder at a
time, so that it costs the same however many reviews there are; the next page goes on
behind it.
"""

from django.db.models import Q, QuerySet

from approvals.models import ApprovalRequest
from orchestrator.engine.frozen import frozen

STRETCH = 1_000
"""The reviews that one search looks through."""


@frozen
class InboxSearch:
    """The requests that have the words. `searched`: how many requests of the folder were
    looked at, from its beginning; `is_whole`: there are no others behind them.
    """

    requests: "QuerySet[ApprovalRequest]"
    searched: int
    is_whole: bool


def search(
    folder: "QuerySet[ApprovalRequest]", words: str, *, passed: int, most: int
) -> InboxSearch:
    """Look for the words behind the first `passed` requests of a folder, of which the
    first `last_place(passed)` are sure to be complete, until a stretch ends or `most`
    were found. Two queries.
    """
    stretch = folder[passed : last_place(passed)]
    ids = list(stretch.values_list("id", flat=True))
    is_whole = len(ids) <= STRETCH
    ids = ids[:STRETCH]
    matching = folder.filter(_has(words), id__in=ids)
    matches = list(matching.values_list("id", flat=True)[: most + 1])
    if len(matches) > most:
        # The next page begins behind the last one that this page shows.
        matches = matches[:most]
        ids = ids[: ids.index(matches[-1]) + 1]
        is_whole = False
    requests = folder.filter(id__in=matches)
    return InboxSearch(requests, passed + len(ids), is_whole)


def last_place(passed: int) -> int:
    """Return up to which place of a folder a search reads that has passed so many
    requests: one beyond the stretch, which shows whether there are others.
    """
    return passed + STRETCH + 1


def _has(words: str) -> Q:
    """Return the filter for requests with these words."""
    # Titles may be encrypted, so they cannot be searched.
    of_run = Q(run__key__icontains=words) | Q(run__label__icontains=words)
    return of_run | Q(graph__icontains=words) | Q(node__icontains=words)
