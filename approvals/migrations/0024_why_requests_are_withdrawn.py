"""Requests are withdrawn, too, when they are re-opened. No column changes."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0023_policies'),
    ]

    operations = [
        migrations.AlterField(
            model_name='approvalrequest',
            name='status',
            field=models.CharField(choices=[('open', 'waits for people'), ('settled', 'each write is settled; the run has not applied it yet'), ('applied', 'a settlement has applied it'), ('withdrawn', 'its line was left, its run cancelled, or it was re-opened'), ('expired', 'closed by its deadline')], default='open', max_length=10),
        ),
    ]
