"""Notices of what waits and what came of it, and the webhooks that they are sent to."""

import checkpoints.core.ids
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
            name='Notice',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('event', models.CharField(max_length=30)),
                ('run', models.UUIDField(blank=True, help_text='Empty for a test.', null=True)),
                ('request', models.UUIDField(blank=True, null=True)),
                ('outcome', models.CharField(blank=True, default='', help_text='The outcome of the request, or the status of the run.', max_length=20)),
                ('at', models.DateTimeField()),
                ('passed_on_at', models.DateTimeField(blank=True, help_text='When deliveries were made of it.', null=True)),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [
                    models.Index(condition=models.Q(('passed_on_at__isnull', True)), fields=['id'], name='notice_waiting'),
                    models.Index(condition=models.Q(('passed_on_at__isnull', True)), fields=['request', 'event'], name='notice_waiting_of_request'),
                    models.Index(fields=['at'], name='notice_age'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Webhook',
            fields=[
                ('seal', models.BinaryField(blank=True, null=True)),
                ('seal_key', models.CharField(blank=True, default='', max_length=40)),
                ('id', models.UUIDField(default=checkpoints.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('url', models.CharField(max_length=500)),
                ('events', models.JSONField(blank=True, default=list, help_text='[event]; empty for all.')),
                ('graphs', models.JSONField(blank=True, default=list, help_text='[name]; empty for all.')),
                ('secret', models.BinaryField(help_text='Packed canonical JSON: a string.')),
                ('encrypted', models.BooleanField(default=False)),
                ('active', models.BooleanField(default=True)),
                ('at', models.DateTimeField()),
                ('by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-at', '-id'],
                'permissions': [('manage_webhooks', 'Can manage webhooks')],
            },
        ),
        migrations.CreateModel(
            name='WebhookDelivery',
            fields=[
                ('id', models.UUIDField(default=checkpoints.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('status', models.CharField(choices=[('waiting', 'waits for its next attempt'), ('delivered', 'the receiver has accepted it'), ('given_up', 'not accepted within a day')], default='waiting', max_length=10)),
                ('attempts', models.IntegerField(default=0)),
                ('due_at', models.DateTimeField()),
                ('made_at', models.DateTimeField()),
                ('first_at', models.DateTimeField(blank=True, help_text='Of the first attempt since it was due.', null=True)),
                ('last_at', models.DateTimeField(blank=True, null=True)),
                ('code', models.IntegerField(blank=True, help_text='The status that the receiver answered last.', null=True)),
                ('error', models.CharField(blank=True, default='', help_text='Why it failed, in our words.', max_length=200)),
                ('notice', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='approvals.notice')),
                ('webhook', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='approvals.webhook')),
            ],
            options={
                'ordering': ['-made_at', '-id'],
                'indexes': [
                    models.Index(condition=models.Q(('status', 'waiting')), fields=['webhook', 'due_at'], name='webhook_delivery_due'),
                    models.Index(fields=['webhook', '-made_at', '-id'], name='webhook_delivery_newest'),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('webhook', 'notice'), name='webhook_delivery_once'),
                ],
            },
        ),
    ]
