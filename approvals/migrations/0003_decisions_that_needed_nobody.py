"""Decisions of the system on writes that needed nobody: no request behind them, and a longer verdict.

`AlterField` on PostgreSQL would drop the foreign key and make it again, which reads the whole table under a lock that
keeps everybody out. Both changes need only the catalogue, so they are written out. Backwards the column is read once.
"""

import django.db.models.deletion
from django.db import migrations, models
from django.db.migrations.exceptions import IrreversibleError


# The condition of the trigger names the columns, so none of them could change its type. Until the triggers of this
# version are put in place, after all migrations, every update is refused.
REFUSE_EVERY_UPDATE = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_trigger WHERE tgname = 'decision_no_update') THEN
        CREATE OR REPLACE TRIGGER decision_no_update BEFORE UPDATE ON "approvals_decision"
            FOR EACH ROW EXECUTE FUNCTION countersign_append_only();
    END IF;
END $$"""


class AlterColumn(migrations.AlterField):
    """`AlterField`; on PostgreSQL these clauses of one ALTER TABLE, which leave keys and rows alone."""

    def __init__(self, model_name, name, field, *, forwards, backwards):
        super().__init__(model_name, name, field)
        self.clauses = forwards, backwards

    def deconstruct(self):
        name, args, kwargs = super().deconstruct()
        return name, args, {**kwargs, 'forwards': self.clauses[0], 'backwards': self.clauses[1]}

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        self._alter(0, app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        self._alter(1, app_label, schema_editor, from_state, to_state)

    def _alter(self, way, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor != 'postgresql':
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        schema_editor.execute(REFUSE_EVERY_UPDATE, params=None)
        schema_editor.execute(f'ALTER TABLE "approvals_decision" {self.clauses[way]}')


def refuse_where_nobody_was_asked(apps, schema_editor):
    """Decisions are append-only, and those of the system have no place in the older table."""
    decisions = apps.get_model('approvals', 'Decision').objects.using(schema_editor.connection.alias)
    count = decisions.filter(verdict='not_needed').count()
    if count:
        raise IrreversibleError(
            f'{count} decisions say that a gate needed nobody (not_needed). The older table cannot hold them, and'
            ' decisions are never deleted: restore a backup from before they were made, or stay on this version'
        )


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0002_drafts'),
    ]

    operations = [
        AlterColumn(
            model_name='decision',
            name='request',
            field=models.ForeignKey(help_text='Empty where the gate needed nobody, so that nobody was asked.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to='approvals.approvalrequest'),
            forwards='ALTER COLUMN "request_id" DROP NOT NULL',
            backwards='ALTER COLUMN "request_id" SET NOT NULL',
        ),
        migrations.AlterField(
            model_name='decision',
            name='revision',
            field=models.PositiveIntegerField(help_text='The revision it counts for: after an edit, the one that the edit made; 0 where nothing was held.'),
        ),
        migrations.AlterField(
            model_name='decision',
            name='seen_hash',
            field=models.CharField(help_text='The hash of what was on the screen; empty where nobody was asked.', max_length=64),
        ),
        AlterColumn(
            model_name='decision',
            name='verdict',
            field=models.CharField(choices=[('approve', 'approve'), ('reject', 'reject'), ('edit', 'edit'), ('not_needed', 'not_needed')], max_length=10),
            forwards='ALTER COLUMN "verdict" TYPE varchar(10)',
            backwards='ALTER COLUMN "verdict" TYPE varchar(8)',
        ),
        # Last, so that going backwards begins with it.
        migrations.RunPython(migrations.RunPython.noop, refuse_where_nobody_was_asked),
    ]
