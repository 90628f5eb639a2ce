"""The client of the payment endpoint: what the node `pay` calls. One real HTTP request,
carrying an idempotency key.
"""

from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import SplitResult, urlsplit

from django.conf import settings
from django.utils.crypto import salted_hmac

from orchestrator.demo.claims.values import PaymentOrder, PaymentReceipt

SETTING = "COUNTERSIGN_DEMO_PAYMENTS_URL"
DEFAULT_URL = "http://127.0.0.1:8000/demo/payments/"
TOKEN_HEADER = "X-Payments-Token"  # noqa: S105 - a name
PATIENCE = 10.0
"""Seconds to wait for an answer."""


class PaymentRefused(Exception):
    """The endpoint understood the call and will not pay; calling again would not help."""


class PaymentUnavailable(OSError):
    """The endpoint cannot be reached or is broken; the same call may be made again
    under the same key.
    """


def url() -> str:
    """Return the address at which payments are made: the Django setting, which our own
    project has from the environment variable of that name, else this machine.
    """
    return str(getattr(settings, SETTING, "") or DEFAULT_URL)


def token() -> str:
    """Return the token with which a caller from another machine may pay; both sides
    derive it from the secret key.
    """
    return salted_hmac(
        "orchestrator.demo.payments", "token", algorithm="sha256"
    ).hexdigest()


def pay(order: PaymentOrder, *, key: str) -> PaymentReceipt:
    """Make a payment. Raises `PaymentRefused` (nothing will come of it),
    `PaymentUnavailable` (try again, same key).
    """
    status, body = _post(url(), order.model_dump_json().encode(), key=key)
    if 400 <= status < 500:
        raise PaymentRefused(
            f"the payment endpoint refused the order ({status}): {body[:500]}"
        )
    if status not in (200, 201):
        raise PaymentUnavailable(
            f"the payment endpoint answered {status}: {body[:500]}"
        )
    return PaymentReceipt.model_validate_json(body)


def _post(address: str, body: bytes, *, key: str) -> tuple[int, str]:
    parts = urlsplit(address)
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": key,
        TOKEN_HEADER: token(),
    }
    connection = _connection(parts)
    try:
        connection.request("POST", parts.path or "/", body=body, headers=headers)
        answer: HTTPResponse = connection.getresponse()
        return answer.status, answer.read(65536).decode("utf-8", "replace")
    except (OSError, HTTPException) as error:
        raise PaymentUnavailable(
            f"the payment endpoint at {address} cannot be reached ({error}): is the"
            " web process running there? "
            f"{SETTING} says where it is"
        ) from error
    finally:
        connection.close()


def _connection(parts: SplitResult) -> HTTPConnection:
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise PaymentRefused(f"{SETTING} must be an http or https address")
    # Plain connections use no proxy and follow no redirect; a followed redirect could
    # turn the POST into a GET.
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname, parts.port, timeout=PATIENCE)
