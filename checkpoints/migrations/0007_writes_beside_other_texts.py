from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('checkpoints', '0006_anchors_beside_seals'),
    ]

    operations = [
        migrations.AlterField(
            model_name='pendingwrite',
            name='reason',
            field=models.CharField(choices=[('proposal', 'Proposal'), ('edit', 'Edit'), ('rebase', 'Rebase'), ('texts', 'Texts')], default='proposal', max_length=10),
        ),
    ]
