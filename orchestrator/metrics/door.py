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
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not constant_time_compare(sent.strip(), token):
        return _refusal("The metrics need their token.", 403)

    from prometheus_client.exposition import choose_encoder

    from orchestrator.metrics.families import registry

    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    try:
        text = encode(registry())
    except ReadingsUnavailable as error:
        refusal = _refusal(str(error), 503)
        refusal.headers["Retry-After"] = str(RETRY_SECONDS)
        return refusal
    response = HttpResponse(text, content_type=content_type)
    response.headers["Cache-Control"] = "no-store"
    return response


def _refusal(words: str, status: int) -> HttpResponse:
    return HttpResponse(f"{words}\n", status=status, content_type="text/plain")
