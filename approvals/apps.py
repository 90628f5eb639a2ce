"""Floor 2 as a Django app."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Who may say yes to which write, and what they said."""

    name = "approvals"
    verbose_name = "Approvals"
    default_auto_field = "django.db.models.BigAutoField"
