"""The demo's claims as a Django app. An app of a real service looks like this: models
and a graphs.py, with nothing to register.
"""

from django.apps import AppConfig


class ClaimsConfig(AppConfig):
    """Claims are paid out, and the other side of the payment is here too."""

    name = "orchestrator.demo.claims"
    label = "demo_claims"
    verbose_name = "Demo: claims"
    default_auto_field = "django.db.models.BigAutoField"
