from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('orchestrator', '0001_squashed_0005_answer_references'),
    ]

    operations = [
        migrations.AddField(
            model_name='preference',
            name='shortcuts',
            field=models.BooleanField(default=True, help_text='Whether single keys do something on the pages.'),
        ),
    ]
