"""`/metrics`, for a scraper that sends the token of the settings. It needs neither a
session nor an account.
"""

from importlib.util import find_spec

from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe

from checkpoints.conf import conf
from checkpoints.db.outage import RETRY_SECONDS
from orchestrator.metrics.readings import ReadingsUnavailable

# Imported where it is used: a process that nobody scrapes never needs it.
is_available = find_spec("prometheus_client") is not None


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics as text, in the format that the scraper accepts. 404 where the
    settings have no token or prometheus-client is not installed, 403 for another token,
    503 while there are no new readings.
    """
    token = conf().metrics_token
    if not token or not is_available:
        return _refusal("There are no metrics here.", 404)
    if not constant_time_compare(_bearer_of(request), token):
        return _refusal("The metrics need their token.", 403)

    from prometheus_client import exposition

    from orchestrator.metrics import families

    accepted = request.headers.get("Accept", "")
    encode, content_type = exposition.choose_encoder(accepted)
    try:
        text = encode(families.registry())
    except ReadingsUnavailable as error:
        refusal = _refusal(str(error), 503)
        refusal.headers["Retry-After"] = str(RETRY_SECONDS)
        return refusal
    response = HttpResponse(text, content_type=content_type)
    response.headers["Cache-Control"] = "no-store"
    return response


def _bearer_of(request: HttpRequest) -> str:
    """Return the token that a scraper sent; empty if it sent none."""
    header = request.headers.get("Authorization", "")
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        return ""
    return token.strip()


def _refusal(words: str, status: int) -> HttpResponse:
    return HttpResponse(f"{words}\n", status=status, content_type="text/plain")
