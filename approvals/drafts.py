"""Drafts: what a person chose in a review and has not signed yet, kept so that nothing is lost. They decide nothing.

Pages save and read them; each function is about one person's own. Signing and settling remove them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from approvals.models import Draft
from checkpoints.models import Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import UNREADABLE


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """What was chosen for one write: `verdict` may be empty where only a reason or a value was typed. `fields` are
    those of its edit form by name, as they were typed, whatever the verdict. `number` counts the saves.
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
    """This person's drafts in a run, by write. One that does not open, or is not as it was saved, is left out."""
    found = {}
    for row in Draft.objects.filter(run=run, by=user.pk):
        try:
            sealed_rows.verify_row(row, protection_of(run))
            kept = read_value(row, "choice")
        except UNREADABLE:
            continue
        write = str(row.write)
        found[write] = DraftChoice(
            write, row.revision, row.seen_hash, kept["verdict"], kept["reason"], kept["fields"], row.number
        )
    return found


def save_drafts(user: Any, run: Run, choices: Sequence[DraftChoice], *, number: int) -> bool:
    """Keep these choices in the place of earlier ones; an empty one only removes. False, with nothing changed, where a
    page that is newer has saved a choice for one of the writes. Two statements and the locks, whatever their number.
    """
    writes = [UUID(one.write) for one in choices]
    earlier = Draft.objects.filter(run=run, by=user.pk, write__in=writes)
    try:
        with transaction.atomic():
            if any(kept >= number for kept in earlier.select_for_update().values_list("number", flat=True)):
                return False
            earlier.delete()
            rows = [_row(user, run, one, number) for one in choices if not one.empty]
            Draft.objects.bulk_create(sealed_rows.seal_and_encrypt(rows, protection_of(run)))
    except IntegrityError:
        return False
    return True


def _row(user: Any, run: Run, one: DraftChoice, number: int) -> Draft:
    return Draft(
        run_id=run.id,
        by_id=user.pk,
        write=UUID(one.write),
        revision=one.revision,
        seen_hash=one.hash,
        choice=pack_json({"verdict": one.verdict, "reason": one.reason, "fields": dict(one.fields)}),
        number=number,
        at=timezone.now(),
    )


def forget_drafts(run: Run, by: Any, *, signed: Iterable[UUID], settled: Collection[UUID]) -> None:
    """Remove what was signed from this person's drafts, and what is settled from everybody's. One statement."""
    Draft.objects.filter(run=run).filter(Q(by=by, write__in=list(signed)) | Q(write__in=settled)).delete()
