"""The faults of comments, for the examiner of approvals: each is sealed, and is compared
with the lines of the audit log that record who wrote which.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from approvals.models import RequestComment
from approvals.people.comments import LINE
from checkpoints.db.pages import pages
from checkpoints.models import AuditLine
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.verification import Fault, Subject


def faults_of_comments(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of the comments on the requests of a run. Two queries, and one
    more for each hundred comments.
    """
    run = subject.run
    # Read before the comments, because a comment comes before its line.
    lines = {} if run.imported else _lines_of_comments(run.id)
    missing = dict(lines)
    unproved: list[RequestComment] = []
    for page in pages(RequestComment.objects.filter(run=run.id), "id"):
        for row in page:
            line = missing.pop(row.id, None)
            fault = subject.seal_of(row)
            if fault is not None:
                yield fault
            elif line is None:
                unproved.append(row)
            elif not _is_about(line, row):
                yield subject.fault(row, "is not as its line of the audit log says")
    yield from _without_line(subject, unproved)
    for comment in sorted(missing):
        yield subject.missing_row(RequestComment, f"{run.id} {comment}")


def _lines_of_comments(run: UUID) -> dict[UUID, AuditLine]:
    """Return the lines of the audit log on the comments of a run, by comment. One that
    does not match its seal proves nothing.
    """
    lines: dict[UUID, AuditLine] = {}
    for line in AuditLine.objects.filter(run=run, kind=LINE):
        comment = _comment_in(line.facts)
        if comment is not None and fault_of(line, PLAIN) is None:
            lines[comment] = line
    return lines


def _comment_in(facts: Any) -> UUID | None:
    if not isinstance(facts, Mapping):
        return None
    try:
        return UUID(facts["comment"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _is_about(line: AuditLine, row: RequestComment) -> bool:
    is_same_place = (line.request, line.actor_id) == (row.request_id, row.by_id)
    write = str(row.write) if row.write is not None else None
    return is_same_place and line.facts.get("write") == write


def _without_line(subject: Subject, rows: list[RequestComment]) -> Iterator[Fault]:
    """Yield a fault for each of these comments that the audit log does not record.
    Those of imported runs were written in another installation.
    """
    if subject.run.imported or not rows:
        return
    # Comments written after the lines were read have their lines by now.
    lines = _lines_of_comments(subject.run.id)
    for row in rows:
        if row.id not in lines:
            yield subject.fault(row, "has no line in the audit log")
