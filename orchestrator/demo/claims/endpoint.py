"""The other side of the payment: a small payment service, as an outside company would
run it.

It keeps every authorised POST, and one payment for each idempotency key: the same key
with the same order gets the same answer.
"""

from http import HTTPStatus
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods
from pydantic import ValidationError

from checkpoints.core.strict_json import parse_strict
from orchestrator.demo.claims.models import Payment, PaymentCall
from orchestrator.demo.claims.payments import TOKEN_HEADER, token
from orchestrator.demo.claims.values import PaymentOrder

LARGEST = 16 * 1024
KEPT = 4000
LOOPBACK = ("127.0.0.1", "::1")


class Refusal(Exception):
    """A call that the service refuses, with the status and detail of its answer."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@csrf_exempt
@require_http_methods(["GET", "POST"])
def payments(request: HttpRequest) -> HttpResponse:
    """POST makes a payment; GET lists payments and calls, newest first, 200 of each."""
    if not _is_authorised(request):
        detail = f"call from this machine, or send {TOKEN_HEADER}"
        return JsonResponse({"detail": detail}, status=HTTPStatus.FORBIDDEN)
    if request.method == "GET":
        return JsonResponse(_books())
    key = request.headers.get("Idempotency-Key", "")
    status, answer = _answer(request, key)
    # A row for every authorised POST, refused ones too: whoever looks for a double
    # payment must see what was actually received.
    body = request.body[:KEPT].decode("utf-8", "replace").replace("\x00", "�")
    PaymentCall.objects.create(idempotency_key=key[:200], body=body, status=status)
    return JsonResponse(answer, status=status)


def _is_authorised(request: HttpRequest) -> bool:
    # A forwarded call comes from elsewhere, though the proxy is on this machine.
    if (
        request.META.get("REMOTE_ADDR") in LOOPBACK
        and "X-Forwarded-For" not in request.headers
    ):
        return True
    return constant_time_compare(request.headers.get(TOKEN_HEADER, ""), token())


def _answer(request: HttpRequest, key: str) -> tuple[int, dict[str, Any]]:
    try:
        payment = _payment(_order(request, key), key)
    except Refusal as refusal:
        return refusal.status, {"detail": refusal.detail}
    amount = f"{payment.amount:.2f}"
    return HTTPStatus.CREATED, {
        "payment": payment.pk,
        "status": "accepted",
        "amount": amount,
        "currency": payment.currency,
    }


def _order(request: HttpRequest, key: str) -> PaymentOrder:
    if not 1 <= len(key) <= 200 or not key.isprintable():
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "the header Idempotency-Key must have 1 to 200 characters",
        )
    if request.content_type != "application/json":
        raise Refusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json"
        )
    if len(request.body) > LARGEST:
        raise Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body must have at most {LARGEST} bytes",
        )
    try:
        return PaymentOrder.model_validate(parse_strict(request.body))
    # It is a `ValueError` too, so it comes first.
    except ValidationError as error:
        faults = []
        for fault in error.errors():
            place = ".".join(map(str, fault["loc"])) or "body"
            faults.append(f"{place}: {fault['msg']}")
        detail = "; ".join(faults)
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, detail[:1000]) from None
    except ValueError:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None


def _payment(order: PaymentOrder, key: str) -> Payment:
    """Return the payment of this key: a new one, or the earlier one of the same order."""
    values = order.model_dump()
    try:
        # If two calls come at once, the unique key admits one; the other finds its
        # payment.
        with transaction.atomic():
            return Payment.objects.create(idempotency_key=key, **values)
    except IntegrityError:
        payment = Payment.objects.get(idempotency_key=key)
    if any(getattr(payment, name) != value for name, value in values.items()):
        raise Refusal(
            HTTPStatus.CONFLICT, "this idempotency key has already paid another order"
        )
    return payment


def _books() -> dict[str, Any]:
    paid = Payment.objects.values(
        "id",
        "idempotency_key",
        "claim_id",
        "payee",
        "account",
        "amount",
        "currency",
        "at",
    )
    calls = PaymentCall.objects.values("idempotency_key", "status", "body", "at")
    return {"payments": list(paid[:200]), "calls": list(calls[:200])}
