"""What every endpoint has: who calls, scopes, bounded bodies, problems, idempotent POSTs. `mount` gives it to a view.

Views themselves, those of approvals included, say only what they do; so a host project's own DRF settings change
nothing here, and ours change nothing there.
"""

from collections.abc import Callable
from typing import Any

from rest_framework.authentication import SessionAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from approvals.api.base import EndpointSchema, require_declared_query
from orchestrator.api import parsing, problems
from orchestrator.api.auth import HasScope, TokenAuthentication
from orchestrator.api.idempotency import idempotent


class Api(APIView):
    """The common part."""

    authentication_classes = [TokenAuthentication, SessionAuthentication]
    permission_classes = [IsAuthenticated, HasScope]
    parser_classes = [parsing.JSONObjects]
    renderer_classes = [JSONRenderer]
    throttle_classes = []
    versioning_class = None
    schema = EndpointSchema()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse a body that announces itself as too large before anybody reads it, and unknown parameters."""
        parsing.check_length(request.META, most=self.most_bytes())
        super().initial(request, *args, **kwargs)
        # A HEAD takes the parameters of its GET.
        name = "get" if request.method == "HEAD" else str(request.method).lower()
        require_declared_query(getattr(self, name, None), request.query_params)

    def most_bytes(self) -> int:
        """The largest body that this endpoint reads."""
        return parsing.most_bytes()

    def get_exception_handler(self) -> Callable[..., Any]:
        return problems.answer


def mount(view: type[APIView]) -> Callable[..., Any]:
    """The view as Django calls it, on the common part; its POST honours Idempotency-Key."""
    own: dict[str, Any] = {"__doc__": view.__doc__, "__module__": view.__module__}
    if hasattr(view, "post"):
        own["post"] = idempotent(view.post)
    return type(view.__name__, (view, Api), own).as_view()  # type: ignore[attr-defined,no-any-return]
