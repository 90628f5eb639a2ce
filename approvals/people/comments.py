"""Comments: what people say to each other about a request, for everybody who may see it.
A comment is no decision, is never part of what anybody signs, and changes nothing.

Writing it needs neither the run's lock nor a line in its log, so no worker waits or has
to commit again. The line of the audit log proves that it was written.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Count

from approvals import permissions
from approvals.models import ApprovalRequest, RequestComment
from approvals.notice_rows import write_comment_notice
from checkpoints.audit import lines as audit_log
from checkpoints.core.arguments import checked_person, checked_text
from checkpoints.core.ids import uuid7, uuid_of
from checkpoints.db.clock import read_now
from checkpoints.db.limits import within_limits
from checkpoints.db.shared_locks import lock_keys
from checkpoints.models import ErasureRecord, PendingWrite, Run
from checkpoints.sealing import data_keys, run_row, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import (
    InvalidValue,
    KeyConflict,
    UnknownThing,
    WrongStatus,
)

LONGEST = 4_000
"""The most characters of a comment."""
MOST = 1_000
"""The most comments on a request; concurrent writers may exceed it by a few."""
MOST_OF_PERSON = 200
"""The most comments of one person on a request, so that nobody uses up the space of
all.
"""
SHOWN = 50
"""The most comments that a page shows: the newest."""
LINE = "request_commented"
"""The kind of the line that a comment leaves in the audit log."""


def comment(
    request_id: UUID | str,
    text: str,
    *,
    by: Any,
    write: UUID | str | None = None,
    id: UUID | str | None = None,
) -> RequestComment:
    """Write a comment on a request, or on one write of it, and return it. Anyone who
    may see the run may comment, even after the request is closed or the run has ended.
    Whoever posts the same comment again under the same `id` gets the existing one.

    Raises, having changed nothing: `InvalidValue` (no text, too long, a write of
    another request, or too many comments), `UnknownThing` (also where this person may
    not see the run), `WrongStatus` (the run was imported, or is being erased),
    `KeyConflict` (the id is taken by another comment), `TamperedRow`, `WrongKey`.
    """
    by = checked_person(by, "by")
    checked_text(text, "text", most=LONGEST)
    if not text.strip():
        raise InvalidValue("a comment needs a text", path="text")
    comment_id = uuid7() if id is None else uuid_of(id, "comment")
    request_uuid = uuid_of(request_id, "request")
    try:
        return _written(request_uuid, comment_id, text, write, by)
    except IntegrityError:
        # The same comment was posted at the same moment, and is there by now.
        return _written(request_uuid, comment_id, text, write, by)


@transaction.atomic
def _written(
    request_id: UUID, comment_id: UUID, text: str, write: UUID | str | None, by: Any
) -> RequestComment:
    """Write a comment, or return the existing one under its id."""
    request = _seen_request(request_id, by)
    row = RequestComment(
        id=comment_id,
        run=request.run,
        request=request,
        write=_write_of(request, write),
        text=pack_json(text),
        by=by,
        by_name=by.get_username(),
        at=read_now(),
    )
    earlier = _earlier(row, text)
    if earlier is not None:
        return earlier
    _require_room(request, by)
    _insert(row)
    # From here on SQLite blocks other writers, so this is read after the insert.
    _require_not_being_erased(request.run)
    return row


def _seen_request(request_id: UUID, by: Any) -> ApprovalRequest:
    """Return a request with its run, of which no erasure can begin until the
    transaction ends. Raises `UnknownThing` also where this person may not see the run.
    """
    request = ApprovalRequest.objects.filter(id=request_id).first()
    unknown = UnknownThing(f"there is no request {request_id}", request=str(request_id))
    if request is None:
        raise unknown
    runs = Run.objects.filter(id=request.run_id)
    lock_keys(within_limits(runs))
    # An erasure may have destroyed the key of the run since this process read it.
    data_keys.read_use_again(request.run_id)
    run = permissions.visible_among(by, runs).first()
    if run is None:
        raise unknown
    run_row.verify_run_row(run)
    request.run = run
    sealed_rows.verify_row(request, protection_of(run))
    if run.imported:
        raise WrongStatus(
            f"run {run.key} was imported, so it can only be read and forked",
            status=run.status,
        )
    return request


def _write_of(request: ApprovalRequest, write: UUID | str | None) -> UUID | None:
    """Return the id of a write of this request; None for none. Raises `InvalidValue`."""
    if write is None:
        return None
    write_id = uuid_of(write, "write")
    rows = PendingWrite.objects.filter(
        run=request.run_id,
        line=request.line,
        node=request.node,
        visit=request.visit,
        index=request.index,
        write=write_id,
    )
    if not rows.exists():
        raise InvalidValue("this write is none of the request", path="write")
    return write_id


def _earlier(row: RequestComment, text: str) -> RequestComment | None:
    """Return the comment that was written under this id; None if none was. Raises
    `KeyConflict` if it is another one.
    """
    earlier: RequestComment | None = RequestComment.objects.filter(id=row.id).first()
    if earlier is None:
        return None
    place = (row.request_id, row.write, row.by_id)
    is_same = (earlier.request_id, earlier.write, earlier.by_id) == place
    if is_same:
        earlier.run = row.run
        sealed_rows.verify_row(earlier, protection_of(row.run))
        is_same = read_value(earlier, "text") == text
    if not is_same:
        raise KeyConflict("another comment has this id", comment=str(row.id))
    return earlier


def _require_room(request: ApprovalRequest, by: Any) -> None:
    comments = RequestComment.objects.filter(request=request)
    if comments[:MOST].count() >= MOST:
        raise InvalidValue(
            f"a request has {MOST:,} comments at most, and this one has them",
            path="text",
        )
    if comments.filter(by=by)[:MOST_OF_PERSON].count() >= MOST_OF_PERSON:
        raise InvalidValue(
            f"a person writes {MOST_OF_PERSON} comments on a request at most, and you"
            " have written them",
            path="text",
        )


def _insert(row: RequestComment) -> None:
    """Insert a comment, with its line of the audit log and its notice."""
    protection = protection_of(row.run)
    sealed_rows.seal_and_encrypt([row], protection)
    row.save(force_insert=True)
    facts: dict[str, Any] = {"comment": str(row.id)}
    if row.write is not None:
        facts["write"] = str(row.write)
    audit_log.record(
        LINE,
        actor=row.by,
        run=row.run_id,
        graph=row.run.graph,
        request=row.request_id,
        **facts,
    )
    write_comment_notice(row)


def _require_not_being_erased(run: Run) -> None:
    """Raise `WrongStatus` while an erasure of the run is under way: it may have passed
    the comments, and would leave this one.
    """
    if ErasureRecord.objects.filter(run=run.id, ended_at=None).exists():
        raise WrongStatus(
            f"values of run {run.key} are being erased; comment when that has ended",
            status=run.status,
        )


def comment_counts(runs: Iterable[UUID]) -> dict[UUID, int]:
    """Return how many comments there are on the requests of these runs; without the runs
    that have none. One query.
    """
    rows = RequestComment.objects.filter(run__in=list(runs)).order_by().values("run")
    return dict(rows.annotate(count=Count("id")).values_list("run", "count"))
