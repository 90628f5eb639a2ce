"""Who has taken a review, and who decides for whom. Back only where nobody has decided for another."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.migrations.exceptions import IrreversibleError

import checkpoints.core.ids


# As in 0010: the condition of the trigger names the columns, so none of them could go.
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
    """The seals of decisions that were made for another cover the columns, so none of them would verify without."""
    decisions = apps.get_model('approvals', 'Decision').objects.using(schema_editor.connection.alias)
    count = decisions.filter(delegation__isnull=False).count()
    if count:
        raise IrreversibleError(
            f'{count} decisions were made for another person. Their seals do not hold without that, and decisions'
            ' are never deleted: restore a backup from before they were made, or stay on this version'
        )


def refuse_every_update(apps, schema_editor):
    refuse_where_it_is_sealed(apps, schema_editor)
    for statement in REFUSE_EVERY_UPDATE.get(schema_editor.connection.vendor, ()):
        schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0014_sightings'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='RequestClaim',
            fields=[
                ('seal', models.BinaryField(blank=True, null=True)),
                ('seal_key', models.CharField(blank=True, default='', max_length=40)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('by_name', models.CharField(max_length=150)),
                ('assigned_name', models.CharField(blank=True, default='', max_length=150)),
                ('at', models.DateTimeField()),
                ('until', models.DateTimeField(help_text='Empty where it lasts until it is released.', null=True)),
                ('assigned_by', models.ForeignKey(help_text='Who handed it to its holder; empty if they took it themselves.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('by', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('request', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='claim', to='approvals.approvalrequest')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Delegation',
            fields=[
                ('seal', models.BinaryField(blank=True, null=True)),
                ('seal_key', models.CharField(blank=True, default='', max_length=40)),
                ('id', models.UUIDField(default=checkpoints.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('begins_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('reason', models.CharField(blank=True, default='', max_length=1000)),
                ('made_at', models.DateTimeField()),
                ('revoked_at', models.DateTimeField(null=True)),
                ('delegate', models.ForeignKey(help_text='Who decides for them.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('delegator', models.ForeignKey(help_text='Whose right it is.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('revoked_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-made_at', '-id'],
            },
        ),
        migrations.AddField(
            model_name='decision',
            name='delegator',
            field=models.ForeignKey(db_index=False, help_text='Whose right its person used; empty where it was their own.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='decision',
            name='delegator_name',
            field=models.CharField(blank=True, db_default='', default='', max_length=150),
        ),
        migrations.AddField(
            model_name='decision',
            name='delegation',
            field=models.UUIDField(help_text='The row by which they had passed it on.', null=True),
        ),
        # Backwards this comes first.
        migrations.RunPython(migrations.RunPython.noop, refuse_every_update),
    ]
