"""The log-in of a company as a Django app."""

from django.apps import AppConfig
from django.core.checks import register


class CompanyLoginConfig(AppConfig):
    """Installed where people sign in at a provider."""

    name = "orchestrator.company_login"
    label = "company_login"
    verbose_name = "Log-in of a company"

    def ready(self) -> None:
        from django.contrib import admin
        from django.db.models.signals import post_delete, post_save

        from orchestrator import checks
        from orchestrator.company_login import accounts, forms
        from orchestrator.company_login.checks import check_provider

        # The admin has another form, at which the same people must be refused.
        admin.site.login_form = forms.AdminLogInForm
        accounts.connect(post_save, post_delete)
        register(check_provider, checks.TAG)
