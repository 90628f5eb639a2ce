from django.db import migrations, models


class Migration(migrations.Migration):
    """What set a channel is found without reading a run's history."""

    dependencies = [("checkpoints", "0027_paused_departures")]

    operations = [
        migrations.AddIndex(
            model_name="checkpoint",
            index=models.Index(
                fields=["run", "seq"],
                name="checkpoint_unlisted",
                condition=models.Q(source__in=["fork", "replay", "manual", "version"]),
            ),
        ),
    ]
