"""The pages of a SAML provider: what its administrator reads of this site, and the way
back of people.

An answer is posted by a page of another site, so the browser leaves the cookie of the
session out. The first page of the way back therefore posts it once more, from here.
"""

from functools import wraps

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from checkpoints.conf import conf
from orchestrator.company_login import arrival, saml
from orchestrator.company_login.claims import UnusableClaims
from orchestrator.company_login.pages import of_provider
from orchestrator.company_login.saml_answer import UnverifiedAnswer, verified_claims
from orchestrator.company_login.throttle import View, by_address

LONGEST_REASON = 300


def _of_saml(view: View) -> View:
    """Decorate a page that is there for a SAML provider only."""

    @wraps(view)
    def page(request: HttpRequest) -> HttpResponse:
        if not conf().saml_issuer or conf().oidc_issuer:
            raise Http404
        return view(request)

    return of_provider(page)


@require_GET
@_of_saml
def metadata(request: HttpRequest) -> HttpResponse:
    """Return what the administrator of the provider needs to know of this site."""
    return HttpResponse(
        saml.metadata(request), content_type="application/samlmetadata+xml"
    )


@csrf_exempt
@never_cache
@require_POST
@_of_saml
def receive(request: HttpRequest) -> HttpResponse:
    """Return a page that posts the answer once more, now with the cookie of the session.
    Nothing is read or changed.
    """
    answer = request.POST.get("SAMLResponse", "")
    return render(request, "orchestrator/company_answer.html", {"answer": answer})


# The answer names the request that this session made, which is more than a token says.
@csrf_exempt
@never_cache
@require_POST
@_of_saml
@by_address
def arrive(request: HttpRequest) -> HttpResponse:
    """Take a person back from the provider."""
    try:
        claims = verified_claims(request, request.POST.get("SAMLResponse", ""))
        provider = saml.company_provider(request)
        state = provider.unstash_redirect_state(request, claims["nonce"])
    except UnverifiedAnswer as fault:
        return arrival.failed(request, reason=str(fault)[:LONGEST_REASON])
    except UnusableClaims as fault:
        return arrival.unusable(request, fault)
    except PermissionDenied:
        return arrival.failed(
            request, reason="this session has not asked, or has had its answer"
        )
    return arrival.arrive(request, claims, state)
