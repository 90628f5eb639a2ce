from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('checkpoints', '0002_worker_by_heartbeat'),
    ]

    operations = [
        migrations.AddField(
            model_name='taskresult',
            name='pid_space',
            field=models.CharField(blank=True, default='', help_text='Boot of the host and pid namespace: where the pid counts.', max_length=80),
        ),
        migrations.AddField(
            model_name='worker',
            name='pid_space',
            field=models.CharField(blank=True, default='', help_text='Boot of the host and pid namespace: where the pid counts.', max_length=80),
        ),
    ]
