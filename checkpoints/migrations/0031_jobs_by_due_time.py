from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('checkpoints', '0030_runs_by_graph_and_status'),
    ]

    operations = [
        # Deadlines are jobs that are due far ahead: a claim must not walk through them.
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('status__in', ['queued', 'running'])), fields=['status', 'due_at'], name='job_due'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('status', 'running')), fields=['lease_until'], name='job_leased'),
        ),
    ]
