"""Versions of graphs get seals, and each says which was the newest before it: those that are there now are sealed once.

The columns are added in the same transaction, so this cannot be done a second time to a row that somebody changed since.
"""

from django.db import migrations, models

from checkpoints.sealing.older_seals import seal_as_older, sealable


def seal_versions(apps, schema_editor):
    model = sealable(
        apps.get_model("checkpoints", "GraphVersion"),
        IDENTITY=("name", "version", "fingerprint"),
        UNSEALED=("current", "structure"),
        MOMENT="first_seen_at",
    )
    newest = {}
    for row in model.objects.order_by("first_seen_at", "id"):
        row.before = newest.get(row.name, "")
        seal_as_older(row)
        row.save(update_fields=["before", "seal", "seal_key"])
        newest[row.name] = row.fingerprint


class Migration(migrations.Migration):

    dependencies = [
        ("checkpoints", "0019_seals_of_jobs"),
    ]

    operations = [
        migrations.AddField(
            "graphversion",
            "before",
            models.CharField(
                blank=True,
                default="",
                editable=False,
                help_text="Fingerprint of the newest version of its graph that had been seen then; empty for the first.",
                max_length=64,
            ),
        ),
        migrations.AddField("graphversion", "seal", models.BinaryField(blank=True, editable=False, null=True)),
        migrations.AddField(
            "graphversion", "seal_key", models.CharField(blank=True, default="", max_length=40)
        ),
        migrations.RunPython(seal_versions, migrations.RunPython.noop),
    ]
