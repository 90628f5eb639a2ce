"""Authentication of callers, and the scopes of their tokens. A token acts as its user;
a session is the user, without scopes.
"""

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
        # Other bytes are no token of ours; they are refused and counted like any other.
        token_text = text.strip().decode("ascii", "replace")
        token = tokens.find_token(token_text)
        if token is None:
            refuse_token(request, token_text)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return "Token"


class HasScope(BasePermission):
    """Requires of a token the scope that the view names for the method in `scopes`:
    {"POST": "start"}. For reading it is `read` unless the view names another.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        # A method that the view lacks is answered with 405, whatever the token is for.
        no_such_method = not hasattr(view, str(request.method).lower())
        if no_such_method or not isinstance(request.auth, ApiToken):
            return True
        # A view that forgets to name a scope is closed to tokens rather than open to
        # all.
        scope = "read" if request.method in SAFE_METHODS else None
        scope = getattr(view, "scopes", {}).get(request.method, scope)
        if scope not in request.auth.scopes:
            raise PermissionDenied(f"this token is not for {scope or request.method}")
        return True
