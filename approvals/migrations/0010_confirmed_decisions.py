"""How the person of a decision had confirmed it: a column that needs only the catalogue. Back only where none did."""

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
    """The seals of confirmed decisions cover the column, so none of them would verify without."""
    decisions = apps.get_model('approvals', 'Decision').objects.using(schema_editor.connection.alias)
    count = decisions.exclude(confirmed_by='').count()
    if count:
        raise IrreversibleError(
            f'{count} decisions were confirmed by their person. Their seals do not hold without that, and decisions'
            ' are never deleted: restore a backup from before they were made, or stay on this version'
        )


def refuse_every_update(apps, schema_editor):
    refuse_where_it_is_sealed(apps, schema_editor)
    for statement in REFUSE_EVERY_UPDATE.get(schema_editor.connection.vendor, ()):
        schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0009_requests_by_viewer'),
    ]

    operations = [
        migrations.AddField(
            model_name='decision',
            name='confirmed_by',
            field=models.CharField(blank=True, choices=[('', ''), ('password', 'password'), ('passkey', 'passkey')], db_default='', default='', help_text='How its person had shown once more who they are; empty if not.', max_length=10),
        ),
        # Backwards this comes first.
        migrations.RunPython(migrations.RunPython.noop, refuse_every_update),
    ]
