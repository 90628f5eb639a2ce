"""Addresses of the demo: the page of the outside world, the payment service, letters,
imported rows.
"""

from django.urls import path

from orchestrator.demo.claims.endpoint import payments
from orchestrator.demo.imports.views import imported
from orchestrator.demo.outside import letter, outside

urlpatterns = [
    path("", outside, name="demo_outside"),
    path("payments/", payments, name="demo_payments"),
    path("letters/<str:name>", letter, name="demo_letter"),
    path("rows/<uuid:run>.csv", imported, name="demo_imported"),
]
