"""The standing policies of a person: the list of them, for stewards that of all, and the
form that makes another one beside a review, with limits drawn from what is proposed there.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from approvals import permissions, reviews
from approvals.gates.request_state import load_states
from approvals.models import ApprovalRequest
from approvals.people.standing_policies import MOST_LIMITS, listed_policies
from approvals.views.page import opens_payloads, render, single_fields
from approvals.views.people.delegations import (
    changes_rights,
    read_typed,
    required_moment,
)
from approvals.views.people.own_password import FIELD, require_password
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import (
    REFUSALS,
    ConfirmationRequired,
    InvalidValue,
)
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.limit import WHOLE, number_of

MOST_LISTED = 100
"""The most policies that the page lists, the newest first, those that are over too."""
MOST_NUMBERS = 12
"""The most numbers of a proposal for which the form has a field."""
DEEPEST = 4
"""How deep in a value the form looks for numbers."""
TYPED = ("most_uses", "begins", "ends", "reason")
"""The other fields of the form, without the password."""
MADE = "Done: it signs by itself from then on."


@frozen
class LimitField:
    """The field of a limit: its number on the form, its path, and what stands in it."""

    number: int
    path: str
    most: str


@frozen
class ShownChannel:
    """A channel on the form. `is_whole`: each number in it has a field; `is_ticked`: it is
    to be signed without a limit.
    """

    place: int
    name: str
    fields: list[LimitField]
    is_whole: bool
    is_ticked: bool


@login_required
@require_safe
def standing_policies_page(request: HttpRequest) -> HttpResponse:
    """Show what this person allows gates to sign by themselves; to stewards, what
    everybody allows.
    """
    context = {
        "listed": listed_policies(request.user, most=MOST_LISTED),
        "most": MOST_LISTED,
        "is_steward": permissions.may(request.user, "reassign"),
    }
    return render(request, "approvals/standing_policies.html", context)


@sensitive_post_parameters(FIELD)
@login_required
@require_http_methods(["GET", "POST"])
@single_fields()
@opens_payloads
def new_policy_page(request: HttpRequest, request_id: UUID) -> HttpResponse:
    """Show the form of a policy beside a request, or make the policy and lead to the
    list. Whoever may not see the request gets what an unknown one gets.
    """
    approval = _request_of(request.user, request_id)
    if request.method == "POST":
        try:
            _make(request, request_id)
            messages.success(request, MADE)
            return redirect("standing_policies")
        except ConfirmationRequired as error:
            messages.error(request, error.message)
        except REFUSALS as error:
            messages.error(request, f"Nothing was changed: {error.message}.")
    context = {
        "approval": approval,
        "channels": _shown_channels(approval, request.POST),
        "typed": {name: request.POST.get(name, "") for name in TYPED},
    }
    return render(request, "approvals/standing_policy_new.html", context)


def _request_of(user: Any, request_id: UUID) -> ApprovalRequest:
    """Return the request beside which a policy is made. Raises `Http404`."""
    rows = ApprovalRequest.objects.select_related("run").filter(id=request_id)
    approval = rows.first()
    if approval is None or not permissions.may_see_run(user, approval.run):
        raise Http404("there is no such request")
    if not approval.policy.get("standing"):
        raise Http404("its gate permits no standing policies")
    return approval


def _make(request: HttpRequest, request_id: UUID) -> None:
    # It signs in place of its maker, so whoever finds a browser that is signed in must
    # not make it.
    require_password(request)
    reviews.make_standing_policy(
        request_id,
        limits=_limits_in(request),
        begins=read_typed(request.POST.get("begins", ""), "begins"),
        ends=required_moment(request.POST.get("ends", ""), "ends"),
        most_uses=_whole_number(request.POST.get("most_uses", ""), "most_uses"),
        reason=request.POST.get("reason", ""),
        by=request.user,
    )


def _limits_in(request: HttpRequest) -> dict[str, dict[str, str]]:
    """Return the limits that were posted: of each channel the paths with a number, and
    the channels that are to be signed without one. All else is left to people.
    """
    posted = request.POST
    limits: dict[str, dict[str, str]] = {}
    for number in range(1, MOST_LIMITS + 1):
        unlimited = posted.get(f"unlimited_{number}", "")
        if unlimited:
            limits.setdefault(unlimited, {})
    for number in range(1, MOST_NUMBERS + 1):
        channel = posted.get(f"channel_{number}", "")
        path = posted.get(f"path_{number}", "")
        highest = posted.get(f"most_{number}", "").strip()
        if channel and path and highest:
            limits.setdefault(channel, {})[path] = highest
    return limits


def _whole_number(text: str, path: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidValue(f"{path} is a whole number", path=path)
    return int(text)


def _shown_channels(
    approval: ApprovalRequest, posted: Mapping[str, str]
) -> list[ShownChannel]:
    """Return the channels of a request with the fields of their limits, in the order of
    its writes, as they were posted if they were. Raises `TamperedRow`, `WrongKey`,
    `PayloadsUnavailable`.
    """
    highest_by_channel = _numbers_in(approval)
    channels: list[ShownChannel] = []
    number = 0
    for place, (channel, highest) in enumerate(highest_by_channel.items(), start=1):
        fields: list[LimitField] = []
        for path, text in list(highest.items())[: MOST_NUMBERS - number]:
            number += 1
            most = posted.get(f"most_{number}", text)
            fields.append(LimitField(number, path, most))
        is_whole = len(fields) == len(highest)
        is_ticked = f"unlimited_{place}" in posted
        channels.append(ShownChannel(place, channel, fields, is_whole, is_ticked))
    return channels


def _numbers_in(approval: ApprovalRequest) -> dict[str, dict[str, str]]:
    """Return {channel: {path: the highest number there}} of what a request asks about."""
    [state] = load_states([approval], protection_of(approval.run))
    numbers: dict[str, dict[str, str]] = {}
    for row in state.writes:
        highest = numbers.setdefault(row.channel, {})
        for path, text in _numbers_within(read_value(row, "value"), ()):
            # Limits are stored readable, and outlive what is erased.
            text = "" if approval.run.encrypted else text
            before = number_of(highest.get(path) or text)
            after = number_of(text)
            if before is None or after is None or after >= before:
                highest[path] = text
    return numbers


def _numbers_within(value: Any, way: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each number within a value to which a path can lead; no text
    for one that is no limit.
    """
    number = number_of(value)
    if number is not None:
        yield ".".join(way) or WHOLE, str(value) if number >= 0 else ""
    elif isinstance(value, dict) and len(way) < DEEPEST:
        for key, inner in value.items():
            # A path could not tell such a key from two.
            if key and not set(key) & set(".[]"):
                yield from _numbers_within(inner, (*way, key))


def _revoke(request: HttpRequest, standing_policy: UUID) -> str:
    reviews.revoke_standing_policy(standing_policy, by=request.user)
    return "That is over: it can no longer sign."


revoke = changes_rights(_revoke, leads_to="standing_policies")
