"""The choice of the checkpoints that a rule removes, and the reason why each other one
stays: one decision, made by the database.

A dry run counts by it, and a removal makes it once more under the lock of the run.
Other floors add what they need of a run to `POINTS` and `REFERENCES` when they are
ready.
"""

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import (
    Case,
    CharField,
    Exists,
    F,
    Field,
    OuterRef,
    Q,
    QuerySet,
    SmallIntegerField,
    Subquery,
    Value,
    When,
)
from django.db.models.lookups import Exact, LessThan

from checkpoints.core.status import ENDS, Status
from checkpoints.db.large_reads import LookedUp
from checkpoints.models import Checkpoint, ErasureRecord, LegalHold, Pin, Run, RunLine
from checkpoints.models.checkpoint import Source
from checkpoints.models.run_line import Travel
from checkpoints.retention.rule import Rule
from checkpoints.threads import FINGERPRINT

OLD = "old"
WITH_RUN = "with_run"
KEPT_BY_POLICY = "policy"
REMOVED = (OLD, WITH_RUN)
"""The words of checkpoints that go: by themselves, or with their whole run. Each other
word is a reason to stay.
"""
WORDS = {
    OLD: "is removed",
    WITH_RUN: "is removed with its whole run",
    "tampered": "its run does not verify",
    "imported": "its run was imported as a bundle and stays as it is",
    "held": "its run is under a legal hold",
    "erasing": "values of its run are being erased",
    "thread": "its run is a thread of another engine, which may go back to any of them",
    "waits": "the run is paused here",
    "head": "the newest of its run",
    "pinned": "it is pinned",
    "forked_from": "a fork, a replay or a later line starts here",
    "prepared_from": "a decision or call still depends on it",
    "in_hand": "a worker continues from it",
    "replayed": "an unfinished replay reads it",
    KEPT_BY_POLICY: "the policy keeps it",
}
"""The words and their meaning to people, in the order in which they are checked."""

_WAITING = (Status.PAUSED, Status.WAITING)

Rows = Callable[[], "QuerySet[Any]"]
POINTS: dict[str, Rows] = {}
"""Word -> a query, correlated with a row of a checkpoint by `OuterRef`, that has a row
if the checkpoint must stay.
"""
REFERENCES: list[Any] = []
"""Models whose rows keep the row of their run."""


def classified(rule: Rule, *, exists: type[Exists] = LookedUp) -> "QuerySet[Any]":
    """Return the checkpoints of a rule's graph, each with its word as `why`. For each
    of them other tables are looked at by index; with `Exists` the database may read
    them whole, which is faster for most of its rows.
    """
    words = {word: word for word in WORDS}
    return _annotated(rule, words, CharField(), exists)


def numbered(rule: Rule, *, exists: type[Exists] = LookedUp) -> "QuerySet[Any]":
    """Return the same with the position of the word in `WORDS` as `why`: millions of
    numbers are grouped in less time than words, which a database compares by the rules
    of a language.
    """
    positions = {word: position for position, word in enumerate(WORDS)}
    return _annotated(rule, positions, SmallIntegerField(), exists)


def gone_by_themselves(rule: Rule) -> "QuerySet[Any]":
    """Return the checkpoints of a rule's graph that go while their runs stay. Other
    tables are looked at only for rows that the policy itself does not keep.
    """
    return classified(rule).filter(_old(rule), why=OLD)


def _annotated(
    rule: Rule,
    values: Mapping[str, Any],
    kind: "Field[Any, Any]",
    exists: type[Exists],
) -> "QuerySet[Any]":
    when = []
    for word, condition in _conditions(rule, exists):
        when.append(When(condition, then=Value(values[word])))
    rows = Checkpoint.objects.filter(run__graph=rule.graph).order_by()
    annotated: QuerySet[Any] = rows.annotate(
        why=Case(*when, default=Value(values[KEPT_BY_POLICY]), output_field=kind)
    )
    return annotated


def _conditions(rule: Rule, exists: type[Exists]) -> list[tuple[str, Any]]:
    """Return the words and their conditions in order: the first that is met counts."""
    head = Q(id=F("run__head"))
    holds = LegalHold.objects.filter(run=OuterRef("run_id"), released_at=None)
    pins = Pin.objects.filter(checkpoint=OuterRef("id"), released_at=None)
    departures = RunLine.objects.filter(departure=OuterRef("id"))

    # The whole run stays.
    conditions: list[tuple[str, Any]] = [
        ("tampered", Q(run__status=Status.TAMPERED)),
        ("imported", Q(run__imported=True)),
        ("held", exists(holds)),
        ("erasing", _being_erased(exists)),
    ]
    # Or it goes, with the checkpoints for which there is a reason below.
    if rule.ended:
        conditions.append((WITH_RUN, _ended(rule) & _unreferenced(exists)))
    conditions += [
        ("thread", Q(run__fingerprint=FINGERPRINT)),
        ("waits", head & Q(run__status__in=_WAITING)),
        ("head", head),
        ("pinned", exists(pins)),
        ("forked_from", Q(exists(departures)) | Q(exists(_forks()))),
    ]
    for word, rows in POINTS.items():
        conditions.append((word, exists(rows())))
    conditions += [
        ("in_hand", _in_hand()),
        ("replayed", exists(_replays())),
        (OLD, _old(rule)),
    ]
    return conditions


def _being_erased(exists: type[Exists]) -> Q:
    """Return the condition that an erasure of the run goes on. It goes through the rows
    of a run in batches. A removal between two of them would make a snapshot of rows
    that it has not reached yet, at one that it has passed; and if the run were removed,
    the erasure would never end.
    """
    going_on = ErasureRecord.objects.filter(run=OuterRef("run_id"), ended_at=None)
    return Q(run__erasure__isnull=False) & Q(exists(going_on))


def _forks() -> "QuerySet[Checkpoint]":
    """Return the first checkpoints of forks that a store made of a checkpoint: such a
    fork has no line before it is resumed.
    """
    return Checkpoint.objects.filter(parent=OuterRef("id"), source=Source.FORK)


def _replays() -> "QuerySet[RunLine]":
    """Return the unfinished replays that read a checkpoint: until its own end a replay
    reads where tasks went on the line that it departed from.
    """
    replays = RunLine.objects.filter(
        departure_run=OuterRef("run_id"),
        parent_line=OuterRef("line"),
        departure_seq__lte=OuterRef("seq"),
        number=1,
        travel=Travel.REPLAY,
    )
    return replays.exclude(run__status__in=ENDS)


def _in_hand() -> Q:
    """Return the condition that a worker may go on from a row: one on its head's line
    from the row on with which a load of the head begins; or the row before a head that
    the next commit replaces.
    """
    leased = Q(
        run__lease_until__isnull=False, line=F("run__line"), seq__gte=_of_head("anchor")
    )
    # A run that ended has a head that stays, and most runs have ended: for those
    # nothing is looked up.
    goes_on = ~Q(run__status__in=ENDS) & Q(seq=F("run__head_seq") - 1)
    return leased | (goes_on & Q(Exact(_of_head("kept"), False)))


def _of_head(column: str) -> Subquery:
    """Return a column of the run's head, which is read by its id if a row needs it.
    With EXISTS a database could answer from a list of all checkpoints, and a plan with
    such a list is executed by one process.
    """
    heads = Checkpoint.objects.filter(id=OuterRef("run__head"))
    return Subquery(heads.order_by().values(column))


def _old(rule: Rule) -> Q:
    """Return the condition that the policy itself does not keep a row."""
    # A condition that no row meets: without an age nothing is old.
    aged = Q(pk__in=[])
    for status, moment in rule.older.items():
        aged |= Q(run__status=status, created_at__lt=moment)
    chosen = aged
    if rule.keep_last is not None:
        # If a status has an age too, both must say that a checkpoint goes.
        behind = Q(seq__lte=F("run__head_seq") - rule.keep_last)
        chosen = behind & (aged | ~Q(run__status__in=list(rule.older)))
    if rule.ended:
        chosen |= _ended(rule)
    return chosen


def _ended(rule: Rule) -> Q:
    """Return the condition that a checkpoint's run has stood still for longer than runs
    in its status are kept.
    """
    # A condition that no row meets, for a status without an age keeps its runs.
    ended = Q(pk__in=[])
    for status, moment in rule.ended.items():
        # A failed run has not ended; it has stood still since its newest checkpoint.
        still = LessThan(_of_head("created_at"), moment)
        since = Q(run__ended_at__lt=moment) | (Q(run__ended_at=None) & Q(still))
        # The run's own age, a plain column, spares most rows the look at their head.
        in_status = Q(run__status=status, run__created_at__lt=moment)
        # Of our own runs that wait, each will go on.
        if status == Status.WAITING:
            in_status &= Q(run__fingerprint=FINGERPRINT)
        ended |= in_status & since
    return ended


def _unreferenced(exists: type[Exists]) -> Q:
    """Return the condition that no row that stays refers to a checkpoint's run, so that
    its row may go with all that hangs on it.
    """
    run = OuterRef("run_id")
    forked = Checkpoint.objects.filter(source=Source.FORK).order_by().values("parent")
    referring = [
        RunLine.objects.filter(departure_run=run, number=1),
        # The index of parents is partial; only a query that says so can use it.
        Run.objects.filter(parent_run=run, parent_run__isnull=False),
        Pin.objects.filter(run=run, released_at=None),
        *(model.objects.filter(run=run) for model in REFERENCES),
    ]
    # A child's parent refers to it, and a worker may still write to a leased run.
    alone = Q(run__parent_run=None, run__lease_until=None)
    for rows in referring:
        alone &= ~Q(exists(rows))
    # From the list of all forks, which are few: to look at the forks of each checkpoint
    # of a run, for each of its checkpoints, would take the square of their number.
    points = Checkpoint.objects.filter(run=run, id__in=forked)
    alone &= ~Q(Exists(points))
    return alone
