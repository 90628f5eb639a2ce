"""The answer to a log-in that is refused because too many attempts before it failed.
`AXES_LOCKOUT_CALLABLE` names it.
"""

from datetime import timedelta
from typing import Any

from axes.helpers import get_cool_off
from django.http import HttpRequest, HttpResponse

from approvals.views.page import carried, render


def locked_out(request: HttpRequest, *_: Any) -> HttpResponse:
    """Return the sign-in page with the time to come back. It looks the same for names
    that exist and names that do not.
    """
    pause: timedelta | None = get_cool_off(request)
    # The name need not be typed again after the pause. Showing it does not reveal
    # whether there is such an account.
    context: dict[str, Any] = {
        "locked": True,
        "pause": pause,
        "next": request.POST.get("next", request.GET.get("next", "")),
        "username": request.POST.get("username", ""),
    }
    review = request.POST.get("review")
    if review:
        context["review"] = review
        context["carried"] = carried(request)
    answer = render(request, "orchestrator/login.html", context, status=429)
    if pause is not None:
        seconds = max(1, round(pause.total_seconds()))
        answer.headers["Retry-After"] = str(seconds)
    return answer
