from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('checkpoints', '0004_audit_lines_by_kind'),
    ]

    operations = [
        migrations.AlterField(
            model_name='pendingwrite',
            name='reason',
            field=models.CharField(choices=[('proposal', 'Proposal'), ('edit', 'Edit'), ('rebase', 'Rebase'), ('texts', 'Texts')], default='proposal', max_length=10),
        ),
    ]
