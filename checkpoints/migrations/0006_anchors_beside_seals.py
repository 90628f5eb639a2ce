from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('checkpoints', '0005_run_lines'),
    ]

    operations = [
        migrations.AddField(
            model_name='checkpoint',
            name='snapshot_seal',
            field=models.BinaryField(blank=True, help_text="That the snapshot is this row's: key id and HMAC.", null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='parent_line',
            field=models.IntegerField(default=0, help_text='The line of the parent on which its task started this run; 0 where it has no parent.'),
        ),
    ]
