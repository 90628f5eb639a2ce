"""Claims: who has taken a review, so that no two people do the same work. It is a
courtesy, unless the gate is `exclusive`: then nobody else can sign while it lasts.

A claim is a row, written under the run's lock. It decides nothing by itself.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from approvals import permissions
from approvals.gates.request_state import RequestState
from approvals.models import ApprovalRequest, RequestClaim, RequestReviewer
from approvals.people import comments
from approvals.people.acts import RequestAct, act_on, require_right
from approvals.people.parts import NOTHING_LEFT, why_nothing_to_decide
from checkpoints.core.arguments import checked_person
from checkpoints.db.clock import read_now
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator.engine.errors import Claimed, InvalidValue, NotAReviewer, WrongStatus
from orchestrator.engine.graphs.review_claim import claim_time


def claim(request_id: UUID | str, *, by: Any) -> RequestClaim:
    """Take a review, or extend one's claim on it. Others see who has it; under an
    exclusive gate they cannot sign until it is released, handed over, or its time is
    up.

    Raises, having changed nothing: `Claimed` (names who has it, since and until when),
    `NotAReviewer` (and leaves an audit line), `UnknownThing`, `WrongStatus`,
    `TamperedRow`, `WrongKey`.
    """
    by = checked_person(by, "by")
    with act_on(request_id, by=by) as act:
        why_not = why_nothing_to_decide(by, act.request)
        if why_not:
            raise NotAReviewer(why_not, request=str(act.request.id))
        current = _locked_claim(act.request)
        if current is not None:
            require_free(current, act.request, by, at=act.at)
        taken = _put(act, current, holder=by)
        act.record("request_claimed", **_end_in_words(taken))
        return taken


def release(request_id: UUID | str, *, by: Any) -> None:
    """Release a review that this person has taken. Stewards may release any.

    Raises, having changed nothing: `WrongStatus` (nobody has it), `Forbidden` (another
    person has it; leaves an audit line), `UnknownThing`, `TamperedRow`, `WrongKey`.
    """
    by = checked_person(by, "by")
    with act_on(request_id, by=by) as act:
        current = _locked_claim(act.request)
        if current is None or not is_held(current, at=act.at):
            raise WrongStatus("nobody has taken this review", status=act.run.status)
        if current.by_id != by.pk:
            require_right(act, "reassign")
        current.delete()
        note_in_inboxes(act.request)
        act.record("request_released", subject=f"user:{current.by_name}")


def assign(
    request_id: UUID | str, *, to: Any, by: Any, comment: str = ""
) -> RequestClaim:
    """Hand a review to a person who may decide it, as if they had taken it themselves.
    Its holder may hand it over; stewards may assign any. A `comment` is written with
    it, or not at all.

    Raises, having changed nothing: `InvalidValue` (that person may not decide it, and
    why; or the comment cannot be written), `Forbidden` (leaves an audit line),
    `UnknownThing`, `WrongStatus`, `TamperedRow`, `WrongKey`.
    """
    by = checked_person(by, "by")
    to = checked_person(to, "to")
    with act_on(request_id, by=by) as act:
        current = _locked_claim(act.request)
        is_own = current is not None and current.by_id == by.pk
        if current is None or not is_own or not is_held(current, at=act.at):
            require_right(act, "reassign")
        _require_decider(to, act.request)
        handed = _put(act, current, holder=to, assigned_by=by)
        act.record(
            "request_assigned",
            subject=f"user:{to.get_username()}",
            **_end_in_words(handed),
        )
        if comment:
            comments.comment(act.request.id, comment, by=by)
        return handed


def _require_decider(person: Any, request: ApprovalRequest) -> None:
    """Raise `InvalidValue` if a person may not decide a request."""
    why_not = why_nothing_to_decide(person, request)
    if why_not:
        name = person.get_username()
        # The reasons are written for the person whom they are about.
        reason = "is not one of its reviewers"
        if why_not == NOTHING_LEFT:
            reason = "has nothing left to decide in it"
        elif permissions.is_reviewer(person, request):
            reason = "shaped what it is about, so somebody else must sign"
        raise InvalidValue(
            f"{name} may not decide this review: {name} {reason}",
            path="to",
            why=why_not,
        )


def _locked_claim(request: ApprovalRequest) -> RequestClaim | None:
    """Return the claim on a locked request, whether or not its time is up; None if
    there is none. Raises `TamperedRow`.
    """
    current = RequestClaim.objects.filter(request=request).first()
    if current is not None:
        sealed_rows.verify_row(current, PLAIN)
    return current


def _put(
    act: RequestAct,
    current: RequestClaim | None,
    *,
    holder: Any,
    assigned_by: Any = None,
) -> RequestClaim:
    """Replace the current claim by one of this holder."""
    since = act.at
    if current is not None:
        # Whoever takes it for longer has had it since they first took it.
        is_again = current.by_id == holder.pk and assigned_by is None
        if is_again and is_held(current, at=act.at):
            since = current.at
        current.delete()
    until = _end_of(act)
    taken = RequestClaim(
        request=act.request,
        by=holder,
        by_name=holder.get_username(),
        assigned_by=assigned_by,
        assigned_name=assigned_by.get_username() if assigned_by is not None else "",
        at=since,
        until=until,
    )
    sealed_rows.seal(taken, PLAIN)
    taken.save(force_insert=True)
    note_in_inboxes(act.request)
    return taken


def _end_of(act: RequestAct) -> datetime | None:
    time: timedelta | None = claim_time(act.request.policy)
    return None if time is None else act.at + time


def _end_in_words(taken: RequestClaim) -> dict[str, str]:
    if taken.until is None:
        return {}
    return {"until": taken.until.isoformat()}


def note_in_inboxes(request: ApprovalRequest) -> None:
    """Count a change of the request, so that open inboxes redraw it."""
    rows = RequestReviewer.objects.filter(request=request)
    rows.update(changes=F("changes") + 1, changed_at=read_now())


# Read by signing and by pages.


def is_held(taken: RequestClaim, *, at: datetime) -> bool:
    """Return whether a claim is in force at this moment."""
    return taken.until is None or taken.until > at


def still_decides(taken: RequestClaim, request: ApprovalRequest) -> bool:
    """Return whether the holder of a claim may still decide something in its request.
    If not, the claim keeps nobody out. Reads `request.run`; some queries.
    """
    return not why_nothing_to_decide(taken.by, request)


def require_free(
    taken: RequestClaim, request: ApprovalRequest, by: Any, *, at: datetime
) -> None:
    """Raise `Claimed` if this claim is in force for another person, who may still
    decide there.
    """
    if taken.by_id == by.pk or not is_held(taken, at=at):
        return
    # Otherwise such a claim would block what only others may sign.
    if not still_decides(taken, request):
        return
    until = taken.until.isoformat() if taken.until is not None else None
    raise Claimed(
        sentence_of(taken),
        by=[taken.by_name],
        since=taken.at.isoformat(),
        until=until,
        request=str(taken.request_id),
    )


def sentence_of(taken: RequestClaim, name: str = "") -> str:
    """Return who has taken a review, since and until when. `name` is the person's, the
    account's where it is empty.
    """
    words = f"taken by {name or taken.by_name} since {_moment(taken.at)}"
    if taken.until is not None:
        words += f", until {_moment(taken.until)}"
    return words


def _moment(at: datetime) -> str:
    local = timezone.localtime(at)
    if local.date() == timezone.localdate():
        return f"{local:%H:%M}"
    return f"{local:%H:%M} on {local.day} {local:%B}"


def holds_claim(person: Any, request_id: UUID) -> bool:
    """Return whether the claim on a request is this person's. One query."""
    return RequestClaim.objects.filter(request=request_id, by=person.pk).exists()


def is_exclusive(request: ApprovalRequest) -> bool:
    """Return whether only the holder of a claim may sign this request."""
    return bool(request.policy.get("exclusive"))


def verified_claims(states: Iterable[RequestState]) -> dict[UUID, RequestClaim]:
    """Return the claims on these requests, by request. One query. Raises
    `TamperedRow`.
    """
    requests = [state.request.id for state in states]
    claims = list(RequestClaim.objects.filter(request__in=requests))
    sealed_rows.verify_rows(claims, PLAIN)
    return {taken.request_id: taken for taken in claims}


def require_signable(
    claims: Mapping[UUID, RequestClaim], request: ApprovalRequest, by: Any
) -> None:
    """Raise `Claimed` if another person, who may still decide there, holds an exclusive
    claim on a request. No query unless there is such a claim.
    """
    taken = claims.get(request.id)
    if taken is not None and is_exclusive(request):
        require_free(taken, request, by, at=read_now())


def end_claims(
    claims: Mapping[UUID, RequestClaim], by: Any, *, signed: Collection[UUID]
) -> None:
    """Remove those of these claims that a person holds on requests that they signed."""
    own: list[int] = []
    for request, taken in claims.items():
        if request in signed and taken.by_id == by.pk:
            own.append(taken.pk)
    if own:
        RequestClaim.objects.filter(pk__in=own).delete()


def shown_claim(request: ApprovalRequest) -> RequestClaim | None:
    """Return the claim on a request that lasts now, as a list read it with
    `inbox.listed`; None if there is none, or the request is closed to decisions.
    """
    taken: RequestClaim | None = getattr(request, "claim", None)
    if taken is None or request.status != "open":
        return None
    return taken if is_held(taken, at=timezone.now()) else None
