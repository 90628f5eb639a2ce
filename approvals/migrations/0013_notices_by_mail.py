"""Notices by mail, and what each person chose of it."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0012_notices'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='MailPreference',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='countersign_mail', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('mode', models.CharField(choices=[('at_once', 'each at once'), ('digest', 'gathered, at most every ten minutes'), ('none', 'none')], default='digest', max_length=10)),
                ('quiet_from', models.TimeField(blank=True, null=True)),
                ('quiet_until', models.TimeField(blank=True, help_text='Before its beginning: on the next day.', null=True)),
                ('time_zone', models.CharField(default='UTC', help_text='A name of the tz database.', max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name='NoticeMail',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('status', models.CharField(choices=[('waiting', 'waits for its next attempt'), ('delivered', 'the receiver has accepted it'), ('given_up', 'not accepted within a day')], default='waiting', max_length=10)),
                ('batch', models.UUIDField(blank=True, db_index=True, null=True)),
                ('attempts', models.IntegerField(default=0)),
                ('made_at', models.DateTimeField()),
                ('due_at', models.DateTimeField()),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('notice', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='mails', to='approvals.notice')),
                ('user', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [
                    models.Index(condition=models.Q(('status', 'waiting')), fields=['user', 'due_at'], name='notice_mail_due'),
                    models.Index(fields=['user', 'sent_at'], name='notice_mail_sent'),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('user', 'notice'), name='notice_mail_once'),
                ],
            },
        ),
    ]
