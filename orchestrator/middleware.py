"""What pages and API answer to errors that are no defect, wherever in a view they come up."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, JsonResponse

from orchestrator.api import problems
from orchestrator.views.errors import unavailable


class Outages:
    """503 with `Retry-After` where the database, a disk or the place of payloads does not serve now."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """A page; for whoever asked the API a problem. None for a defect, which is to be seen as one."""
        page = unavailable(request, error)
        if page is None or request.resolver_match is None or "api" not in request.resolver_match.namespaces:
            return page
        found = problems.answer(error)
        wait = {"Retry-After": page.headers["Retry-After"]}
        return found and JsonResponse(found.data, status=503, headers=wait, content_type=problems.MEDIA_TYPE)
