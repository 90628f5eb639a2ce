"""Of what a kept answer tells: the ids in it and in its address. What tells of one run is found without opening all."""

import re
from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from checkpoints.models import Run
from orchestrator.models import AnswerReference, IdempotencyRecord

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
BATCH = 500


def note_references(record: IdempotencyRecord, answer: bytes, *, run: str = "") -> None:
    """Keep the ids of an answer that is not encrypted yet. `run` is what the address calls a run: its id or key."""
    found = {UUID(one) for one in _ID.findall(f"{record.path} {answer.decode(errors='replace')}")}
    if run and not _ID.fullmatch(run):
        found |= set(Run.objects.filter(key=run).values_list("id", flat=True))
    AnswerReference.objects.bulk_create([AnswerReference(record=record, subject=one) for one in sorted(found)])


def answers_about(ids: Collection[UUID]) -> "QuerySet[IdempotencyRecord]":
    """The kept answers in which one of these ids stands, each once."""
    found, wanted = set[Any](), list(ids)
    for first in range(0, len(wanted), BATCH):
        some = wanted[first : first + BATCH]
        found |= set(AnswerReference.objects.filter(subject__in=some).values_list("record", flat=True))
    return IdempotencyRecord.objects.filter(id__in=found)
