"""Floor 1 as a Django app."""

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate


class CheckpointsConfig(AppConfig):
    """Stores runs: their state, their position and their history."""

    name = "checkpoints"
    verbose_name = "Checkpoints"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Imported here, for models can be loaded only once all apps are known.
        from checkpoints.audit import chain as audit_chain
        from checkpoints.memory import search

        post_migrate.connect(search.install_index, sender=self)
        post_migrate.connect(audit_chain.install_head, sender=self)
        checks.register(search.check_index, checks.Tags.database)
