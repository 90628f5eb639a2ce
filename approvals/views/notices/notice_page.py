"""The page of a person's notices, with what they chose to be listed, and the addresses
to which its forms post.
"""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from approvals import permissions
from approvals.models import MailPreference
from approvals.people.notice_list import (
    KIND_WORDS,
    KINDS,
    MANY,
    choose_kinds,
    count_unread,
    listed_notices,
    mark_read,
    newest_unread,
    notices_of,
)
from approvals.views.page import (
    read_page,
    refuses_unreadable_filters,
    render,
    single_fields,
)
from checkpoints.core.plural import counted

SHOWN = 50
MOST_NUMBER = 2**63 - 1
"""The highest id that a row of a notice can have."""


@login_required
@require_safe
@refuses_unreadable_filters
@permissions.remembering_principals()
def notices_page(request: HttpRequest) -> HttpResponse:
    """Show the notices of the person who looks, the newest first."""
    number = read_page(request)
    first = SHOWN * (number - 1)
    # Read before the rows, so that notices that arrive in between are not marked as
    # read unseen.
    newest = newest_unread(request.user)
    # One more than is shown is enough to see that there are others.
    rows = list(notices_of(request.user)[first : first + SHOWN + 1])
    muted = MailPreference.of(request.user).muted
    unread = count_unread(request.user)
    kinds = [(kind, KIND_WORDS[kind], kind not in muted) for kind in KINDS]
    context = {
        "notices": listed_notices(request.user, rows[:SHOWN]),
        "unread": unread,
        # The bar is drawn with it here; elsewhere it comes over the socket.
        "bell": _bell_text(unread),
        "newest": newest,
        "earlier": number + 1 if len(rows) > SHOWN else None,
        "later": number - 1,
        "kinds": kinds,
    }
    return render(request, "approvals/notices.html", context, section="notices")


def _bell_text(unread: int) -> str:
    """Return the number at the bell; empty for none."""
    if unread > MANY:
        return f"{MANY}+"
    return str(unread) if unread else ""


@login_required
@require_http_methods(["GET", "POST"])
@single_fields()
def read_notices(request: HttpRequest) -> HttpResponse:
    """Mark the notices up to the posted id as read, and lead back to them."""
    until = request.POST.get("until", "")
    # The length first: Python reads no number of thousands of digits.
    is_number = (
        until.isascii() and until.isdigit() and len(until) < len(str(MOST_NUMBER))
    )
    if request.method == "POST" and is_number:
        count = mark_read(request.user, until=int(until))
        messages.success(request, f"{counted(count, 'notice')} marked as read.")
    return redirect("notices")


@login_required
@require_http_methods(["GET", "POST"])
@single_fields()
def choose_notices(request: HttpRequest) -> HttpResponse:
    """Keep which kinds of notices are listed, and lead back to them."""
    if request.method == "POST":
        choose_kinds(request.user, [kind for kind in KINDS if kind in request.POST])
        messages.success(request, "Your notices are as you chose.")
    return redirect("notices")
