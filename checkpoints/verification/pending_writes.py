"""Examines the held writes of a run: the seal of each revision, and that none is missing
between two others.
"""

from collections.abc import Iterator

from checkpoints.db.pages import pages
from checkpoints.models import PendingWrite
from checkpoints.verification.base import Fault, Subject


def held_writes(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of every revision of every write, in the order in which they were
    made.
    """
    rows = PendingWrite.objects.filter(run=subject.run.id)
    for page in pages(rows, "id"):
        stored = set(
            rows.filter(write__in={row.write for row in page}).values_list(
                "write", "revision"
            )
        )
        for row in page:
            fault = subject.seal_of(row)
            if fault is not None:
                yield fault
            # An edit or a re-base adds a revision and leaves the earlier row as it is.
            elif row.revision > 1 and (row.write, row.revision - 1) not in stored:
                yield subject.missing_row(
                    PendingWrite, f"{subject.run.id} {row.write} {row.revision - 1}"
                )
