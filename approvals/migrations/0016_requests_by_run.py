from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0015_people'),
    ]

    operations = [
        migrations.AddField(
            model_name='requestreviewer',
            name='by_run',
            field=models.BooleanField(db_default=False, default=False, editable=False, help_text='In the first row of a run with this principal: its requests stand in their list by the run. Else each has a row of its own there.'),
        ),
        migrations.AlterField(
            model_name='requestviewer',
            name='principal',
            field=models.CharField(help_text='As of a reviewer, or starter:<id of the account>, or run:<id>', max_length=200),
        ),
        migrations.AddIndex(
            model_name='requestreviewer',
            index=models.Index(condition=models.Q(('run_status__isnull', False)), fields=['run', 'by_run'], name='reviewer_first_of_run'),
        ),
        migrations.AddIndex(
            model_name='requestreviewer',
            index=models.Index(condition=models.Q(('by_run', True)), fields=['principal', 'run'], name='reviewer_by_run'),
        ),
    ]
