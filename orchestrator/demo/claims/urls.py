"""Addresses of the demo's claims: the payment service, and a page that shows what has really happened outside."""

from django.urls import path

from orchestrator.demo.claims.endpoint import payments
from orchestrator.demo.claims.views import letter, outside

urlpatterns = [
    path("", outside, name="demo_outside"),
    path("payments/", payments, name="demo_payments"),
    path("letters/<str:name>", letter, name="demo_letter"),
]
