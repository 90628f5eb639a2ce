"""Rows have one format of seals from now on: a database that an older release wrote is marked, until `seal_anew` has
sealed its rows anew.
"""

from django.db import migrations, models
from django.utils import timezone

from checkpoints.sealing import sealed_rows
from checkpoints.sealing.older_seals import sealable


def mark_older_rows(apps, schema_editor):
    head = apps.get_model("checkpoints", "AuditHead")
    if any(model.objects.exists() for model in _sealed(apps) if model is not head):
        apps.get_model("checkpoints", "OlderSeals").objects.create(since=timezone.now())
        return
    # A database that was just made, or never used: nothing rests on this row yet.
    for row in sealable(head).objects.filter(number=0):
        sealed_rows.seal(row, sealed_rows.PLAIN)
        row.save(update_fields=["seal", "seal_key"])


def _sealed(apps):
    for model in apps.get_models():
        if any(field.name == "seal" for field in model._meta.concrete_fields):
            yield model


class Migration(migrations.Migration):

    dependencies = [
        ("checkpoints", "0022_run_metadata_in_the_plural"),
        ("approvals", "0006_what_gates_read_that_needed_nobody"),
        ("orchestrator", "0007_scope_to_erase"),
    ]

    operations = [
        migrations.CreateModel(
            name="OlderSeals",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("since", models.DateTimeField()),
            ],
            options={"verbose_name_plural": "older seals"},
        ),
        migrations.AlterField(
            model_name="erasurerecord",
            name="origin_rows_hash",
            field=models.CharField(
                blank=True,
                default="",
                help_text=(
                    "What `rows_hash` was when the log told of it: of a run that was imported, or whose rows were "
                    "sealed anew since."
                ),
                max_length=64,
            ),
        ),
        migrations.RunPython(mark_older_rows, migrations.RunPython.noop),
    ]
