"""The parts that all of the API shares: bodies and queries that refuse unknown fields,
and cursor pages.

Serializers and views of approvals and orchestrator build on it. It knows no endpoint.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
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

from approvals.inbox import WaitingRequests
from approvals.visible_requests import VisibleRequests
from approvals.visible_runs import VisibleRuns
from checkpoints.db.large_reads import first_rows
from checkpoints.sealing import data_keys
from checkpoints.sealing.seal_fault import SealFault, fault_of, json_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine.errors import UNREADABLE


class Body(serializers.Serializer[Any]):
    """A posted object. An unknown field is an error, not ignored."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            # A misspelt optional field would otherwise be dropped in silence.
            unknown = sorted(str(name) for name in data if name not in self.fields)
            if unknown:
                refusals = {name: ["There is no such field."] for name in unknown}
                raise serializers.ValidationError(refusals)
        return super().to_internal_value(data)


class Query(Body):
    """The query of a list. Each has the parameters of paging."""

    cursor = serializers.CharField(
        required=False,
        help_text="Where the page begins: taken from `next` or `previous`.",
    )
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
    """An operation in OpenAPI, with the refusals that every endpoint can return and the
    key of a repeated POST.
    """

    def get_override_parameters(self) -> list[Any]:
        inherited = super().get_override_parameters()
        takes_key = not getattr(self.view, "has_own_ids", False)
        if self.method == "POST" and takes_key:
            return [*inherited, IDEMPOTENCY_KEY]
        return inherited

    def _get_response_bodies(self, direction: Any = "response") -> Any:
        """Add the problems to the responses that the endpoint declares."""
        library: Any = super()
        responses: dict[str, Any] = library._get_response_bodies(direction)
        # A request without a body cannot have a wrong one.
        refusals = REFUSALS | REFUSALS_OF_POSTS if self.method == "POST" else REFUSALS
        for status, description in refusals.items():
            media_types = [PROBLEM_MEDIA_TYPE]
            problem = library._get_response_for_code(
                ProblemOut, str(status), media_types, direction
            )
            responses[str(status)] = problem | {"description": description}
        return responses


def describe(
    *,
    parameters: Iterable[Any] = (),
    open_prefixes: Iterable[str] = (),
    **description: Any,
) -> Callable[[Any], Any]:
    """Describe a method of a view for OpenAPI; its query may have no other
    `parameters`.

    `open_prefixes` begin further parameters whose names the caller chooses, as
    `metadata.` does; the method checks them itself.

    The description does not depend on `DEFAULT_SCHEMA_CLASS` of the project that
    includes this API.
    """

    def decorate(method: Any) -> Any:
        declared = list(parameters)
        # The library extends an existing schema, else the class that the project's
        # settings name.
        method.kwargs = {"schema": EndpointSchema}
        method.query_parameters = declared
        method.open_query_prefixes = tuple(open_prefixes)
        return extend_schema(parameters=declared, **description)(method)

    return decorate


def require_declared_query(method: Any, query: Mapping[str, Any]) -> None:
    """Raise DRF's `ValidationError` naming each parameter that a described method does
    not declare.
    """
    declared = getattr(method, "query_parameters", None)
    if declared is None:
        return
    names: set[str] = set()
    for parameter in declared:
        names |= _names_in_query(parameter)
    unknown = sorted(
        name
        for name in set(query) - names
        if not name.startswith(method.open_query_prefixes)
    )
    if unknown:
        refusals = {name: ["There is no such parameter."] for name in unknown}
        raise serializers.ValidationError(refusals)


def _names_in_query(parameter: Any) -> set[str]:
    """Return the names that a declared parameter, or a serializer of several, has in
    the query.
    """
    if not isinstance(parameter, OpenApiParameter):
        return set(parameter().fields)
    return {parameter.name} if parameter.location == OpenApiParameter.QUERY else set()


def person(request: Request) -> Any:
    """Return the caller. The common part of the API has refused unknown callers."""
    return request.user


def read_body(body: type[Body], data: Any) -> dict[str, Any]:
    """Return the validated content of a body or query. Raises DRF's `ValidationError`
    naming each field that is wrong.
    """
    if hasattr(data, "dict"):
        # A query whose parameters have one value each.
        data = data.dict()
    serializer = body(data=data)
    serializer.is_valid(raise_exception=True)
    content: dict[str, Any] = serializer.validated_data
    return content


class Pages(CursorPagination):
    """Pages by position, so that a new row shifts nothing: {next, previous, results}.
    Rows are not counted.
    """

    page_size = 50
    max_page_size = 200
    page_size_query_param = "page_size"

    def paginate_queryset(
        self,
        queryset: Any,
        request: Request,
        view: Any = None,
    ) -> list[Any] | None:
        """Refuse a forged cursor: its position is compared with a column, whose type it
        may not have.
        """
        try:
            return super().paginate_queryset(queryset, request, view)
        # Errors of the column's type, which the database or Django reports.
        except (ValueError, ValidationError, OverflowError) as error:
            raise NotFound("Invalid cursor") from error


class LongPages(Pages):
    """For the lines of a log, which are many and small."""

    page_size = 200
    max_page_size = 1000


class FaultOut(serializers.Serializer[SealFault]):
    """The reason why a row does not verify: `tampered_row`, or `wrong_key` where it
    cannot be verified now.
    """

    code = serializers.CharField()
    row = serializers.CharField()
    reason = serializers.CharField()


class SealedOut(serializers.Serializer[Any]):
    """The output of a sealed row: `fault` is null if the row matches its seal. A row
    that does not verify is never left out.

    The context has the `protection` of the run that the row belongs to; without it,
    that of the row's own run is used.
    """

    fault = serializers.SerializerMethodField()

    @extend_schema_field(FaultOut(allow_null=True))
    def get_fault(self, row: Any) -> dict[str, Any] | None:
        protection = self.context.get("protection") or protection_of(row.run)
        return json_of(fault_of(row, protection))

    def value_or_none(self, row: Any, column: str) -> Any:
        """Return the value of a payload column; None if it cannot be decrypted, for
        which `fault` has the reason.
        """
        try:
            return read_value(row, column)
        except UNREADABLE:
            return None


def page_schema(
    out: type[serializers.BaseSerializer[Any]],
) -> type[serializers.Serializer[Any]]:
    """Return the serializer of a page of `out`, for the schema."""
    fields = {
        "next": serializers.URLField(allow_null=True),
        "previous": serializers.URLField(allow_null=True),
        "results": out(many=True),
        "__doc__": f"A page: {out.__doc__}",
    }
    return type(f"{out.__name__}Page", (serializers.Serializer,), fields)


def paginate(
    request: Request,
    rows: "QuerySet[Any] | VisibleRuns | VisibleRequests | WaitingRequests",
    out: type[serializers.BaseSerializer[Any]],
    *,
    by: tuple[str, ...],
    pages: type[Pages] = Pages,
    protection: Protection | None = None,
) -> Response:
    """Return one page of `rows`, ordered `by` columns (the last one unique), serialized
    by `out`. One query, on PostgreSQL in a separate transaction if it merges several
    lists, and one for the keys of encrypted rows that this process does not know yet.
    `protection` is that of the run, where all rows belong to one.
    """
    paging = pages()
    paging.ordering = by
    page = _rows_of_page(paging, rows, request)
    # Before the rows are serialized, which decrypts them one by one.
    data_keys.know_keys_of(page)
    results = out(page, many=True, context={"protection": protection}).data
    return paging.get_paginated_response(results)


def _rows_of_page(
    paging: Pages,
    rows: "QuerySet[Any] | VisibleRuns | VisibleRequests | WaitingRequests",
    request: Request,
) -> list[Any]:
    is_merged = not isinstance(rows, QuerySet) and rows.is_merged
    # Else PostgreSQL gathers all rows of a principal that it expects to be few.
    with first_rows() if is_merged else nullcontext():
        return paging.paginate_queryset(rows, request) or []
