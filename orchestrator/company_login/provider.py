"""The OpenID Connect provider of the company, by django-allauth, with more than
that checks: a nonce, a signature that holds, and nothing from the address of a request.
"""

import secrets
from typing import Any
from urllib.parse import urlencode, urlsplit

import jwt
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.models import SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import (
    OpenIDConnectProvider,
)
from allauth.socialaccount.providers.openid_connect.views import (
    OpenIDConnectOAuth2Adapter,
)
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from checkpoints.conf import conf
from orchestrator.company_login.arrival import SKEW_SECONDS, state_of

PROVIDER = "openid_connect"
"""The kind of provider, as django-allauth calls it."""
SIGNATURES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384")
"""Algorithms by which an ID token may be signed: those with a key that only the provider
has.
"""

SIGNED_ONLY = ("nonce", "auth_time")
"""The claims that count from the ID token alone: people may set others of their own."""


class UnusableProvider(OAuth2Error):
    """The provider, or its ID token, is not as it must be. The message is ours: it quotes
    nothing, and may be logged.
    """


def reason_of(fault: Exception | None) -> dict[str, str]:
    """Return what may be logged of a fault. Other texts may hold what was sent, tokens
    too.
    """
    if fault is None:
        return {"reason": "it answers no request of this session, or has no code"}
    reason = {"error": type(fault).__name__}
    if isinstance(fault, UnusableProvider):
        reason["reason"] = str(fault)
    return reason


class CompanyProvider(OpenIDConnectProvider):
    """The provider that the settings name. What it is asked for never depends on the
    address of the request, into which anybody can write.
    """

    pkce_enabled_default = True

    def begin(
        self, request: HttpRequest, *, next_url: str, is_confirmation: bool
    ) -> HttpResponse:
        """Redirect to the provider. For a confirmation it must ask who they are once
        more, whatever session it has with them.
        """
        nonce = secrets.token_urlsafe(24)
        data = state_of(request, nonce, is_confirmation=is_confirmation)
        params = {"nonce": nonce}
        if is_confirmation:
            params |= {"prompt": "login", "max_age": "0"}
        answer: HttpResponse = self.redirect(
            request, "login", next_url=next_url, data=data, auth_params=params
        )
        return answer

    def get_oauth2_adapter(self, request: HttpRequest) -> "CompanyAdapter":
        return CompanyAdapter(request)

    def extract_uid(self, data: Any) -> str:
        return str(data.get(conf().company_id_claim) or "")

    def extract_extra_data(self, data: Any) -> dict[str, Any]:
        # Nothing that the provider says of a person is stored with the account.
        return {}

    def extract_common_fields(self, data: Any) -> dict[str, Any]:
        return {}

    def extract_email_addresses(self, data: Any) -> list[Any]:
        return []


class CompanyAdapter(OpenIDConnectOAuth2Adapter):
    """The steps of the log-in, with the checks of the ID token that the specification
    names (OpenID Connect Core 3.1.3.7 and 5.3.2).
    """

    def __init__(self, request: HttpRequest) -> None:
        super().__init__(request, conf().oidc_issuer)

    def get_provider(self) -> CompanyProvider:
        current = conf()
        app = SocialApp(
            provider=PROVIDER,
            # Accounts are kept by it: the same id at another provider is another person.
            provider_id=current.oidc_issuer,
            name=current.company_name[:40],
            client_id=current.oidc_client_id,
            secret=current.oidc_client_secret,
            settings={
                "server_url": current.oidc_issuer.rstrip("/"),
                "scope": current.oidc_scopes.split(),
                "oauth_pkce_enabled": True,
            },
        )
        return CompanyProvider(self.request, app=app)

    @property
    def openid_config(self) -> Any:
        """Return what the provider publishes of itself. Raises `UnusableProvider` if it is
        another one than the settings name.
        """
        published = super().openid_config
        if published.get("issuer") != conf().oidc_issuer:
            raise UnusableProvider("the provider calls itself by another address")
        return published

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        return request.build_absolute_uri(reverse("company_callback"))

    def way_out(self) -> str:
        """Return the address at which the provider ends its session with a person and
        leads them back here; empty if it publishes none (RP-Initiated Logout 1.0).
        """
        address = str(self.openid_config.get("end_session_endpoint", ""))
        if urlsplit(address).scheme not in ("https", "http"):
            return ""
        back = {
            "client_id": conf().oidc_client_id,
            "post_logout_redirect_uri": self.request.build_absolute_uri(
                reverse("login")
            ),
            # Some lead back only if there is something to bring along.
            "state": "left",
        }
        separator = "&" if urlsplit(address).query else "?"
        return f"{address}{separator}{urlencode(back)}"

    def complete_login(
        self, request: HttpRequest, app: Any, token: SocialToken, **kwargs: Any
    ) -> SocialLogin:
        """Return the log-in, with the verified claims as its `claims`."""
        id_token = kwargs["response"].get("id_token")
        if not id_token:
            raise UnusableProvider("the provider sent no ID token")
        claims = self._decode_id_token(app, id_token)
        if "userinfo_endpoint" in self.openid_config:
            further = self._fetch_user_info(token.token)
            if further.get("sub") != claims.get("sub"):
                raise UnusableProvider("the provider described another person")
            for name in SIGNED_ONLY:
                further.pop(name, None)
            # What is signed counts where both say something.
            claims = {**further, **claims}
        login = self.get_provider().sociallogin_from_response(request, claims)
        login.claims = claims
        return login

    def _decode_id_token(self, app: Any, id_token: str) -> dict[str, Any]:
        """Return the claims of an ID token. Raises `UnusableProvider` unless the provider
        signed it, for this client, and not too long ago.
        """
        published = self.openid_config
        try:
            key = self._key_of(id_token, published["jwks_uri"])
            claims: dict[str, Any] = jwt.decode(
                id_token,
                key=key,
                algorithms=[key.algorithm_name],
                issuer=published["issuer"],
                audience=app.client_id,
                leeway=SKEW_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, KeyError) as error:
            raise UnusableProvider("the ID token cannot be verified") from error
        # One for several must say which of them it was made for.
        is_for_several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        client = claims.get("azp", "" if is_for_several else app.client_id)
        if client != app.client_id:
            raise UnusableProvider("the ID token is for another client")
        return claims

    def _key_of(self, id_token: str, address: str) -> jwt.PyJWK:
        """Return the key by which an ID token says it is signed; it need not say so where
        the provider has one alone. Raises `UnusableProvider`, `PyJWTError`.
        """
        with get_adapter().get_requests_session() as session:
            answer = session.get(address)
            answer.raise_for_status()
        identifier = jwt.get_unverified_header(id_token).get("kid")
        keys = [
            key
            for key in jwt.PyJWKSet.from_dict(answer.json()).keys
            if key.public_key_use in (None, "sig")
            and (identifier is None or key.key_id == identifier)
        ]
        if len(keys) != 1 or keys[0].algorithm_name not in SIGNATURES:
            raise UnusableProvider(
                "the ID token is not signed by a key of the provider"
            )
        return keys[0]
