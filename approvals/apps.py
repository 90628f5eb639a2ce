"""Floor 2 as a Django app."""

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate


class ApprovalsConfig(AppConfig):
    """Who may say yes to which write, and what did they say?"""

    name = "approvals"
    verbose_name = "Approvals"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from approvals import append_only as guard
        from approvals import verification as examining
        from checkpoints import verification

        verification.EXAMINERS.append(examining.approvals)
        post_migrate.connect(guard.install, sender=self)
        checks.register(guard.check_triggers, checks.Tags.database)
