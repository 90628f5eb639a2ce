"""Tiers of requests: which have acted, and when the next one does. Back only where no request has any."""

from django.db import migrations, models
from django.db.migrations.exceptions import IrreversibleError


def refuse_where_it_is_sealed(apps, schema_editor):
    """The seals of requests with tiers cover the columns, so none of them would verify without."""
    requests = apps.get_model('approvals', 'ApprovalRequest').objects.using(schema_editor.connection.alias)
    count = requests.exclude(tier_at=None, passed_tiers=None).count()
    if count:
        raise IrreversibleError(
            f'{count} requests have tiers, and their seals do not hold without them: restore a backup from before'
            ' they were opened, or stay on this version'
        )


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0017_skipped_calls'),
    ]

    operations = [
        migrations.AddField(
            model_name='approvalrequest',
            name='passed_tiers',
            field=models.JSONField(blank=True, help_text='[moment at which each tier of its policy has acted, in order].', null=True),
        ),
        migrations.AddField(
            model_name='approvalrequest',
            name='tier_at',
            field=models.DateTimeField(blank=True, help_text='When the next tier of its policy acts.', null=True),
        ),
        migrations.AddField(
            model_name='notice',
            name='tier',
            field=models.PositiveSmallIntegerField(blank=True, help_text='Which tier of the request acted, from 0.', null=True),
        ),
        # Backwards this comes first.
        migrations.RunPython(migrations.RunPython.noop, refuse_where_it_is_sealed),
    ]
