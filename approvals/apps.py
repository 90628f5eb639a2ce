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
        from approvals import append_only
        from approvals import verification as approvals_verification
        from approvals.models import ApprovalRequest, Decision, Receipt
        from checkpoints import bundle, verification

        for kind, model in (("request", ApprovalRequest), ("receipt", Receipt), ("decision", Decision)):
            bundle.add_table(bundle.BundledTable(kind, model, size=20))
        verification.EXAMINERS.append(approvals_verification.approvals)
        post_migrate.connect(append_only.install_triggers, sender=self)
        checks.register(append_only.check_triggers, checks.Tags.database)
