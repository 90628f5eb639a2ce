"""The answer under /api/v1/ for addresses without an endpoint: a problem, as everywhere
in the API, not a page.
"""

from typing import NoReturn

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.views import APIView


@extend_schema(exclude=True)
class Nothing(APIView):
    """No such endpoint."""

    def initial(self, request: Request, *args: object, **kwargs: object) -> NoReturn:
        raise NotFound(f"there is no endpoint {request.path}")
