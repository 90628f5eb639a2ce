from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("checkpoints", "0032_lines_of_policies")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="sums",
            field=models.JSONField(
                blank=True,
                help_text="What it has done since its start; empty where nobody watches.",
                null=True,
            ),
        ),
    ]
