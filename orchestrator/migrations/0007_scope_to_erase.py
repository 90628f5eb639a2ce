"""Name the scope of tokens that may erase values."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0006_preference_shortcuts"),
    ]

    operations = [
        migrations.AlterField(
            model_name="apitoken",
            name="scopes",
            field=models.JSONField(default=list, help_text="Of: start, read, decide, steer, export, erase."),
        ),
    ]
