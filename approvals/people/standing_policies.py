"""Standing policies: with one, a person has a gate that permits it sign automatically
within limits, up to a date and a number of uses, and may end that early.

A policy is made on a request of the gate that its maker may decide, and signs what is
proposed from then on. `approvals.answers` judges the maker's right again at each use.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Case, Max, QuerySet, Value, When

from approvals import permissions
from approvals.models import ApprovalRequest, StandingPolicy
from approvals.people.acts import record_refusal
from approvals.policies_in_force import BROUGHT_BACK, REVOKED, those_brought_back
from checkpoints.audit import lines as audit_log
from checkpoints.core.arguments import checked_moment, checked_person, checked_text
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.db.clock import read_now
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN, protection_of
from orchestrator.engine.errors import InvalidValue, NotAReviewer, TamperedRow
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.limit import number_of

LONGEST_REASON = 1000
LONGEST_TIME = timedelta(days=90)
"""The longest time for which a policy is made."""
MOST_USES = 10_000
MOST_LIMITS = 20
LONGEST_PATH = 200
LONGEST_NUMBER = 40
MOST_AT_A_GATE = 10
"""The most policies of one person that last at one gate: each is read at each use."""


def make_standing_policy(
    request_id: UUID | str,
    *,
    limits: Mapping[str, Mapping[str, Any]],
    ends: datetime,
    most_uses: int,
    begins: datetime | None = None,
    reason: str = "",
    by: Any,
) -> StandingPolicy:
    """Let the gate of a request sign by itself what is within `limits` ({channel: {path
    in the proposed value: the highest number}}; `{}` for a channel without a limit),
    from `begins` (now unless set) until `ends`, `most_uses` writes at most. What waits
    already stays with people.

    `by` must be a reviewer of the request by their own right. Raises `UnknownThing` (also
    where they may not see it), `NotAReviewer` (and leaves an audit line), `InvalidValue`,
    `TamperedRow`.
    """
    by = checked_person(by, "by")
    checked_text(reason, "reason", most=LONGEST_REASON)
    limits_by_path = _checked_limits(limits)
    _require_uses(most_uses)
    # Before the transaction, which would roll back the audit line of a refusal.
    request = _request_of_reviewer(request_id, by)
    with transaction.atomic():
        gate = request.policy.get("gate") or request.node
        now = read_now()
        begins = max(checked_moment(begins, "begins"), now) if begins else now
        _require_times(now, begins, checked_moment(ends, "ends"))
        number = _next_number(by)
        _require_few(request.graph, gate, by, now)
        policy = StandingPolicy(
            number=number,
            by=by,
            graph=request.graph,
            gate=gate,
            limits=limits_by_path,
            begins_at=begins,
            ends_at=ends,
            most_uses=most_uses,
            reason=reason,
            made_at=now,
        )
        sealed_rows.seal(policy, PLAIN)
        policy.save(force_insert=True)
        audit_log.record(
            "standing_policy_made", actor=by, graph=policy.graph, **_facts_of(policy)
        )
    return policy


def _checked_limits(limits: Any) -> dict[str, dict[str, str]]:
    """Return limits as they are stored. Raises `InvalidValue`."""
    if not isinstance(limits, Mapping) or not 1 <= len(limits) <= MOST_LIMITS:
        raise InvalidValue(
            f"limits name from 1 to {MOST_LIMITS} channels, each with highest numbers by "
            "path; {} signs for a channel without a limit",
            path="limits",
        )
    checked: dict[str, dict[str, str]] = {}
    for channel, highest_by_path in limits.items():
        checked_text(channel, "limits", most=LONGEST_PATH)
        checked[channel] = _checked_paths(channel, highest_by_path)
    return checked


def _checked_paths(channel: str, limits: Any) -> dict[str, str]:
    """Return the limits of a channel. Raises `InvalidValue`."""
    if not isinstance(limits, Mapping) or len(limits) > MOST_LIMITS:
        raise InvalidValue(
            f"the limits of {channel!r} are at most {MOST_LIMITS} highest numbers by path",
            path=f"limits.{channel}",
        )
    checked: dict[str, str] = {}
    for path, highest in limits.items():
        checked_text(path, "limits", most=LONGEST_PATH)
        text = _number_in(highest)
        if "" in path.split(".") or not text:
            raise InvalidValue(
                f"the limit of {path!r} is the path of a number and the highest one, as "
                "a number that is not below 0",
                path=f"limits.{channel}.{path}",
            )
        checked[path] = text
    return checked


def _number_in(highest: Any) -> str:
    """Return the text of a number that is not below 0; empty for anything else."""
    if isinstance(highest, bool) or not isinstance(
        highest, int | float | str | Decimal
    ):
        return ""
    try:
        text = str(highest)
    except ValueError:
        # Python writes no number of thousands of digits.
        return ""
    number = number_of(text) if len(text) <= LONGEST_NUMBER else None
    return text if number is not None and number >= 0 else ""


def _require_uses(most_uses: Any) -> None:
    is_number = isinstance(most_uses, int) and not isinstance(most_uses, bool)
    if not is_number or not 1 <= most_uses <= MOST_USES:
        raise InvalidValue(
            f"most_uses is a number from 1 to {MOST_USES}", path="most_uses"
        )


def _request_of_reviewer(request_id: UUID | str, by: Any) -> ApprovalRequest:
    """Return a request on which this person may make a policy."""
    request_uuid = uuid_of(request_id, "request")
    rows = ApprovalRequest.objects.select_related("run").filter(id=request_uuid)
    request = rows.first()
    if request is None or not permissions.may_see_run(by, request.run):
        raise unknown_thing("request", request_id)
    sealed_rows.verify_row(request, protection_of(request.run))
    if request.run.imported or not request.policy.get("standing"):
        raise InvalidValue(
            "its gate permits no standing policies; standing=True does", path="request"
        )
    if not permissions.is_reviewer(by, request):
        refusal = NotAReviewer(
            "only a reviewer of it, by their own right, makes a standing policy",
            request=str(request.id),
        )
        record_refusal(request.run_id, by, refusal)
        raise refusal
    return request


def _require_times(now: datetime, begins: datetime, ends: datetime) -> None:
    if ends <= begins:
        raise InvalidValue("ends must be after begins, and to come", path="ends")
    if ends - now > LONGEST_TIME:
        raise InvalidValue(
            f"no standing policy is made for longer than {LONGEST_TIME.days} days from now",
            path="ends",
        )


def _next_number(by: Any) -> int:
    """Return the number of this person's next policy; concurrent ones wait for each
    other here.
    """
    accounts = get_user_model()._default_manager.filter(pk=by.pk)
    list(accounts.select_for_update(no_key=True).values_list("pk"))
    last = StandingPolicy.objects.filter(by=by).aggregate(last=Max("number"))["last"]
    return (last or 0) + 1


def _require_few(graph: str, gate: str, by: Any, now: datetime) -> None:
    lasting = StandingPolicy.objects.filter(
        graph=graph, gate=gate, by=by, revoked_at=None, ends_at__gt=now
    )
    if lasting.count() >= MOST_AT_A_GATE:
        raise InvalidValue(
            f"you have {MOST_AT_A_GATE} standing policies at {gate} already; revoke one "
            "first",
            path="request",
        )


def _facts_of(row: StandingPolicy) -> dict[str, Any]:
    return {
        "policy": str(row.id),
        "number": row.number,
        "subject": f"user:{row.by.get_username()}",
        "gate": row.gate,
        "begins": row.begins_at.isoformat(),
        "ends": row.ends_at.isoformat(),
        "most_uses": row.most_uses,
    }


def revoke_standing_policy(policy_id: UUID | str, *, by: Any) -> StandingPolicy:
    """End a standing policy at once and for good. Its maker and stewards may. What it
    signed stays signed; an effect that has not begun does not begin on it where its
    node acts on the authority of the gate.

    Raises `UnknownThing` (also where it is none of theirs), `TamperedRow`.
    """
    by = checked_person(by, "by")
    policy_uuid = uuid_of(policy_id, "standing policy")
    with transaction.atomic():
        rows = StandingPolicy.objects.select_for_update(of=("self",))
        row = rows.select_related("by").filter(id=policy_uuid).first()
        if row is None or not _is_concerned(row, by):
            raise unknown_thing("standing policy", policy_id)
        sealed_rows.verify_row(row, PLAIN)
        if those_brought_back([row]):
            name = sealed_rows.name_of(row)
            raise TamperedRow(f"{name}: {BROUGHT_BACK}", row=name)
        # The first time counts: it never moves.
        if row.revoked_at is not None:
            return row
        changed = sealed_rows.seal_again(
            row, PLAIN, revoked_at=read_now(), revoked_by=by
        )
        row.save(update_fields=changed)
        audit_log.record(REVOKED, actor=by, graph=row.graph, **_facts_of(row))
    return row


def _is_concerned(row: StandingPolicy, by: Any) -> bool:
    return by.pk == row.by_id or permissions.may(by, "reassign")


def standing_policies_of(user: Any) -> "QuerySet[StandingPolicy]":
    """Return the standing policies that this person may see, with their makers, the
    newest first: their own, all for a steward.
    """
    rows = StandingPolicy.objects.select_related("by")
    if permissions.may(user, "reassign"):
        return rows
    return rows.filter(by=user.pk)


def seen_standing_policy(policy_id: UUID | str, user: Any) -> StandingPolicy:
    """Return a standing policy with its maker. Raises `UnknownThing`, including where
    it is none that this person may see.
    """
    rows = standing_policies_of(user).filter(id=uuid_of(policy_id, "standing policy"))
    row = rows.first()
    if row is None:
        raise unknown_thing("standing policy", policy_id)
    return row


def limits_in_words(limits: Mapping[str, Mapping[str, str]]) -> str:
    """Return limits as a person reads them: "payment: amount up to 500, note: without a
    limit".
    """
    parts: list[str] = []
    for channel, highest_by_path in limits.items():
        paths = [f"{path} up to {most}" for path, most in highest_by_path.items()]
        parts.append(f"{channel}: {', '.join(paths) or 'without a limit'}")
    return "; ".join(parts)


@frozen
class ListedPolicy:
    """A standing policy in a list. `refused`: it signs nothing, because its row was
    changed or put back. `now` is the moment of the list.
    """

    row: StandingPolicy
    refused: bool
    now: datetime

    @property
    def is_over(self) -> bool:
        return self.row.ends_at <= self.now

    @property
    def is_used_up(self) -> bool:
        return self.row.uses >= self.row.most_uses

    @property
    def is_revocable(self) -> bool:
        """Return whether it may still sign, or begin to."""
        is_ended = self.row.revoked_at is not None or self.is_over
        return not (is_ended or self.refused)

    @property
    def limits_in_words(self) -> str:
        """Return its limits in words: "payment: amount up to 500"."""
        return limits_in_words(self.row.limits)


def listed_policies(user: Any, *, most: int) -> list[ListedPolicy]:
    """Return the first of `standing_policies_of`, those that last before those that are
    over, and which of them are refused. Three
    queries at most.
    """
    now = read_now()
    # Many expired ones must not hide those that still sign.
    lasts = When(revoked_at=None, ends_at__gt=now, then=Value(0))
    in_order = standing_policies_of(user).order_by(
        Case(lasts, default=Value(1)), "-made_at", "-id"
    )
    rows = list(in_order[:most])
    brought_back = those_brought_back(rows)
    listed: list[ListedPolicy] = []
    for row in rows:
        is_changed = fault_of(row, PLAIN) is not None
        listed.append(ListedPolicy(row, is_changed or row in brought_back, now))
    return listed
