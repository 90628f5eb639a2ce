"""What pages and API answer, wherever it comes up: to outages, and to addresses that no database can compare."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse

from orchestrator.api import problems
from orchestrator.views.errors import bad_request, unavailable


class Outages:
    """503 with `Retry-After` where the database, a disk or the place of payloads does not serve now; 400 for a page's
    address with a NUL character, which PostgreSQL would not even compare.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> HttpResponse | None:
        """The API's own fields refuse NUL, naming the field."""
        if "api" in getattr(request.resolver_match, "namespaces", ()):
            return None
        given = (*kwargs.values(), *(text for name in request.GET for text in (name, *request.GET.getlist(name))))
        odd = any("\x00" in str(text) for text in given)
        return bad_request(request, ValueError("a NUL character")) if odd else None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """A page; for whoever asked the API a problem. None for a defect, which is to be seen as one."""
        page = unavailable(request, error)
        if page is None or request.resolver_match is None or "api" not in request.resolver_match.namespaces:
            return page
        found = problems.answer(error)
        wait = {"Retry-After": page.headers["Retry-After"]}
        return found and JsonResponse(found.data, status=503, headers=wait, content_type=problems.MEDIA_TYPE)
