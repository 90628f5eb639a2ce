"""Floor 1 as a Django app."""

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate


class CheckpointsConfig(AppConfig):
    """What a run is, where it stands, what happened."""

    name = "checkpoints"
    verbose_name = "Checkpoints"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from checkpoints.memory import search as searching

        post_migrate.connect(searching.install, sender=self)
        checks.register(searching.check_index, checks.Tags.database)
