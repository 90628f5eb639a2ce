"""Visits of pages that make a session, verify a signature or ask the provider for whoever
comes: counted by address, in the table of refused tokens.
"""

from collections.abc import Callable
from functools import wraps

from django.http import HttpRequest, HttpResponse

from approvals.views.page import error_page
from orchestrator.api.throttle import count_failure, seconds_to_wait
from orchestrator.client_address import client_address

MOST_VISITS = 100
"""Visits of one page from one address until it has to wait."""

View = Callable[[HttpRequest], HttpResponse]


def by_address(view: View) -> View:
    """Decorate a page: 429 after too many visits from one address, whoever comes."""

    @wraps(view)
    def page(request: HttpRequest) -> HttpResponse:
        address = client_address(request)
        # All visitors without an address would count as one.
        if not address:
            return view(request)
        subject = f"{view.__name__}:{address}"
        wait = seconds_to_wait([subject], most=MOST_VISITS)
        if wait:
            return _too_many(request, wait)
        count_failure(subject)
        return view(request)

    return page


def _too_many(request: HttpRequest, seconds: int) -> HttpResponse:
    text = (
        "Too many log-ins come from your network. Nothing was changed: try again in"
        f" {seconds} seconds."
    )
    answer = error_page(request, "Not now", text, status=429)
    answer.headers["Retry-After"] = str(seconds)
    return answer
