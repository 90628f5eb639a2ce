"""Who calls, and what his token is for. A token acts as its user; a session is the person himself, without scopes."""

from typing import Any

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from orchestrator import tokens
from orchestrator.api.throttle import refuse_token
from orchestrator.models import ApiToken


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Token <token>`."""

    def authenticate(self, request: Request) -> tuple[Any, ApiToken] | None:
        scheme, _, text = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"token":
            return None
        given = text.strip().decode("ascii", "replace")
        token = tokens.find_token(given)
        if token is None:
            refuse_token(request, given)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return "Token"


class HasScope(BasePermission):
    """A method needs the scope that the view names in `scopes`: {"POST": "start"}; reading else `read`."""

    def has_permission(self, request: Request, view: Any) -> bool:
        no_such_method = not hasattr(view, str(request.method).lower())
        if no_such_method or not isinstance(request.auth, ApiToken):
            return True
        # A view that forgets to name a scope is closed to tokens rather than open to all.
        usual = "read" if request.method in SAFE_METHODS else None
        needed = getattr(view, "scopes", {}).get(request.method, usual)
        if needed not in request.auth.scopes:
            raise PermissionDenied(f"this token is not for {needed or request.method}")
        return True
