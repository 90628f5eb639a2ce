"""Drafts: a person's choices in a review that are not signed yet, saved so that nothing
is lost. They decide nothing.

Pages save and read them; each function is about the drafts of one person. Signing and
settling remove them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from approvals.models import Draft
from checkpoints.db import query_cache
from checkpoints.db.limits import within_limits
from checkpoints.models import Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import UNREADABLE


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """The choice for one write. `verdict` may be empty where only a reason or a value
    was typed. `fields` are those of its edit form by name, as they were typed, whatever
    the verdict. `number` counts the saves.
    """

    write: str
    revision: int
    hash: str
    verdict: str
    reason: str
    fields: Mapping[str, str]
    number: int = 0

    @property
    def empty(self) -> bool:
        return not (self.verdict or self.reason or self.fields)


def drafts_of(user: Any, run: Run) -> dict[str, DraftChoice]:
    """Return this person's drafts in a run, by write, without those that cannot be
    decrypted or are not as they were saved.
    """
    drafts = {}
    for row in Draft.objects.filter(run=run, by=user.pk):
        try:
            # In a review of many writes a draft is signed as it is, so one that was
            # changed in the table must not count.
            sealed_rows.verify_row(row, protection_of(run))
            choice = read_value(row, "choice")
        except UNREADABLE:
            continue
        write = str(row.write)
        drafts[write] = DraftChoice(
            write=write,
            revision=row.revision,
            hash=row.seen_hash,
            verdict=choice["verdict"],
            reason=choice["reason"],
            fields=choice["fields"],
            number=row.number,
        )
    return drafts


def save_drafts(
    user: Any, run: Run, choices: Sequence[DraftChoice], *, number: int
) -> bool:
    """Replace earlier choices by these; an empty one only removes. Returns False, with
    nothing changed, where a newer page has saved a choice for one of the writes. Two
    statements and the locks, however many there are.
    """
    writes = [UUID(choice.write) for choice in choices]
    earlier = Draft.objects.filter(run=run, by=user.pk, write__in=writes)
    try:
        with transaction.atomic():
            _lock(run)
            saved = earlier.select_for_update().values_list("number", flat=True)
            # Two pages drawn at the same time save under equal numbers: the first one
            # counts.
            if any(saved_number >= number for saved_number in saved):
                return False
            earlier.delete()
            rows = [
                _row(user, run, choice, number)
                for choice in choices
                if not choice.empty
            ]
            Draft.objects.bulk_create(
                sealed_rows.seal_and_encrypt(rows, protection_of(run))
            )
    except IntegrityError:
        # Another page has saved its first choice for one of the writes in the meantime.
        return False
    return True


def _lock(run: Run) -> None:
    """Wait until nobody signs or settles in a run. Whoever does locks the run first, and
    removes drafts afterwards.
    """
    rows = Run.objects.select_for_update(no_key=True).filter(id=run.id)
    within_limits(rows.only("id")).first()


def _row(user: Any, run: Run, choice: DraftChoice, number: int) -> Draft:
    content = {
        "verdict": choice.verdict,
        "reason": choice.reason,
        "fields": dict(choice.fields),
    }
    return Draft(
        run_id=run.id,
        by_id=user.pk,
        write=UUID(choice.write),
        revision=choice.revision,
        seen_hash=choice.hash,
        choice=pack_json(content),
        number=number,
        at=timezone.now(),
    )


def forget_drafts_of(run: UUID, settled: Sequence[UUID]) -> None:
    """Remove everybody's drafts of these writes of a run. One statement."""
    writes = query_cache.padded(settled)
    query_cache.delete_selected(Draft, _query_of_settled, run, *writes)


def _query_of_settled(run: UUID, *writes: UUID) -> "QuerySet[Any, Any]":
    return Draft.objects.filter(run=run, write__in=writes).order_by().values("id")


def forget_drafts(
    run: Run, by: Any, *, signed: Iterable[UUID], settled: Collection[UUID]
) -> None:
    """Remove the signed writes from this person's drafts, and the settled ones from
    everybody's. One statement.
    """
    # Other people may still decide a write that is signed and not settled.
    over = Q(by=by, write__in=list(signed)) | Q(write__in=settled)
    Draft.objects.filter(run=run).filter(over).delete()
