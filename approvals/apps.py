"""Floor 2 as a Django app."""

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate, pre_migrate


class ApprovalsConfig(AppConfig):
    """Decides who may approve which write, and records their decisions."""

    name = "approvals"
    verbose_name = "Approvals"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from approvals import append_only, list_columns
        from approvals import erasure as approvals_erasure
        from approvals import verification as approvals_verification
        from approvals.gates import retention_needs
        from approvals.models import (
            ApprovalRequest,
            Decision,
            Draft,
            Receipt,
            RequestComment,
            Sighting,
            Webhook,
        )
        from checkpoints import bundle, erasure, verification
        from checkpoints.retention import kept_points, whole_runs

        for kind, model in (
            ("request", ApprovalRequest),
            ("receipt", Receipt),
            ("decision", Decision),
            ("comment", RequestComment),
        ):
            bundle.add_table(
                bundle.BundledTable(kind, model, size=20, shapes=model.SHAPES)
            )
        erasure.PLACES.extend(approvals_erasure.PLACES)
        erasure.SWEEPS.extend(approvals_erasure.SWEEPS)
        verification.EXAMINERS.append(approvals_verification.approvals)
        kept_points.POINTS["prepared_from"] = retention_needs.points_of_calls
        # Requests record what people saw. Decisions stay forever, together with the row
        # that verifies them.
        kept_points.REFERENCES.extend([ApprovalRequest, Decision])
        # A webhook of a run is the callback of an approval.
        whole_runs.PARTS.extend([Draft, Sighting, Webhook])
        for triggers in (append_only, list_columns):
            pre_migrate.connect(triggers.make_room, sender=self)
            post_migrate.connect(triggers.install_triggers, sender=self)
            checks.register(triggers.check_triggers, checks.Tags.database)
