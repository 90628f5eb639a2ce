"""The demo's payment service and its client."""

import json
from typing import Any

import pytest
from django.test import Client

from orchestrator.demo.claims import payments
from orchestrator.demo.claims.models import Payment, PaymentCall
from orchestrator.demo.claims.values import PaymentOrder

URL = "/demo/payments/"
ORDER = {
    "claim_id": "CLM-1",
    "payee": "Marta Lindqvist",
    "account": "DE89370400440532013000",
    "amount": "4512.50",
    "currency": "EUR",
    "reference": "CLM-1",
}

pytestmark = pytest.mark.django_db


def post(body: Any, *, key: str = "k1", **options: Any) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Idempotency-Key": key} if key else {}
    return Client(enforce_csrf_checks=True).post(
        URL,
        content,
        content_type="application/json",
        headers={**headers, **options.pop("headers", {})},
        **options,
    )


def test_an_order_is_paid() -> None:
    answer = post(ORDER)
    payment = Payment.objects.get()
    assert answer.status_code == 201
    assert answer.json() == {
        "payment": payment.pk,
        "status": "accepted",
        "amount": "4512.50",
        "currency": "EUR",
    }


def test_the_same_key_again_pays_once_answers_the_same_and_is_kept() -> None:
    first = post(ORDER)
    second = post(ORDER)
    assert first.status_code == second.status_code
    assert first.content == second.content
    assert Payment.objects.count() == 1
    assert (
        list(PaymentCall.objects.values_list("idempotency_key", "status"))
        == [("k1", 201)] * 2
    )


def test_the_same_key_with_another_order_is_a_conflict() -> None:
    post(ORDER)
    assert post({**ORDER, "amount": "1.00"}).status_code == 409
    assert Payment.objects.get().amount == 4512.50


def test_another_key_pays_again() -> None:
    post(ORDER)
    post(ORDER, key="k2")
    assert Payment.objects.count() == 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b" ", 400),
        (b"{", 400),
        (b"[" * 5000, 400),
        (b"\xff\xfe", 400),
        (b"x" * (16 * 1024 + 1), 413),
        ([], 422),
        ({}, 422),
        ({**ORDER, "amount": "0.00"}, 422),
        ({**ORDER, "amount": "-5.00"}, 422),
        ({**ORDER, "amount": "1.005"}, 422),
        ({**ORDER, "account": "nowhere"}, 422),
        ({**ORDER, "tip": "1.00"}, 422),
    ],
)
def test_a_bad_body_is_refused_and_the_call_kept(body: Any, status: int) -> None:
    assert post(body).status_code == status
    assert not Payment.objects.exists()
    assert PaymentCall.objects.get().status == status


def test_a_call_without_a_key_is_refused() -> None:
    assert post(ORDER, key="").status_code == 400
    assert post(ORDER, key="x" * 201).status_code == 400
    assert not Payment.objects.exists()


def test_a_form_is_refused() -> None:
    # A page on another site could make a browser on this machine send a form.
    answer = Client().post(URL, ORDER, headers={"Idempotency-Key": "k1"})
    assert answer.status_code == 415


def test_from_another_machine_only_the_token_opens() -> None:
    assert post(ORDER, REMOTE_ADDR="10.0.0.9").status_code == 403
    assert post(ORDER, headers={"X-Forwarded-For": "10.0.0.9"}).status_code == 403
    assert (
        post(
            ORDER, REMOTE_ADDR="10.0.0.9", headers={payments.TOKEN_HEADER: "wrong"}
        ).status_code
        == 403
    )
    assert not PaymentCall.objects.exists()
    assert (
        post(
            ORDER,
            REMOTE_ADDR="10.0.0.9",
            headers={payments.TOKEN_HEADER: payments.token()},
        ).status_code
        == 201
    )


def test_the_books_can_be_read() -> None:
    post(ORDER)
    books = Client().get(URL).json()
    assert [payment["amount"] for payment in books["payments"]] == ["4512.50"]
    assert [call["status"] for call in books["calls"]] == [201]
    assert Client().get(URL, REMOTE_ADDR="10.0.0.9").status_code == 403
    assert Client().delete(URL).status_code == 405


def order() -> PaymentOrder:
    return PaymentOrder.model_validate(ORDER)


@pytest.mark.django_db(transaction=True)
def test_the_client_really_pays_over_http(live_server: Any, settings: Any) -> None:
    settings.COUNTERSIGN_DEMO_PAYMENTS_URL = f"{live_server.url}{URL}"
    receipt = payments.pay(order(), key="k1")
    assert payments.pay(order(), key="k1") == receipt
    with pytest.raises(payments.PaymentRefused, match="409"):
        payments.pay(order().model_copy(update={"reference": "other"}), key="k1")
    assert Payment.objects.get().pk == receipt.payment


def test_an_endpoint_that_is_not_there_is_named_with_the_setting(settings: Any) -> None:
    settings.COUNTERSIGN_DEMO_PAYMENTS_URL = "http://127.0.0.1:9/demo/payments/"
    with pytest.raises(
        payments.PaymentUnavailable, match="COUNTERSIGN_DEMO_PAYMENTS_URL says where"
    ):
        payments.pay(order(), key="k1")


def test_an_address_that_is_none_is_refused(settings: Any) -> None:
    settings.COUNTERSIGN_DEMO_PAYMENTS_URL = "file:///etc/passwd"
    with pytest.raises(payments.PaymentRefused, match="http"):
        payments.pay(order(), key="k1")
