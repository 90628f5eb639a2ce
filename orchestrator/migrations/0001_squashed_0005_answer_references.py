import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('orchestrator', '0001_initial'), ('orchestrator', '0002_failed_authentication'), ('orchestrator', '0003_sealed_tokens'), ('orchestrator', '0004_bulk_forks'), ('orchestrator', '0005_answer_references')]

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Preference',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='countersign_preference', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('theme', models.CharField(choices=[('auto', 'auto'), ('light', 'light'), ('dark', 'dark')], default='auto', max_length=5)),
            ],
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(blank=True, default='', max_length=100)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('hint', models.CharField(help_text='The first characters, to tell tokens apart.', max_length=12)),
                ('scopes', models.JSONField(default=list, help_text='Of: start, read, decide, steer, export.')),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('seal', models.BinaryField(blank=True, null=True)),
                ('seal_key', models.CharField(blank=True, default='', max_length=40)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='countersign_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.CreateModel(
            name='BulkFork',
            fields=[
                ('seal', models.BinaryField(blank=True, null=True)),
                ('seal_key', models.CharField(blank=True, default='', max_length=40)),
                ('id', models.UUIDField(editable=False, help_text='That of its job.', primary_key=True, serialize=False)),
                ('wanted', models.BinaryField(help_text='Packed canonical JSON: {graph, status, patch, allow_effects, reason}.')),
                ('encrypted', models.BooleanField(default=False)),
                ('at', models.DateTimeField()),
                ('by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-at'],
            },
        ),
        migrations.CreateModel(
            name='FailedAuthentication',
            fields=[
                ('subject', models.CharField(help_text='address:<address> or token:<digest>', max_length=60, primary_key=True, serialize=False)),
                ('failures', models.PositiveIntegerField(default=0)),
                ('ends_at', models.DateTimeField(help_text='When the window ends, and counting begins anew.')),
            ],
            options={
                'indexes': [models.Index(fields=['ends_at'], name='failed_authentication_age')],
            },
        ),
        migrations.CreateModel(
            name='IdempotencyRecord',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('method', models.CharField(max_length=10)),
                ('path', models.CharField(max_length=500)),
                ('key', models.CharField(max_length=200)),
                ('body_hash', models.CharField(max_length=64)),
                ('status', models.PositiveSmallIntegerField(blank=True, help_text='Empty while the act is in progress.', null=True)),
                ('answer', models.BinaryField(default=b'')),
                ('created_at', models.DateTimeField()),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='AnswerReference',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('subject', models.UUIDField()),
                ('record', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='references', to='orchestrator.idempotencyrecord')),
            ],
        ),
        migrations.CreateModel(
            name='BulkForkResult',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('origin', models.UUIDField(help_text='The run that is forked.')),
                ('checkpoint', models.UUIDField(blank=True, help_text='From where; empty until it is looked for.', null=True)),
                ('fork', models.UUIDField(blank=True, help_text='The new run; empty where it was refused.', null=True)),
                ('code', models.CharField(blank=True, default='', help_text='Why it was refused.', max_length=60)),
                ('message', models.BinaryField(default=b'', help_text='Packed canonical JSON: the refusal in a sentence.')),
                ('at', models.DateTimeField(blank=True, help_text='Empty while it waits for its turn.', null=True)),
                ('bulk', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='results', to='orchestrator.bulkfork')),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(fields=['bulk', 'id'], name='bulk_fork_in_order'), models.Index(condition=models.Q(('at__isnull', True)), fields=['bulk', 'id'], name='bulk_fork_to_do')],
                'constraints': [models.UniqueConstraint(fields=('bulk', 'origin'), name='bulk_fork_once')],
            },
        ),
        migrations.AddIndex(
            model_name='idempotencyrecord',
            index=models.Index(fields=['created_at'], name='idempotency_record_age'),
        ),
        migrations.AddConstraint(
            model_name='idempotencyrecord',
            constraint=models.UniqueConstraint(fields=('user', 'method', 'path', 'key'), name='idempotency_record_key'),
        ),
        migrations.AddIndex(
            model_name='answerreference',
            index=models.Index(fields=['subject'], name='answer_reference_subject'),
        ),
    ]
