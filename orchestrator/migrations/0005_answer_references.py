import django.db.models.deletion
from django.db import migrations, models

from checkpoints.sealing import sealed_rows
from orchestrator.engine.errors import CountersignError


def note_answers_that_are_there(apps, schema_editor):
    """Read once of what the answers of the last week tell. One that does not open tells nobody anything."""
    from checkpoints.models import Run
    from orchestrator import answer_references
    from orchestrator.models import IdempotencyRecord

    kept = IdempotencyRecord.objects.exclude(status=None).exclude(answer=b"")
    for row in kept.only("id", *IdempotencyRecord.IDENTITY, "answer").iterator():
        try:
            answer = sealed_rows.decrypted(row, "answer")
        except CountersignError:
            continue
        [run, *_] = [*Run.objects.filter(key__in=row.path.split("/")).values_list("key", flat=True)[:1], ""]
        answer_references.note_references(row, answer, run=run)


class Migration(migrations.Migration):

    dependencies = [
        ('orchestrator', '0004_bulk_forks'),
        ('checkpoints', '0014_upload_references'),
    ]

    operations = [
        migrations.CreateModel(
            name='AnswerReference',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('subject', models.UUIDField()),
                ('record', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='references', to='orchestrator.idempotencyrecord')),
            ],
            options={
                'indexes': [models.Index(fields=['subject'], name='answer_reference_subject')],
            },
        ),
        migrations.RunPython(note_answers_that_are_there, migrations.RunPython.noop),
    ]
