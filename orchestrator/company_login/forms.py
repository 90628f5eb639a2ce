"""The forms for a name and a password, where people of a company sign in elsewhere."""

from typing import Any

from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError

from checkpoints.conf import conf
from orchestrator.company_login.accounts import is_bound


class LogInForm(AuthenticationForm):
    """Refuses people of the company, whose groups only their own log-in reads anew, and
    everybody but superusers where local log-ins are turned off.
    """

    refusal = ""
    """Why the right password did not do, for the page."""

    def confirm_login_allowed(self, user: Any) -> None:
        super().confirm_login_allowed(user)
        # A superuser puts right what the provider or its settings keep from others.
        if user.is_superuser:
            return
        if is_bound(user):
            self.refusal = f"This account signs in with {conf().company_name}."
        elif not conf().local_login:
            self.refusal = "Only an administrator signs in here."
        if self.refusal:
            raise ValidationError(self.refusal, code="elsewhere")


class AdminLogInForm(LogInForm, AdminAuthenticationForm):
    """The same, at the Django admin."""
