"""Floor 3 as a Django app."""

from django.apps import AppConfig


class OrchestratorConfig(AppConfig):
    """What may run next, and the faces that need all floors."""

    name = "orchestrator"
    verbose_name = "Orchestrator"
    default_auto_field = "django.db.models.BigAutoField"
