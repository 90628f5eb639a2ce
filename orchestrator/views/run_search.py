"""The search of the list of runs. It looks through a stretch of the list at a time, so
that it costs the same however many runs there are; the next page continues after it. A
run whose whole key, or enough of whose id, is typed is found wherever it is.
"""

from datetime import datetime
from string import hexdigits
from uuid import UUID

from django.db.models import Q

from approvals.visible_runs import VisibleRuns
from orchestrator.engine.frozen import frozen

STRETCH = 10_000
"""The runs that one search looks through."""
MOST_FOUND = 900
"""The most runs that one search finds by their words."""
MOST_NAMED = 50
"""The most runs that are found by their key or id wherever they are."""
LONGEST_SEARCH = 200
"""The most characters of a search; the rest is ignored."""
ID_DIGITS = 32
"""Hexadecimal digits of an id."""

Position = tuple[datetime, UUID]
"""A place in the list: the moment and the id of the run before it."""


@frozen
class Search:
    """The runs that were found. `end`: the place in the list up to which the search
    looked; None where it looked at all runs.
    """

    runs: VisibleRuns
    end: Position | None


def matching(words: str) -> Q:
    """Return the filter for runs with this key, label or id: keys and ids that begin
    with the words, and labels that have them.
    """
    in_words = Q(key__istartswith=words) | Q(label__icontains=words)
    return in_words | id_prefix(words)


def search(runs: VisibleRuns, words: str) -> Search:
    """Look for the words in the first `STRETCH` of these runs, in the order of the
    list. Four queries.
    """
    end = _place_behind(runs)
    stretch = runs
    if end is not None:
        at, _ = end
        stretch = runs.filter(created_at__gte=at)
    with_words = stretch.where(matching(words))[:MOST_FOUND]
    rows = list(with_words.values_list("created_at", "id"))
    if len(rows) == MOST_FOUND:
        end = rows[-1]
    ids = [id for _, id in rows]
    if end is not None:
        ids += _named(runs, words)
    return Search(runs.named_by(Q(id__in=ids)), end)


def _place_behind(runs: VisibleRuns) -> Position | None:
    """Return the place in the list up to which a stretch goes; None where there are not
    so many runs.
    """
    last_runs = runs[STRETCH - 1 : STRETCH + 1]
    last_and_next = list(last_runs.values_list("created_at", flat=True))
    if len(last_and_next) < 2:
        return None
    # All runs of that moment belong to the stretch, so nothing is before this id.
    return last_and_next[0], UUID(int=0)


def _named(runs: VisibleRuns, words: str) -> list[UUID]:
    """Return the ids of the runs of this key, and of those whose ids begin so. If these
    are many, the words are no id: then none.
    """
    with_key = runs.named_by(Q(key=words))[:1]
    ids = list(with_key.values_list("id", flat=True))
    with_prefix = runs.order_by().named_by(id_prefix(words))[: MOST_NAMED + 1]
    prefixed = list(with_prefix.values_list("id", flat=True))
    if len(prefixed) <= MOST_NAMED:
        ids += prefixed
    return ids


def id_prefix(words: str) -> Q:
    """Return the filter for ids that begin with the words; for nothing if no id can."""
    digits = words.replace("-", "").lower()
    if not digits or len(digits) > ID_DIGITS or set(digits) - set(hexdigits):
        return Q(pk__in=[])
    # A range rather than a pattern, so that the index of the primary key answers.
    first = UUID(digits.ljust(ID_DIGITS, "0"))
    last = UUID(digits.ljust(ID_DIGITS, "f"))
    return Q(id__gte=first, id__lte=last)
