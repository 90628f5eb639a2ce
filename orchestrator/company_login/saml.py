"""The SAML provider of the company: how people are sent there, and the metadata that it
reads of this site.
"""

from typing import Any
from urllib.parse import urlsplit

from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.saml.provider import SAMLProvider
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from onelogin.saml2.auth import OneLogin_Saml2_Auth
from onelogin.saml2.constants import OneLogin_Saml2_Constants
from onelogin.saml2.settings import OneLogin_Saml2_Settings

from checkpoints.conf import conf
from orchestrator.company_login import certificates
from orchestrator.company_login.arrival import state_of


class CompanySamlProvider(SAMLProvider):
    """The provider that the settings name. What was asked is kept in the session of who
    was sent there, under the id of the request.
    """

    def begin(
        self, request: HttpRequest, *, next_url: str, is_confirmation: bool
    ) -> HttpResponse:
        """Redirect to the provider. For a confirmation it must ask who they are once
        more, whatever session it has with them.
        """
        message = OneLogin_Saml2_Auth(here(request), settings_for(request))
        # Some providers drop an empty state, and then miss it in what is signed.
        address = message.login(return_to="sign-in", force_authn=is_confirmation)
        identifier = message.get_last_request_id()
        data = state_of(request, identifier, is_confirmation=is_confirmation)
        self.stash_redirect_state(request, "login", next_url, data, state_id=identifier)
        return HttpResponseRedirect(address)


def company_provider(request: HttpRequest) -> CompanySamlProvider:
    """Return the provider that the settings name."""
    app = SocialApp(
        provider="saml", provider_id=conf().saml_issuer, name=conf().company_name[:40]
    )
    return CompanySamlProvider(request, app=app)


def metadata(request: HttpRequest) -> str:
    """Return what the administrator of the provider reads of this site, as XML."""
    settings = settings_for(request)
    # Here it names the key for encryption; in an answer it would demand it.
    settings["security"]["wantAssertionsEncrypted"] = bool(conf().saml_key)
    text: bytes | str = OneLogin_Saml2_Settings(
        settings, sp_validation_only=True
    ).get_sp_metadata()
    return text.decode() if isinstance(text, bytes) else text


def entity_id(request: HttpRequest) -> str:
    """Return the name of this site at the provider: the address of its metadata."""
    return request.build_absolute_uri(reverse("company_saml_metadata"))


def answer_address(request: HttpRequest) -> str:
    """Return the address to which the provider posts its answers."""
    return request.build_absolute_uri(reverse("company_saml"))


def here(request: HttpRequest) -> dict[str, Any]:
    """Return the address of answers, in the parts in which python3-saml takes it."""
    parts = urlsplit(answer_address(request))
    return {
        "https": "on" if parts.scheme == "https" else "off",
        "http_host": parts.netloc,
        "script_name": parts.path,
        "get_data": {},
        "post_data": {},
    }


def settings_for(request: HttpRequest) -> dict[str, Any]:
    """Return the settings of python3-saml. Raises `OSError` and `ValueError` where the
    certificate of the provider, or the key of this site, cannot be read.
    """
    current = conf()
    key = certificates.own_key()
    return {
        "strict": True,
        "sp": {
            "entityId": entity_id(request),
            "assertionConsumerService": {
                "url": answer_address(request),
                "binding": OneLogin_Saml2_Constants.BINDING_HTTP_POST,
            },
            "NameIDFormat": OneLogin_Saml2_Constants.NAMEID_UNSPECIFIED,
            "privateKey": key.private if key else "",
            "x509cert": key.certificate if key else "",
        },
        "idp": {
            "entityId": current.saml_issuer,
            "singleSignOnService": {
                "url": current.saml_sign_in_url,
                "binding": OneLogin_Saml2_Constants.BINDING_HTTP_REDIRECT,
            },
            "x509certMulti": {"signing": certificates.of_provider()},
        },
        "security": {
            "authnRequestsSigned": key is not None,
            "wantAssertionsSigned": True,
            "wantNameId": True,
            "wantAttributeStatement": False,
            "allowRepeatAttributeName": True,
            "rejectDeprecatedAlgorithm": True,
            # The provider decides how it asks; some refuse a request that names a way.
            "requestedAuthnContext": False,
            # A provider that keeps a copy would refuse us the day it ends.
            "metadataValidUntil": "",
            # A host such as localhost or runs is an address too.
            "allowSingleLabelDomains": True,
        },
    }
