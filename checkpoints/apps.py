"""Floor 1 as a Django app."""

from django.apps import AppConfig


class CheckpointsConfig(AppConfig):
    """What a run is, where it stands, what happened."""

    name = "checkpoints"
    verbose_name = "Checkpoints"
    default_auto_field = "django.db.models.BigAutoField"
