"""The tables of django-allauth in the Django admin: only which account belongs to whom at
the provider. Providers, tokens and addresses are never kept in rows.
"""

# Imported so that it has registered its tables.
import allauth.account.admin
import allauth.socialaccount.admin  # noqa: F401
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialApp, SocialToken
from django.contrib import admin

for unused in (EmailAddress, SocialApp, SocialToken):
    admin.site.unregister(unused)
