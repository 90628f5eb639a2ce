"""Who has taken a review."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0011_passkeys'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='RequestClaim',
            fields=[
                ('seal', models.BinaryField(blank=True, null=True)),
                ('seal_key', models.CharField(blank=True, default='', max_length=40)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('by_name', models.CharField(max_length=150)),
                ('assigned_name', models.CharField(blank=True, default='', max_length=150)),
                ('at', models.DateTimeField()),
                ('until', models.DateTimeField(help_text='Empty where it lasts until it is released.', null=True)),
                ('assigned_by', models.ForeignKey(help_text='Who handed it to its holder; empty if they took it themselves.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('by', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('request', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='claim', to='approvals.approvalrequest')),
            ],
            options={
                'abstract': False,
            },
        ),
    ]
