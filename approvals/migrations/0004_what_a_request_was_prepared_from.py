from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0003_decisions_that_needed_nobody'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='approvalrequest',
            name='approval_request_task',
        ),
        migrations.AddField(
            model_name='approvalrequest',
            name='input_hash',
            field=models.CharField(blank=True, default='', max_length=64),
        ),
        migrations.AddField(
            model_name='approvalrequest',
            name='ordinal',
            field=models.IntegerField(default=0, help_text='How often the same task had asked before.'),
        ),
        migrations.AddField(
            model_name='approvalrequest',
            name='prepared_from',
            field=models.UUIDField(blank=True, help_text='The checkpoint with the state that the task read; empty where none was kept of it.', null=True),
        ),
        migrations.AddConstraint(
            model_name='approvalrequest',
            constraint=models.UniqueConstraint(fields=('run', 'line', 'node', 'visit', 'index', 'ordinal'), name='approval_request_task'),
        ),
    ]
