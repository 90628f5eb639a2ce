"""What a job is for and its place get seals: those of jobs that are queued or running now are sealed once."""

from django.db import migrations, models

from checkpoints.queue import job_seals


def seal_jobs(apps, schema_editor):
    model = apps.get_model("checkpoints", "Job")
    for job in model.objects.filter(status__in=("queued", "running")).order_by("pk"):
        job.facts_seal = job_seals.facts_seal(job.id, job.kind, job.name, job.run, job.facts)
        job.place_seal = job_seals.place_seal(job.id, job.kind, job.progress.get("place"))
        job.save(update_fields=["facts_seal", "place_seal"])


class Migration(migrations.Migration):

    dependencies = [
        ("checkpoints", "0018_policies_act_by_themselves"),
    ]

    operations = [
        migrations.AddField(
            "job",
            "facts_seal",
            models.CharField(
                blank=True, default="", editable=False, help_text="Of its facts: key id and HMAC.", max_length=120
            ),
        ),
        migrations.AddField(
            "job",
            "place_seal",
            models.CharField(
                blank=True, default="", editable=False, help_text="Of its place: key id and HMAC.", max_length=120
            ),
        ),
        migrations.RunPython(seal_jobs, migrations.RunPython.noop),
    ]
