"""The page of a person's own account: groups, rights, theme, shortcuts and tokens."""

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from approvals.passkeys import is_available, listed_keys
from approvals.people.standing_in import listed_delegations
from approvals.permissions import may
from approvals.views.notices.mail_choice import mail_facts
from approvals.views.page import (
    read_page,
    refuses_unreadable_filters,
    render,
    single_fields,
)
from orchestrator.display.labels import RIGHTS
from orchestrator.models import ApiToken, Preference
from orchestrator.templatetags.console import SHORTCUTS_COOKIE, SHORTCUTS_OFF

TOKENS = 50
"""The most tokens that the page lists, the newest first."""
PASSKEYS = 20
"""The most passkeys that one page lists: as many as a person may have at a time."""
DELEGATIONS = 50
"""The most delegations that the page lists, the newest first, those that are over too."""
_YEAR = 365 * 24 * 3600


@login_required
@require_safe
@refuses_unreadable_filters
def account_page(request: HttpRequest) -> HttpResponse:
    """Show the account of the signed-in person. Six queries beside those of every
    page, one more with passkeys, and one more with delegations.
    """
    user = request.user
    number = read_page(request)
    # One more shows whether there are further ones.
    first = (number - 1) * PASSKEYS
    keys = listed_keys(user, first=first, most=PASSKEYS + 1)
    groups = user.groups.order_by("name").values_list("name", flat=True)
    tokens = ApiToken.objects.filter(user=user.pk, revoked_at=None)
    context = {
        "groups": list(groups),
        "rights": [words for right, words in RIGHTS.items() if may(user, right)],
        "tokens": list(tokens[:TOKENS]),
        "passkeys": keys[:PASSKEYS],
        "passkey_page": number,
        "more_passkeys": len(keys) > PASSKEYS,
        "has_passkeys": is_available,
        **mail_facts(user),
        "delegations": listed_delegations(user, most=DELEGATIONS),
        "now": timezone.now(),
    }
    return render(request, "orchestrator/account.html", {"page": context})


@login_required
@require_http_methods(["GET", "POST"])
@single_fields()
def shortcuts(request: HttpRequest) -> HttpResponse:
    """Switch the shortcuts of this person on or off; anything else that is posted
    changes nothing.

    A person who had to sign in first arrives by GET, without the choice, and is led to
    the account.
    """
    answer = redirect("account")
    chosen = request.POST.get("shortcuts", "")
    if chosen not in ("on", "off"):
        return answer
    on = chosen == "on"
    Preference.objects.update_or_create(
        user_id=int(request.user.pk or 0), defaults={"shortcuts": on}
    )
    keep_shortcuts(answer, on=on)
    return answer


def keep_shortcuts(answer: HttpResponse, *, on: bool) -> None:
    """Set the cookie that says whether shortcuts are switched off, so that no page
    needs a query for it.
    """
    # Shortcuts are on unless the cookie says otherwise.
    if on:
        answer.delete_cookie(SHORTCUTS_COOKIE, samesite="Lax")
        return
    answer.set_cookie(
        SHORTCUTS_COOKIE,
        SHORTCUTS_OFF,
        max_age=_YEAR,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
    )
