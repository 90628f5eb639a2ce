"""Passkeys of people, what they are asked to sign, and what they signed. Back only where none did."""

import checkpoints.core.ids
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.migrations.exceptions import IrreversibleError


def refuse_where_it_is_sealed(apps, schema_editor):
    """The seals of receipts that hold an assertion cover the column, so none of them would verify without."""
    receipts = apps.get_model('approvals', 'Receipt').objects.using(schema_editor.connection.alias)
    count = receipts.filter(assertion__isnull=False).count()
    if count:
        raise IrreversibleError(
            f'{count} receipts hold what a passkey signed. Their seals do not hold without that: restore a backup from'
            ' before they were made, or stay on this version'
        )


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0010_confirmed_decisions'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='receipt',
            name='assertion',
            field=models.JSONField(blank=True, help_text='{document, credential, fingerprint, public_key, client_data, ...}: what a passkey signed; empty where none did.', null=True),
        ),
        migrations.CreateModel(
            name='Passkey',
            fields=[
                ('seal', models.BinaryField(blank=True, null=True)),
                ('seal_key', models.CharField(blank=True, default='', max_length=40)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('credential', models.CharField(help_text='The id that the authenticator gave it, in base64url.', max_length=1400, unique=True)),
                ('cose_key', models.TextField(help_text='Its public key as WebAuthn has it: base64.')),
                ('public_key', models.TextField(help_text='The same as SubjectPublicKeyInfo: DER in base64.')),
                ('fingerprint', models.CharField(help_text='SHA-256 of `public_key`.', max_length=64)),
                ('rp_id', models.CharField(help_text='The site that it is for.', max_length=253)),
                ('sign_count', models.BigIntegerField(default=0)),
                ('created_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='countersign_passkeys', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='PasskeyChallenge',
            fields=[
                ('id', models.UUIDField(default=checkpoints.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('session', models.CharField(help_text="SHA-256 of the session's key.", max_length=64)),
                ('nonce', models.CharField(max_length=64)),
                ('challenge', models.CharField(help_text='SHA-256 of the document that is to be signed.', max_length=64)),
                ('created_at', models.DateTimeField()),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        # Backwards this comes first.
        migrations.RunPython(migrations.RunPython.noop, refuse_where_it_is_sealed),
    ]
