"""References from stored answers to the runs that they mention, by the ids in them and
in their addresses, so that the answers about one run are found without opening all.
"""

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
    """Keep the ids of an answer that is not encrypted yet. `run` is what the address
    calls a run: its id or key.
    """
    subjects = {
        UUID(match)
        for match in _ID.findall(f"{record.path} {answer.decode(errors='replace')}")
    }
    # An address may name the run by its key, and the answer need not hold its id.
    if run and not _ID.fullmatch(run):
        subjects |= set(Run.objects.filter(key=run).values_list("id", flat=True))
    AnswerReference.objects.bulk_create(
        [AnswerReference(record=record, subject=match) for match in sorted(subjects)]
    )


def answers_about(ids: Collection[UUID]) -> "QuerySet[IdempotencyRecord]":
    """Return the kept answers in which one of these ids stands, each once."""
    references = set[Any]()
    subjects = list(ids)
    # A long run has more rows than one statement may have parameters.
    for first in range(0, len(subjects), BATCH):
        batch = subjects[first : first + BATCH]
        references |= set(
            AnswerReference.objects.filter(subject__in=batch).values_list(
                "record", flat=True
            )
        )
    return IdempotencyRecord.objects.filter(id__in=references)
