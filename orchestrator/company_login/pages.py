"""The pages of the log-in of a company: the sign-in page with its button, the way to the
provider, and the way back.
"""

from collections.abc import Callable
from functools import wraps

import structlog
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from requests import RequestException

from checkpoints.conf import conf
from orchestrator.company_login import arrival
from orchestrator.company_login.forms import LogInForm
from orchestrator.company_login.provider import CompanyAdapter
from orchestrator.views.home import SignIn

View = Callable[[HttpRequest], HttpResponse]

log = structlog.get_logger(__name__)


class CompanySignIn(SignIn):
    """The sign-in page, which turns away whoever has to sign in elsewhere."""

    form_class = LogInForm


class EmergencySignIn(CompanySignIn):
    """The form for a name and a password, where the sign-in page does not show it."""

    extra_context = {"is_emergency": True}


def _of_provider(view: View) -> View:
    """Decorate a page that talks to the provider: 404 where there is none, and a page
    that says so where it does not answer.
    """

    @wraps(view)
    def page(request: HttpRequest) -> HttpResponse:
        if not conf().oidc_issuer:
            raise Http404
        try:
            return view(request)
        except (RequestException, OAuth2Error, KeyError) as error:
            log.warning("company_login_unreachable", error=type(error).__name__)
            return arrival.unreachable(request)

    return page


@never_cache
@require_GET
@_of_provider
def begin(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider. A link, not a form: the policy of our pages lets forms
    lead nowhere else, and nothing is done here that another site could misuse.
    """
    target = arrival.safe_target(request, request.GET.get("next", ""))
    provider = CompanyAdapter(request).get_provider()
    return provider.begin(request, next_url=target, is_confirmation=False)


@never_cache
@login_required
@require_GET
@_of_provider
def confirm(request: HttpRequest) -> HttpResponse:
    """Redirect a signed-in person to the provider, to be asked once more who they are."""
    target = arrival.safe_target(request, request.GET.get("next", ""))
    provider = CompanyAdapter(request).get_provider()
    return provider.begin(request, next_url=target, is_confirmation=True)


@never_cache
@require_GET
@_of_provider
def callback(request: HttpRequest) -> HttpResponse:
    """Take a person back from the provider."""
    view = OAuth2CallbackView.adapter_view(CompanyAdapter(request))
    answer: HttpResponse = view(request)
    return answer
