"""An ID token signs nobody in that the provider did not sign, for this client, just now."""

import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.contrib.auth.models import User
from jwt.algorithms import RSAAlgorithm

from orchestrator.company_login import provider as company_provider
from orchestrator.company_login.provider import CompanyAdapter
from tests.support.oidc_provider import CLIENT, SECRET, CompanyDirectory

SignIn = Callable[..., Any]
Claims = dict[str, Any]
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
KID = "key-of-the-provider"


def published() -> dict[str, Any]:
    """Return the keys of the provider: its own, and one that clients know too."""
    public = json.loads(RSAAlgorithm.to_jwk(KEY.public_key()))
    shared = urlsafe_b64encode(SECRET.encode()).decode().rstrip("=")
    return {
        "keys": [
            {**public, "kid": KID, "use": "sig", "alg": "RS256"},
            {"kty": "oct", "k": shared, "kid": "shared", "alg": "HS256"},
        ]
    }


def signed(claims: Claims, key: Any = KEY, **header: Any) -> str:
    return jwt.encode(claims, key, algorithm="RS256", headers={"kid": KID, **header})


def by_hash(claims: Claims, secret: bytes, kid: str) -> str:
    """Return a token that is signed by a secret, whatever that is: a library refuses to
    take a public key for one.
    """
    parts = ({"alg": "HS256", "typ": "JWT", "kid": kid}, claims)
    body = b".".join(
        urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts
    )
    seal = urlsafe_b64encode(hmac.digest(secret, body, "sha256")).rstrip(b"=")
    return b".".join((body, seal)).decode()


def by_public_key(claims: Claims) -> str:
    pem = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return by_hash(claims, pem, KID)


def unsigned(claims: Claims) -> str:
    return jwt.encode(claims, "", algorithm="none", headers={"kid": KID})


def changed(**changes: Any) -> Callable[[Claims], str]:
    return lambda claims: signed(claims | changes)


def without(name: str) -> Callable[[Claims], str]:
    return lambda claims: signed({k: v for k, v in claims.items() if k != name})


@pytest.fixture
def sign_in_with(
    directory: CompanyDirectory, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Claims], str]], Any]:
    """Sign a person in with an ID token that a test makes of its claims."""
    answer = SimpleNamespace(json=published, raise_for_status=lambda: None)
    session = SimpleNamespace(get=lambda address: answer)

    class Session:
        def __enter__(self) -> Any:
            return session

        def __exit__(self, *_: Any) -> None:
            """Close nothing."""

    adapter = SimpleNamespace(get_requests_session=Session)
    monkeypatch.setattr(company_provider, "get_adapter", lambda: adapter)

    def sign_in_with(make: Callable[[Claims], str]) -> Any:
        fetch = CompanyAdapter.get_access_token_data

        def forged(self: Any, *args: Any, **facts: Any) -> Any:
            response = fetch(self, *args, **facts)
            claims = jwt.decode(
                response["id_token"], options={"verify_signature": False}
            )
            return {**response, "id_token": make(claims)}

        monkeypatch.setattr(CompanyAdapter, "get_access_token_data", forged)
        directory.set_person("rosa", "acme-reviewers")
        return sign_in("rosa")

    return sign_in_with


@pytest.mark.parametrize(
    "make",
    [
        signed,
        changed(aud=[CLIENT]),
        changed(aud=[CLIENT, "other"], azp=CLIENT),
    ],
    ids=["plain", "in a list", "for several, and for this"],
)
def test_a_token_of_the_provider_for_this_client_signs_in(
    sign_in_with: Callable[..., Any], make: Any
) -> None:
    answer = sign_in_with(make)
    assert answer.status_code == 302
    assert "_auth_user_id" in answer.browser.session


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda claims: signed(claims, OTHER_KEY), id="another key"),
        pytest.param(lambda claims: signed(claims, kid="other"), id="an unknown key"),
        pytest.param(lambda claims: signed(claims)[:-8] + "A" * 8, id="cut signature"),
        pytest.param(unsigned, id="none"),
        pytest.param(by_public_key, id="HS256 by the public key"),
        pytest.param(
            lambda claims: by_hash(claims, SECRET.encode(), "shared"),
            id="HS256 by the secret of the client",
        ),
        pytest.param(changed(aud="other"), id="another client"),
        pytest.param(changed(aud=[CLIENT, "other"]), id="several, for nobody"),
        pytest.param(changed(azp="other"), id="another party"),
        pytest.param(changed(iss="https://login.example.org"), id="another issuer"),
        pytest.param(changed(exp=int(time.time()) - 3600), id="expired"),
        pytest.param(changed(nonce="another"), id="another request"),
        pytest.param(changed(sub="root"), id="not who userinfo says"),
        *(
            pytest.param(without(name), id=f"no {name}")
            for name in ("aud", "iss", "exp", "iat", "sub", "nonce")
        ),
    ],
)
def test_a_token_that_does_not_hold_signs_nobody_in(
    sign_in_with: Callable[..., Any], make: Any
) -> None:
    answer = sign_in_with(make)
    assert answer.status_code == 400
    assert "_auth_user_id" not in answer.browser.session
    assert not User.objects.exists()


def test_what_counts_as_signed_is_not_read_from_elsewhere(
    sign_in_with: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = CompanyAdapter._fetch_user_info
    nonces: list[str] = []

    def forged(self: Any, token: str) -> Any:
        return fetch(self, token) | {"nonce": nonces[0], "auth_time": int(time.time())}

    def unsaid(claims: Claims) -> str:
        nonces.append(claims.pop("nonce"))
        return signed(claims)

    monkeypatch.setattr(CompanyAdapter, "_fetch_user_info", forged)
    assert sign_in_with(unsaid).status_code == 400
