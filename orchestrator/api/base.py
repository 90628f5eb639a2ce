"""The parts that every endpoint shares: authentication, scopes, bounded bodies,
problems, idempotent POSTs. `mount` adds them to a view.

Views themselves, those of approvals included, contain only their own actions. A host
project's DRF settings change nothing here, and ours change nothing there.
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
    """The base class with the common parts, independent of the project's settings."""

    authentication_classes = [TokenAuthentication, SessionAuthentication]
    permission_classes = [IsAuthenticated, HasScope]
    parser_classes = [parsing.JSONObjects]
    renderer_classes = [JSONRenderer]
    throttle_classes = []
    versioning_class = None
    schema = EndpointSchema()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse unknown parameters, and a body whose announced length is too large
        before it is read.
        """
        parsing.check_length(request.META, most=self.most_bytes())
        super().initial(request, *args, **kwargs)
        name = str(request.method).lower()
        # A HEAD takes the parameters of its GET.
        if name == "head":
            name = "get"
        method = getattr(self, name, None)
        require_declared_query(method, request.query_params)

    def most_bytes(self) -> int:
        """Return the size of the largest body that this endpoint reads."""
        return parsing.most_bytes()

    def get_exception_handler(self) -> Callable[..., Any]:
        return problems.answer


def mount(view: type[APIView]) -> Callable[..., Any]:
    """Return a view as Django calls it, with the common parts; its POST honours
    Idempotency-Key, unless its messages bring ids themselves.
    """
    members: dict[str, Any] = {
        "__doc__": view.__doc__,
        "__module__": view.__module__,
    }
    if hasattr(view, "post") and not getattr(view, "has_own_ids", False):
        members["post"] = idempotent(view.post)
    # The view comes first, so that what it sets itself wins over the common parts.
    mounted: Any = type(view.__name__, (view, Api), members)
    as_view: Callable[..., Any] = mounted.as_view()
    return as_view
