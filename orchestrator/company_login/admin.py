"""The tables of django-allauth in the Django admin: only which account belongs to whom at
the provider. Providers, tokens and addresses are never kept in rows.
"""

from typing import Any

# Imported so that it has registered its tables.
import allauth.account.admin  # noqa: F401
from allauth.account.models import EmailAddress
from allauth.socialaccount.admin import SocialAccountAdmin
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin
from django.http import HttpRequest

for unused in (EmailAddress, SocialApp, SocialToken, SocialAccount):
    admin.site.unregister(unused)


@admin.register(SocialAccount)
class BindingAdmin(SocialAccountAdmin):
    """Which account belongs to whom. A log-in makes a binding: whoever could bind an
    account to themselves would sign in as its person.
    """

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
