from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0004_what_a_request_was_prepared_from'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='approvalrequest',
            index=models.Index(condition=models.Q(('prepared_from__isnull', False)), fields=['prepared_from'], name='request_by_point'),
        ),
    ]
