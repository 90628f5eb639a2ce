"""Sightings: when a person first had a revision of a write on the screen, and when they
had unfolded all of it. Pages and the API note them, and signing checks whether they
satisfy the gate.

All moments are by the database's clock.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from approvals.confirmation import page_of_review
from approvals.gates.request_state import load_states, policy_of
from approvals.models import ApprovalRequest, Sighting
from approvals.permissions import closed, may_decide
from checkpoints.db.clock import db_now
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import NotConsidered
from orchestrator.engine.gates.verdicts import excludes

Revision = tuple[UUID, int]
"""The id of a write, and which of its revisions."""


@dataclass(frozen=True, slots=True)
class SeenRevision:
    """A revision of a write that a person has on the screen. `opened`: all of it is
    unfolded.
    """

    run: UUID
    request: UUID
    write: UUID
    revision: int
    opened: bool

    @property
    def key(self) -> Revision:
        return (self.write, self.revision)


def seen_row(
    request: ApprovalRequest, row: PendingWrite, *, opened: bool
) -> SeenRevision:
    """Return the revision of a write of this request as one that a person sees now."""
    return SeenRevision(request.run_id, request.id, row.write, row.revision, opened)


def sightings_of(user: Any, writes: Collection[UUID]) -> dict[Revision, Sighting]:
    """Return this person's sightings of these writes, each with the moment at which
    they were read as `now`. One query; none without writes.
    """
    if not writes:
        return {}
    rows = Sighting.objects.filter(by=user.pk, write__in=writes).annotate(now=db_now())
    return {(row.write, row.revision): row for row in rows}


def unnoted(user: Any, revisions: Mapping[Revision, bool]) -> set[Revision]:
    """Return the revisions among these that still have something to note: that this
    person saw them or, where the value is true, that they unfolded all of it. One
    query.
    """
    earlier = sightings_of(user, {write for write, _ in revisions})
    missing: set[Revision] = set()
    for key, is_opened in revisions.items():
        sighting = earlier.get(key)
        if sighting is None or (is_opened and sighting.opened_at is None):
            missing.add(key)
    return missing


def note_sightings(user: Any, seen: Sequence[SeenRevision]) -> None:
    """Note that this person has these revisions on the screen now. Earlier notes stay
    unchanged. One statement, two where one of them is `opened`, none without any.
    """
    if not seen:
        return
    rows = [_row(user, revision) for revision in seen]
    opened = [revision.key for revision in seen if revision.opened]
    with transaction.atomic():
        # Two pages may show the same write for the first time at once.
        Sighting.objects.bulk_create(rows, ignore_conflicts=True)
        if opened:
            unopened = Sighting.objects.filter(by=user.pk, opened_at=None)
            unopened.filter(_any_of(opened)).update(opened_at=db_now())


def note_with_samples(
    user: Any,
    members: Sequence[tuple[SeenRevision, datetime]],
    samples: Sequence[Sighting],
) -> None:
    """Note the writes of a group that this person decides as one, as seen when they had
    seen the last of its samples; each comes with the moment at which its revision was
    made. One statement.
    """
    # A member that was revised later cannot have been seen with the samples.
    last = max(sighting.at for sighting in samples)
    opened = [sighting.opened_at for sighting in samples]
    rows: list[Sighting] = []
    for revision, made_at in members:
        row = _row(user, revision)
        row.at = max(last, made_at)
        if None not in opened:
            row.opened_at = row.at
        rows.append(row)
    Sighting.objects.bulk_create(rows, ignore_conflicts=True)


def note_read_request(user: Any, request: ApprovalRequest) -> None:
    """Note that this person has read a request whole, if they may decide it. Four
    statements, and those for their rights.
    """
    if closed(request) or not may_decide(user, request).yes:
        return
    [state] = load_states([request], protection_of(request.run))
    # The person who read it did not see what a newer request asks.
    if state.was_closed:
        return
    policy = policy_of(request)
    seen: list[SeenRevision] = []
    for row in state.writes:
        is_settled = state.standings[row.write].settled
        if not is_settled and not excludes(policy, row.author_id, user.pk):
            seen.append(seen_row(request, row, opened=True))
    note_sightings(user, seen)


def _row(user: Any, revision: SeenRevision) -> Sighting:
    return Sighting(
        run=revision.run,
        request=revision.request,
        write=revision.write,
        revision=revision.revision,
        by_id=user.pk,
        at=db_now(),
    )


def _any_of(revisions: Iterable[Revision]) -> Q:
    """Return the condition of these revisions, grouped by number: most are the first."""
    writes_by_number: dict[int, list[UUID]] = {}
    for write, number in revisions:
        writes_by_number.setdefault(number, []).append(write)
    condition = Q(pk__in=[])
    for number, writes in writes_by_number.items():
        condition |= Q(revision=number, write__in=writes)
    return condition


def require_considered(run: Run, by: Any, needed: Mapping[Revision, int | str]) -> None:
    """Raise `NotConsidered` unless this person has had each of these revisions on the
    screen for as many seconds as its gate demands; without a number, they must have
    opened it. The facts: {writes, seconds: those that are left, unopened: how many are
    to be opened, page}. One query; none if the gates demand nothing.
    """
    sightings = sightings_of(by, {write for write, _ in needed})
    seconds: dict[UUID, int] = {}
    unopened: list[UUID] = []
    for key, considered in needed.items():
        sighting = sightings.get(key)
        if not isinstance(considered, int):
            if sighting is None or sighting.opened_at is None:
                unopened.append(key[0])
            continue
        remaining = _seconds_remaining(sighting, considered)
        if remaining > 0:
            seconds[key[0]] = remaining
    if not seconds and not unopened:
        return
    longest = max(seconds.values(), default=0)
    raise NotConsidered(
        _reason(longest, len(unopened)),
        writes=[str(write) for write in (*seconds, *unopened)],
        seconds=longest,
        unopened=len(unopened),
        page=page_of_review(run),
    )


def _seconds_remaining(sighting: Any, considered: int) -> int:
    """Return the whole seconds, rounded up, until a revision has been on the screen for
    `considered`.
    """
    if sighting is None:
        return considered
    elapsed: float = (sighting.now - sighting.at).total_seconds()
    return ceil(considered - elapsed)


def _reason(seconds: int, unopened: int) -> str:
    if unopened:
        writes = "a write" if unopened == 1 else f"{unopened} writes"
        return (
            "its gate asks you to open all of a request before you decide in it, and "
            f"{writes} of it you have not opened yet"
        )
    unit = "second" if seconds == 1 else "seconds"
    return (
        "its gate asks you to look at each write before you decide it, and there "
        f"are {seconds} {unit} left"
    )
