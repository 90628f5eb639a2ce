"""What every face of the API shares: bodies and queries that refuse what they do not know, and cursor pages.

Serializers and views of approvals and orchestrator build on it. It knows no endpoint.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

from checkpoints.sealing import data_keys
from checkpoints.sealing.seal_fault import SealFault, fault_of, json_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine.errors import UNREADABLE


class Body(serializers.Serializer[Any]):
    """A posted object. A field that it does not have is an error, not ignored."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = sorted(str(name) for name in data if name not in self.fields)
            if unknown:
                raise serializers.ValidationError({name: ["There is no such field."] for name in unknown})
        return super().to_internal_value(data)


class Query(Body):
    """The query of a list. Paging's own parameters are known to each."""

    cursor = serializers.CharField(required=False, help_text="Where the page begins: taken from `next` or `previous`.")
    page_size = serializers.IntegerField(
        required=False,
        min_value=1,
        help_text="Rows in a page: 50 unless set, 200 at most; of a log 200 and 1000.",
    )


class ProblemOut(serializers.Serializer[Any]):
    """A refusal as problem details (RFC 9457). Further members are facts of this code."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField(help_text="The name of the error, for programs.")
    detail = serializers.CharField()


PROBLEM_MEDIA_TYPE = "application/problem+json"
REFUSALS = {
    400: "Parameters or a body that cannot be read.",
    401: "No session, and no valid token.",
    403: "Not allowed to this person or token.",
    404: "Unknown, or not visible to the caller.",
    406: "No media type that this address answers with.",
    409: "The state of what is named does not allow this, or its rows do not verify.",
    410: "The values were erased.",
    429: "Too many requests; `Retry-After` has the seconds to wait.",
    503: "The database or the place of payloads does not serve now.",
}
REFUSALS_OF_POSTS = {
    411: "The body has no Content-Length.",
    413: "The body is too large.",
    415: "The body has another media type.",
    422: "A value is not acceptable, or an Idempotency-Key came with another body.",
}
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 200},
    OpenApiParameter.HEADER,
    description="The same key within seven days gives the first answer again.",
)


class EndpointSchema(AutoSchema):
    """An operation as OpenAPI, with the refusals that each can answer and the key of a repeated POST."""

    def get_override_parameters(self) -> list[Any]:
        inherited = super().get_override_parameters()
        return [*inherited, IDEMPOTENCY_KEY] if self.method == "POST" else inherited

    def _get_response_bodies(self, direction: Any = "response") -> Any:
        """Add the problems to the answers that the endpoint declares."""
        library: Any = super()
        responses: dict[str, Any] = library._get_response_bodies(direction)
        refusals = REFUSALS | REFUSALS_OF_POSTS if self.method == "POST" else REFUSALS
        for status, description in refusals.items():
            media_types = [PROBLEM_MEDIA_TYPE]
            problem = library._get_response_for_code(ProblemOut, str(status), media_types, direction)
            responses[str(status)] = problem | {"description": description}
        return responses


def describe(
    *, parameters: Iterable[Any] = (), open_prefixes: Iterable[str] = (), **description: Any
) -> Callable[[Any], Any]:
    """Describe a method of a view for OpenAPI; `parameters` are also all that its query may have.

    `open_prefixes` begin further parameters whose names the caller chooses, as `metadata.` does; the method checks
    them itself.

    The description does not depend on `DEFAULT_SCHEMA_CLASS` of the project that includes this API.
    """

    def decorate(method: Any) -> Any:
        declared = list(parameters)
        # The library builds on a schema that is there already, else on the class that the project's settings name.
        method.kwargs = {"schema": EndpointSchema}
        method.query_parameters = declared
        method.open_query_prefixes = tuple(open_prefixes)
        return extend_schema(parameters=declared, **description)(method)

    return decorate


def require_declared_query(method: Any, query: Mapping[str, Any]) -> None:
    """Raise DRF's `ValidationError` naming each parameter that a described method does not declare."""
    declared = getattr(method, "query_parameters", None)
    if declared is None:
        return
    names: set[str] = set()
    for parameter in declared:
        names |= _names_in_query(parameter)
    unknown = sorted(name for name in set(query) - names if not name.startswith(method.open_query_prefixes))
    if unknown:
        refusals = {name: ["There is no such parameter."] for name in unknown}
        raise serializers.ValidationError(refusals)


def _names_in_query(parameter: Any) -> set[str]:
    """Return the names that a declared parameter, or a serializer of several, has in the query."""
    if not isinstance(parameter, OpenApiParameter):
        return set(parameter().fields)
    return {parameter.name} if parameter.location == OpenApiParameter.QUERY else set()


def person(request: Request) -> Any:
    """Who calls. The common part of the API has turned strangers away."""
    return request.user


def read_body(body: type[Body], data: Any) -> dict[str, Any]:
    """The checked content of a body or query. Raises DRF's `ValidationError` naming each field that is wrong."""
    given = body(data=data if not hasattr(data, "dict") else data.dict())
    given.is_valid(raise_exception=True)
    content: dict[str, Any] = given.validated_data
    return content


class Pages(CursorPagination):
    """Pages by position, so that a new row shifts nothing: {next, previous, results}. No count is taken."""

    page_size = 50
    max_page_size = 200
    page_size_query_param = "page_size"

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any] | None:
        """Refuse a cursor that was made up: its position is compared with a column, which may not take it."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (ValueError, ValidationError) as error:
            raise NotFound("Invalid cursor") from error


class LongPages(Pages):
    """For the lines of a log, which are many and small."""

    page_size = 200
    max_page_size = 1000


class FaultOut(serializers.Serializer[SealFault]):
    """Why a row does not prove to be what was written: `tampered_row`, or `wrong_key` where it cannot be told now."""

    code = serializers.CharField()
    row = serializers.CharField()
    reason = serializers.CharField()


class SealedOut(serializers.Serializer[Any]):
    """What is given of a sealed row: `fault` is null where it is as it was sealed. A row that is not is never left out.

    The context has the `protection` of the run that the row belongs to; else the row is asked for its run.
    """

    fault = serializers.SerializerMethodField()

    @extend_schema_field(FaultOut(allow_null=True))
    def get_fault(self, row: Any) -> dict[str, Any] | None:
        protection = self.context.get("protection") or protection_of(row.run)
        return json_of(fault_of(row, protection))

    def value_or_none(self, row: Any, column: str) -> Any:
        """The value of a payload column; None where it cannot be opened, which the fault tells."""
        try:
            return read_value(row, column)
        except UNREADABLE:
            return None


def page_schema(out: type[serializers.BaseSerializer[Any]]) -> type[serializers.Serializer[Any]]:
    """The form of a page of these, for the schema."""
    fields = {
        "next": serializers.URLField(allow_null=True),
        "previous": serializers.URLField(allow_null=True),
        "results": out(many=True),
        "__doc__": f"A page: {out.__doc__}",
    }
    return type(f"{out.__name__}Page", (serializers.Serializer,), fields)


def paginate(
    request: Request,
    rows: "QuerySet[Any]",
    out: type[serializers.BaseSerializer[Any]],
    *,
    by: tuple[str, ...],
    pages: type[Pages] = Pages,
    protection: Protection | None = None,
) -> Response:
    """One page of `rows`, ordered `by` columns (the last one unique), as `out` writes them. One query, and one for the
    keys of encrypted rows that this process does not know yet. `protection` is
    that of the run that all of them belong to, if they do.
    """
    paging = pages()
    paging.ordering = by
    found = paging.paginate_queryset(rows, request) or []
    data_keys.know_keys_of(found)
    return paging.get_paginated_response(out(found, many=True, context={"protection": protection}).data)
