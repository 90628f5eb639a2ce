import django.db.models.deletion
from django.db import migrations, models

from checkpoints import uploads
from checkpoints.sealing import sealed_columns
from orchestrator.engine.errors import CountersignError


def note_runs_that_are_there(apps, schema_editor):
    """Read once from the inputs which files they name. An input that does not open may name any that is older."""
    from checkpoints.models import Run

    known, made = apps.get_model("checkpoints", "Upload").objects, apps.get_model("checkpoints", "UploadReference").objects
    if not known.exists():
        return
    for run in Run.objects.only("id", "input", "encrypted", "hash_key", "created_at").iterator():
        try:
            named = [ref["file"] for ref in uploads.refs_in(sealed_columns.read_value(run, "input"))]
        except CountersignError:
            named = known.filter(at__lte=run.created_at).values_list("id", flat=True)
        for upload in known.filter(id__in=list(named)).values_list("id", flat=True):
            made.create(run=run.id, upload_id=upload)


class Migration(migrations.Migration):

    dependencies = [
        ('checkpoints', '0013_erasures'),
    ]

    operations = [
        migrations.CreateModel(
            name='UploadReference',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run', models.UUIDField()),
                ('upload', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='references', to='checkpoints.upload')),
            ],
            options={
                'indexes': [models.Index(fields=['run'], name='upload_reference_by_run')],
                'constraints': [models.UniqueConstraint(fields=('upload', 'run'), name='upload_reference_once')],
            },
        ),
        migrations.AddField(
            model_name='erasurerecord',
            name='origin_rows_hash',
            field=models.CharField(blank=True, default='', help_text='Of a run that was imported: what `rows_hash` was there.', max_length=64),
        ),
        migrations.RunPython(note_runs_that_are_there, migrations.RunPython.noop),
    ]
