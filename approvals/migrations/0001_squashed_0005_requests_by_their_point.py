import checkpoints.core.ids
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('approvals', '0001_initial'), ('approvals', '0002_drafts'), ('approvals', '0003_decisions_that_needed_nobody'), ('approvals', '0004_what_a_request_was_prepared_from'), ('approvals', '0005_requests_by_their_point')]

    initial = True

    dependencies = [
        ('checkpoints', '0001_squashed_0014_upload_references'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ApprovalRequest',
            fields=[
                ('seal', models.BinaryField(blank=True, null=True)),
                ('seal_key', models.CharField(blank=True, default='', max_length=40)),
                ('line', models.IntegerField()),
                ('node', models.CharField(max_length=200)),
                ('visit', models.IntegerField()),
                ('index', models.IntegerField(default=0)),
                ('id', models.UUIDField(default=checkpoints.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('graph', models.CharField(max_length=200)),
                ('kind', models.CharField(default='writes', max_length=10)),
                ('superstep', models.PositiveIntegerField(default=0)),
                ('title', models.BinaryField(help_text='Packed canonical JSON: a string.')),
                ('facts', models.BinaryField(help_text='Packed canonical JSON: [{label, value}].')),
                ('why', models.BinaryField(default=b'', help_text="Packed canonical JSON: the guard's reason, or its error.")),
                ('policy', models.JSONField(help_text='{reviewers, quorum, reject_quorum, four_eyes, all_or_nothing, ...} as resolved when it was opened.')),
                ('policy_hash', models.CharField(max_length=64)),
                ('quorum', models.PositiveSmallIntegerField(default=1)),
                ('writes', models.PositiveIntegerField(default=0, help_text='How many writes it asks about.')),
                ('status', models.CharField(choices=[('open', 'waits for people'), ('settled', 'each write is settled; the run has not applied it yet'), ('applied', 'a settlement has applied it'), ('withdrawn', 'its line was left, or its run cancelled'), ('expired', 'closed by its deadline')], default='open', max_length=10)),
                ('outcome', models.CharField(blank=True, default='', max_length=10)),
                ('opened_at', models.DateTimeField()),
                ('deadline', models.DateTimeField(blank=True, null=True)),
                ('settled_at', models.DateTimeField(blank=True, null=True)),
                ('settled_seq', models.PositiveBigIntegerField(blank=True, help_text='Number in the log of the decision that settled it: the order of settlements.', null=True)),
                ('input_hash', models.CharField(blank=True, default='', max_length=64)),
                ('ordinal', models.IntegerField(default=0, help_text='How often the same task had asked before.')),
                ('prepared_from', models.UUIDField(blank=True, help_text='The checkpoint with the state that the task read; empty where none was kept of it.', null=True)),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='requests', to='checkpoints.run')),
            ],
            options={
                'ordering': ['opened_at', 'id'],
                'permissions': [('decide', 'Can decide what runs ask'), ('reassign', 'Can reassign and re-open requests'), ('view_audit', 'Can read the audit log')],
            },
        ),
        migrations.CreateModel(
            name='Draft',
            fields=[
                ('seal', models.BinaryField(blank=True, null=True)),
                ('seal_key', models.CharField(blank=True, default='', max_length=40)),
                ('id', models.UUIDField(default=checkpoints.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('write', models.UUIDField(db_index=True)),
                ('revision', models.PositiveIntegerField(help_text='The revision that was on the screen.')),
                ('seen_hash', models.CharField(help_text='Its hash: of another one the draft is stale.', max_length=64)),
                ('choice', models.BinaryField(help_text='Packed canonical JSON: {verdict, reason, fields as they were typed}.')),
                ('number', models.PositiveBigIntegerField(help_text='Of the save, from 1: an older one never replaces a newer one.')),
                ('at', models.DateTimeField()),
                ('by', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='drafts', to='checkpoints.run')),
            ],
            options={
                'ordering': ['write'],
            },
        ),
        migrations.CreateModel(
            name='Receipt',
            fields=[
                ('seal', models.BinaryField(blank=True, null=True)),
                ('seal_key', models.CharField(blank=True, default='', max_length=40)),
                ('id', models.UUIDField(default=checkpoints.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
                ('idempotency_key', models.CharField(blank=True, max_length=200, null=True)),
                ('body_hash', models.CharField(help_text='Hash of what was posted: the same key with another body is a conflict.', max_length=64)),
                ('lines', models.JSONField(help_text='[{write, revision, hash, verdict, result, why, ...}] in the order signed.')),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='receipts', to='checkpoints.run')),
            ],
            options={
                'ordering': ['-at'],
            },
        ),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('seal', models.BinaryField(blank=True, null=True)),
                ('seal_key', models.CharField(blank=True, default='', max_length=40)),
                ('id', models.UUIDField(default=checkpoints.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('run', models.UUIDField()),
                ('line', models.PositiveIntegerField()),
                ('task', models.CharField(max_length=240)),
                ('write', models.UUIDField()),
                ('position', models.PositiveIntegerField()),
                ('channel', models.CharField(max_length=200)),
                ('revision', models.PositiveIntegerField(help_text='The revision it counts for: after an edit, the one that the edit made; 0 where nothing was held.')),
                ('seen_hash', models.CharField(help_text='The hash of what was on the screen; empty where nobody was asked.', max_length=64)),
                ('verdict', models.CharField(choices=[('approve', 'approve'), ('reject', 'reject'), ('edit', 'edit'), ('not_needed', 'not_needed')], max_length=10)),
                ('old_value', models.BinaryField(help_text="Packed canonical JSON: the channel's value when it was decided.")),
                ('proposed_value', models.BinaryField(help_text='Packed canonical JSON.')),
                ('final_value', models.BinaryField(default=b'', help_text='Packed canonical JSON; empty for a rejection.')),
                ('reason', models.BinaryField(default=b'', help_text='Packed canonical JSON: a string.')),
                ('by_name', models.CharField(blank=True, help_text='Empty for the system.', max_length=150)),
                ('at', models.DateTimeField()),
                ('event_seq', models.PositiveBigIntegerField(help_text="Its number in the run's log.")),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('request', models.ForeignKey(help_text='Empty where the gate needed nobody, so that nobody was asked.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to='approvals.approvalrequest')),
                ('receipt', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to='approvals.receipt')),
            ],
            options={
                'ordering': ['run', 'event_seq'],
            },
        ),
        migrations.CreateModel(
            name='RequestReviewer',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('principal', models.CharField(help_text='user:<name>, group:<name> or perm:<app.codename>', max_length=200)),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reviewers', to='approvals.approvalrequest')),
            ],
        ),
        migrations.AddIndex(
            model_name='approvalrequest',
            index=models.Index(fields=['run', 'status'], name='request_by_run'),
        ),
        migrations.AddIndex(
            model_name='approvalrequest',
            index=models.Index(condition=models.Q(('status', 'open')), fields=['deadline', 'opened_at'], name='request_open'),
        ),
        migrations.AddIndex(
            model_name='approvalrequest',
            index=models.Index(condition=models.Q(('prepared_from__isnull', False)), fields=['prepared_from'], name='request_by_point'),
        ),
        migrations.AddConstraint(
            model_name='approvalrequest',
            constraint=models.UniqueConstraint(fields=('run', 'line', 'node', 'visit', 'index', 'ordinal'), name='approval_request_task'),
        ),
        migrations.AddConstraint(
            model_name='draft',
            constraint=models.UniqueConstraint(fields=('by', 'write'), name='draft_by_write'),
        ),
        migrations.AddConstraint(
            model_name='receipt',
            constraint=models.UniqueConstraint(fields=('by', 'idempotency_key'), name='receipt_idempotency_key'),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(fields=['write', 'event_seq'], name='decision_by_write'),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(fields=['run', 'event_seq'], name='decision_by_run'),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(fields=['-at'], name='decision_newest'),
        ),
        migrations.AddConstraint(
            model_name='requestreviewer',
            constraint=models.UniqueConstraint(fields=('principal', 'request'), name='request_reviewer_principal'),
        ),
    ]
