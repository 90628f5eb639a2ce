"""Apart from the columns: to add those nobody may read a table, to build these everybody may."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0020_folders_of_inboxes'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='draft',
            index=models.Index(fields=['by', 'run'], name='draft_by_person'),
        ),
        migrations.AddIndex(
            model_name='requestreviewer',
            index=models.Index(condition=models.Q(('expired', True)), fields=['principal', '-opened_at', '-request'], name='reviewer_expired'),
        ),
        migrations.AddIndex(
            model_name='requestsigner',
            index=models.Index(condition=models.Q(('behind__isnull', False), ('is_open', True)), fields=['by', '-opened_at', '-request'], name='signer_came_back'),
        ),
    ]
