"""What a gate read that needed nobody: a column that needs only the catalogue. Back only where none was written."""

from django.db import migrations, models
from django.db.migrations.exceptions import IrreversibleError


# The condition of the trigger names the columns, so none of them could go. Until the triggers of this version are put
# in place, after all migrations, every update is refused.
REFUSE_EVERY_UPDATE = {
    'postgresql': [
        """
        DO $$ BEGIN
            IF EXISTS (SELECT FROM pg_trigger WHERE tgname = 'decision_no_update') THEN
                CREATE OR REPLACE TRIGGER decision_no_update BEFORE UPDATE ON "approvals_decision"
                    FOR EACH ROW EXECUTE FUNCTION countersign_append_only();
            END IF;
        END $$""",
    ],
    'sqlite': [
        'DROP TRIGGER IF EXISTS decision_no_update',
        'CREATE TRIGGER decision_no_update BEFORE UPDATE ON "approvals_decision"'
        " BEGIN SELECT RAISE(ABORT, 'decisions are append-only'); END",
    ],
}


def refuse_where_it_is_sealed(apps, schema_editor):
    """The seals of decisions that have the column cover it, so none of them would verify without."""
    decisions = apps.get_model('approvals', 'Decision').objects.using(schema_editor.connection.alias)
    count = decisions.filter(checked__isnull=False).count()
    if count:
        raise IrreversibleError(
            f'{count} decisions say that a gate needed nobody (not_needed), and what it read. Their seals do not hold'
            ' without that, and decisions are never deleted: restore a backup from before they were made, or stay on'
            ' this version'
        )


def refuse_every_update(apps, schema_editor):
    refuse_where_it_is_sealed(apps, schema_editor)
    for statement in REFUSE_EVERY_UPDATE.get(schema_editor.connection.vendor, ()):
        schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0001_squashed_0005_requests_by_their_point'),
    ]

    operations = [
        migrations.AddField(
            model_name='decision',
            name='checked',
            field=models.JSONField(help_text='{reads: [channel]}: what the gate read to say that it needed nobody; empty where somebody decided.', null=True),
        ),
        # Backwards this comes first.
        migrations.RunPython(migrations.RunPython.noop, refuse_every_update),
    ]
