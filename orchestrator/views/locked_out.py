"""What is answered to a log-in that is refused because too many before it failed. `AXES_LOCKOUT_CALLABLE` names it."""

from datetime import timedelta
from typing import Any

from axes.helpers import get_cool_off
from django.http import HttpRequest, HttpResponse

from approvals.views.page import carried, render


def locked_out(request: HttpRequest, *_: Any) -> HttpResponse:
    """The sign-in page, saying when to come back. It looks the same for names that exist and names that do not."""
    pause: timedelta | None = get_cool_off(request)
    context: dict[str, Any] = {"pause": pause, "next": request.POST.get("next", request.GET.get("next", ""))}
    # Whoever waits need not type his name anew; it says nothing about whether there is such an account.
    context["username"] = request.POST.get("username", "")
    if review := request.POST.get("review"):
        context |= {"review": review, "carried": carried(request)}
    answer = render(request, "orchestrator/login.html", context | {"locked": True}, status=429)
    if pause is not None:
        answer.headers["Retry-After"] = str(max(1, round(pause.total_seconds())))
    return answer
