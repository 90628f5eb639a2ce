"""The description of the API: OpenAPI 3.1 at /api/v1/schema/."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.base import describe
from orchestrator.api.base import Api


class Schema(SpectacularJSONAPIView):
    """The OpenAPI schema: requests and answers."""

    urlconf = "orchestrator.urls_api"
    # Set here and not in a project's settings, which describe the project's own API.
    custom_settings = {"TITLE": "Countersign", "VERSION": "1", "OAS_VERSION": "3.1.0"}
    authentication_classes = Api.authentication_classes
    permission_classes = Api.permission_classes
    renderer_classes = [JSONRenderer, OpenApiJsonRenderer]

    # Described again, because the library has described its own method with the class
    # that the project's settings name.
    @describe(operation_id="schema", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        library: Any = super()
        response: Response = library.get(request, *args, **kwargs)
        return response


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes how a token is sent. The library finds every subclass of its base."""

    target_class = "orchestrator.api.auth.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "Token <token>",
        }
