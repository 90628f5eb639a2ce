"""The place at which django-allauth hands a log-in over: whoever comes back from the
provider is judged here, and none of its ways to an account is taken.
"""

from typing import Any

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.providers.base import AuthError
from django.http import HttpRequest

from orchestrator.company_login import arrival
from orchestrator.company_login.provider import reason_of


class LogInAdapter(DefaultSocialAccountAdapter):
    """Named by `SOCIALACCOUNT_ADAPTER`."""

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """End the log-in of django-allauth with an answer of ours."""
        answer = arrival.arrive(request, sociallogin.claims, sociallogin.state)
        raise ImmediateHttpResponse(answer)

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: Any = None,
        exception: Exception | None = None,
        extra_context: Any = None,
    ) -> None:
        """End a log-in that failed with a page of ours."""
        if error == AuthError.CANCELLED:
            raise ImmediateHttpResponse(arrival.cancelled(request))
        raise ImmediateHttpResponse(arrival.failed(request, **reason_of(exception)))

    def list_apps(
        self, request: HttpRequest, provider: Any = None, client_id: Any = None
    ) -> list[Any]:
        # Nobody adds a provider by a row of the database.
        return []

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return False
