"""Where the chain of the audit log stands becomes a sealed row of its own: that of the last line as it is now."""

from django.db import migrations, models
from django.utils import timezone

from checkpoints.sealing import sealed_rows
from checkpoints.sealing.older_seals import sealable


def keep_head(apps, schema_editor):
    lines = apps.get_model("checkpoints", "AuditLine").objects.filter(number__isnull=False)
    last = lines.order_by("-number").values_list("number", "hash").first() or (0, "")
    row = sealable(apps.get_model("checkpoints", "AuditHead"))(number=last[0], hash=last[1], at=timezone.now())
    sealed_rows.seal(row, sealed_rows.PLAIN)
    row.save()


class Migration(migrations.Migration):

    dependencies = [
        ("checkpoints", "0001_squashed_0014_upload_references"),
    ]

    operations = [
        migrations.CreateModel(
            name="AuditHead",
            fields=[
                ("seal", models.BinaryField(blank=True, editable=False, null=True)),
                ("seal_key", models.CharField(blank=True, default="", max_length=40)),
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("number", models.BigIntegerField(default=0, help_text="Of the last line that was chained; 0 where none was.")),
                ("hash", models.CharField(blank=True, default="", max_length=64)),
                ("at", models.DateTimeField()),
            ],
            options={"abstract": False},
        ),
        migrations.RunPython(keep_head, migrations.RunPython.noop),
    ]
