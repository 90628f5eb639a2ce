"""Holds, pins and policies get seals: those that are there now are sealed once, and a line of the audit log says how many.

The columns are added in the same transaction, so this cannot be done a second time to a row that somebody changed since.
"""

from django.db import migrations, models
from django.utils import timezone

from checkpoints.sealing.older_seals import seal_as_older, sealable

TABLES = ("LegalHold", "Pin", "RetentionPolicy")


def seal_rows(apps, schema_editor):
    counts = {}
    for name in TABLES:
        model = sealable(apps.get_model("checkpoints", name))
        for row in model.objects.order_by("pk"):
            seal_as_older(row)
            row.save(update_fields=["seal", "seal_key"])
            counts[name] = counts.get(name, 0) + 1
    if counts:
        line = sealable(apps.get_model("checkpoints", "AuditLine"), UNSEALED=("number", "hash"))
        row = line(at=timezone.now(), kind="rows_sealed", facts={"rows": counts})
        seal_as_older(row)
        row.save()


def _columns(model):
    return [
        migrations.AddField(model, "seal", models.BinaryField(blank=True, editable=False, null=True)),
        migrations.AddField(model, "seal_key", models.CharField(blank=True, default="", max_length=40)),
    ]


class Migration(migrations.Migration):

    dependencies = [
        ("checkpoints", "0015_head_of_the_audit_log"),
    ]

    operations = [
        *(operation for name in TABLES for operation in _columns(name.lower())),
        migrations.RunPython(seal_rows, migrations.RunPython.noop),
    ]
