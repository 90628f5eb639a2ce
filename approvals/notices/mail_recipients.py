"""The recipients of mail about a notice: the people who may decide, and those who have
decided. They are read when the mail is sent, so that nobody is notified of what they
may no longer see.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.utils import timezone

from approvals import delegations, permissions
from approvals.list_columns import CAME_BACK, OPENED
from approvals.models import (
    ApprovalRequest,
    Decision,
    MailPreference,
    Notice,
    RequestClaim,
    RequestComment,
    RequestStatus,
)
from approvals.notice_rows import COMMENTED, ESCALATED, REMINDED
from approvals.people.parts import why_nothing_to_decide
from checkpoints.models import Run
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.graphs.tiers import escalated, tiers_in

TO_REVIEWERS = (OPENED, CAME_BACK, REMINDED, ESCALATED)
"""The events that reviewers are notified of. Signers are notified of the others, except
comments.
"""


def people_for(notice: Notice) -> "QuerySet[Any]":
    """Return the people of `accounts_for` who have an address. They are judged one by
    one when it is sent: see `still_concerns`.
    """
    return accounts_for(notice).exclude(email="")


def accounts_for(notice: Notice) -> "QuerySet[Any]":
    """Return the active people whom a notice may concern, each once: reviewers and
    their present delegates, signers, or the participants of a conversation.
    """
    accounts: Any = get_user_model()._default_manager.filter(is_active=True)
    if notice.event in TO_REVIEWERS:
        request = _request_of(notice)
        if request is None:
            return accounts.none()  # type: ignore[no-any-return]
        return accounts_named(principals_meant(request, notice))
    if notice.event == COMMENTED:
        return accounts.filter(pk__in=_in_conversation(notice))  # type: ignore[no-any-return]
    return accounts.filter(pk__in=_signers(notice))  # type: ignore[no-any-return]


def accounts_named(principals: Iterable[str]) -> "QuerySet[Any]":
    """Return the active people whom these principals may name, and their present
    delegates, each once.
    """
    accounts: Any = get_user_model()._default_manager.filter(is_active=True)
    named = _named(principals)
    stand_in = Q(pk__in=_delegates_of(named))
    return accounts.filter(named | stand_in).distinct()  # type: ignore[no-any-return]


def _in_conversation(notice: Notice) -> set[Any]:
    """Return the ids of the people who are notified of a comment: the person for whom
    the run was started, whoever has taken the request, and everyone who commented on
    it, except the author. Four queries.
    """
    comments = RequestComment.objects.filter(request=notice.request)
    people = set(comments.order_by().values_list("by", flat=True).distinct())
    people.update(
        RequestClaim.objects.filter(request=notice.request).values_list("by", flat=True)
    )
    people.update(
        Run.objects.filter(id__in=[notice.run]).values_list("started_by", flat=True)
    )
    author = (
        comments.filter(id__in=[notice.comment]).values_list("by", flat=True).first()
    )
    return people - {None, author}


def principals_meant(request: ApprovalRequest, notice: Notice) -> list[str]:
    """Return the principals to notify about an open request: those that the notice's
    tier names, otherwise its reviewers at that moment.
    """
    if notice.tier is None:
        return request.reviewers_now
    named = _named_by_tier(request, notice)
    if named is not None:
        return named
    # People whom a later tier asks are notified by that tier.
    earlier = tiers_in(request.policy)[: notice.tier]
    return [*request.policy["reviewers"], *escalated(earlier)]


def _named_by_tier(request: ApprovalRequest, notice: Notice) -> list[str] | None:
    """Return whom the tier of a notice names; None for those who may decide."""
    # A tampered row may have fewer tiers.
    for tier in tiers_in(request.policy)[notice.tier : (notice.tier or 0) + 1]:
        to = tier["to"]
        return None if to is None else list(to)
    return None


def _request_of(notice: Notice) -> ApprovalRequest | None:
    """Return the request that a notice is about; None if it is gone."""
    if notice.request is None:
        return None
    return ApprovalRequest.objects.filter(id=notice.request).first()


def _named(principals: Iterable[str]) -> Q:
    """Return the condition for the accounts that these principals may name."""
    username = get_user_model().USERNAME_FIELD
    named = Q(pk__in=[])
    for principal in principals:
        kind, _, name = str(principal).partition(":")
        if kind == "user":
            named |= Q(**{username: name})
        elif kind == "group":
            named |= Q(groups__name=name)
        elif kind == "perm":
            label, _, codename = name.partition(".")
            for path in ("user_permissions", "groups__permissions"):
                named |= Q(
                    **{
                        f"{path}__content_type__app_label": label,
                        f"{path}__codename": codename,
                    }
                )
    return named


def _delegates_of(named: Q) -> "QuerySet[Any, Any]":
    """Return the ids of the people who decide now for any of these accounts."""
    reviewers = get_user_model()._default_manager.filter(named)
    lasting = delegations.lasting(delegator__in=reviewers.values("pk"))
    return lasting.order_by().values("delegate")


def _signers(notice: Notice) -> "QuerySet[Any, Any]":
    """Return the ids of the people who signed in the request, or in the run."""
    signed = Decision.objects.filter(by__isnull=False, run__in=[notice.run])
    if notice.request is not None:
        signed = signed.filter(request=notice.request)
    return signed.order_by().values_list("by", flat=True).distinct()


def still_concerns(person: Any, notice: Notice) -> bool:
    """Return whether a notice still concerns this person: a review that waits for them,
    or a run that they may see. Up to ten queries.
    """
    if notice.event not in TO_REVIEWERS:
        runs = Run.objects.filter(id__in=[notice.run])
        return permissions.visible_among(person, runs).exists()
    request = _request_of(notice)
    if request is None or request.status != RequestStatus.OPEN:
        return False
    if permissions.closed(request):
        return False
    if notice.event == REMINDED:
        return _waits_for(person, request, notice)
    return permissions.may_decide(person, request).yes


def _waits_for(person: Any, request: ApprovalRequest, notice: Notice) -> bool:
    """Return whether a reminder concerns a person: they may decide and have not; or the
    tier names them, and they may see the run.
    """
    if _named_by_tier(request, notice) is None:
        try:
            return not why_nothing_to_decide(person, request)
        except CountersignError:
            # Nobody may decide a request that does not verify.
            return False
    runs = Run.objects.filter(id=request.run_id)
    return permissions.visible_among(person, runs).exists()


def is_quiet(preference: MailPreference, now: datetime) -> bool:
    """Return whether it is within the quiet hours of a person, in their time zone. Hours
    that end before they begin pass midnight.
    """
    begin = preference.quiet_from
    end = preference.quiet_until
    if begin is None or end is None or begin == end:
        return False
    local = timezone.localtime(now, ZoneInfo(preference.time_zone)).time()
    if begin < end:
        return begin <= local < end
    return local >= begin or local < end
