"""When people first had a write on the screen, and the order in which figures of a gate are read."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0013_notices_by_mail'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Sighting',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run', models.UUIDField(db_index=True)),
                ('request', models.UUIDField()),
                ('write', models.UUIDField()),
                ('revision', models.IntegerField()),
                ('at', models.DateTimeField(help_text='By the clock of the database.')),
                ('opened_at', models.DateTimeField(blank=True, help_text='When nothing of it was folded any more; empty if something is.', null=True)),
                ('by', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('by', 'write', 'revision'), name='sighting_of_revision')],
            },
        ),
        migrations.AddIndex(
            model_name='approvalrequest',
            index=models.Index(fields=['graph', 'node', '-opened_at', '-id'], name='request_by_gate'),
        ),
    ]
