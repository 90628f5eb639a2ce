"""The pages of the log-in of a company: the sign-in page with its button, the way to the
provider, and the way back.
"""

from functools import wraps
from typing import Any

import structlog
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LogoutView
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from requests import RequestException

from checkpoints.conf import conf
from orchestrator.company_login import arrival
from orchestrator.company_login.accounts import is_bound
from orchestrator.company_login.forms import LogInForm
from orchestrator.company_login.provider import CompanyAdapter, reason_of
from orchestrator.company_login.throttle import View, by_address
from orchestrator.views.home import SignIn

FAULTS = (RequestException, OAuth2Error, KeyError, OSError, ValueError)
"""The faults of a provider that does not answer, or of a certificate that cannot be read."""

log = structlog.get_logger(__name__)


class CompanySignIn(SignIn):
    """The sign-in page, which turns away whoever has to sign in elsewhere."""

    form_class = LogInForm


class EmergencySignIn(CompanySignIn):
    """The form for a name and a password, where the sign-in page does not show it."""

    extra_context = {"is_emergency": True}


class CompanySignOut(LogoutView):
    """End the session here, and show people of the company that it is not the only one."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        is_of_company = request.user.is_authenticated and is_bound(request.user)
        answer = super().post(request, *args, **kwargs)
        return redirect("company_left") if is_of_company else answer


def of_provider(view: View) -> View:
    """Decorate a page that talks to the provider: 404 where there is none, and a page
    that says so where it does not answer.
    """

    @wraps(view)
    def page(request: HttpRequest) -> HttpResponse:
        if not conf().company_issuer:
            raise Http404
        try:
            return view(request)
        except FAULTS as error:
            log.warning("company_login_unreachable", **reason_of(error))
            return arrival.unreachable(request)

    return page


def _provider(request: HttpRequest) -> Any:
    if conf().oidc_issuer:
        return CompanyAdapter(request).get_provider()
    # Its packages are another extra.
    from orchestrator.company_login import saml

    return saml.company_provider(request)


@never_cache
@require_GET
@of_provider
@by_address
def begin(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider. A link, not a form: the policy of our pages lets forms
    lead nowhere else, and nothing is done here that another site could misuse.
    """
    target = arrival.safe_target(request, request.GET.get("next", ""))
    answer: HttpResponse = _provider(request).begin(
        request, next_url=target, is_confirmation=False
    )
    return answer


@never_cache
@login_required
@require_GET
@of_provider
def confirm(request: HttpRequest) -> HttpResponse:
    """Redirect a signed-in person to the provider, to be asked once more who they are."""
    target = arrival.safe_target(request, request.GET.get("next", ""))
    answer: HttpResponse = _provider(request).begin(
        request, next_url=target, is_confirmation=True
    )
    return answer


@never_cache
@require_GET
@of_provider
def callback(request: HttpRequest) -> HttpResponse:
    """Take a person back from the provider."""
    if not conf().oidc_issuer:
        raise Http404
    view = OAuth2CallbackView.adapter_view(CompanyAdapter(request))
    answer: HttpResponse = view(request)
    return answer


@never_cache
@require_GET
@of_provider
@by_address
def signed_out(request: HttpRequest) -> HttpResponse:
    """Show who has signed out here the way out at the provider too. A link, as other
    applications may still need the session there.
    """
    current = conf()
    way_out = _way_out(request) if current.oidc_issuer else ""
    context = {"company": current.company_name, "way_out": way_out}
    return render(request, "orchestrator/company_left.html", context)


def _way_out(request: HttpRequest) -> str:
    """Return the page at which the provider ends its session; empty if it names none."""
    try:
        return CompanyAdapter(request).way_out()
    except FAULTS as error:
        log.warning("company_login_unreachable", **reason_of(error))
        return ""
