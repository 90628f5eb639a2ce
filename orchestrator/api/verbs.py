"""Endpoints of the verbs that steer a run, and their bodies, made from the table of
verbs.
"""

from typing import Any
from uuid import UUID

from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import Body, describe, person, read_body
from approvals.permissions import visible_checkpoint, visible_run
from orchestrator.api.base import mount
from orchestrator.api.serializers import RunOut
from orchestrator.runs.start_for_user import require
from orchestrator.runs.verb_table import LONGEST_NAME, VERBS, Argument, Kind, Verb


@extend_schema_field({"type": "object", "additionalProperties": True})
class ObjectField(serializers.JSONField):
    """A JSON object, or null for none."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            raise serializers.ValidationError("This must be a JSON object.")
        return data


def verb_paths() -> list[URLPattern]:
    """Return the addresses of the verbs."""
    paths: list[URLPattern] = []
    for verb in VERBS:
        address = f"{verb.acts_on}s/<str:{verb.acts_on}>/{verb.name}/"
        paths.append(path(address, mount(endpoint_of(verb)), name=verb.name))
    return paths


def endpoint_of(verb: Verb) -> type[APIView]:
    """Return the view whose POST carries out a verb."""
    body_class = body_of(verb)
    status = 201 if verb.creates_run else 200

    def require_rights(view: APIView, request: Request, **address: str) -> None:
        _, run = _visible_target(person(request), **address)
        require(person(request), verb.right, run=run)

    @describe(request=body_class, responses={status: RunOut})
    def post(view: APIView, request: Request, **address: str) -> Response:
        body = read_body(body_class, request.data)
        by = person(request)
        # A run that may not be seen is unknown, before any right to steer it is judged.
        target, run = _visible_target(by, **address)
        require(by, verb.right, run=run)
        # A rewind names its checkpoint in the body, and not in its address.
        if "checkpoint" in body:
            body["checkpoint"] = visible_checkpoint(by, body["checkpoint"]).id
        steered = verb.function(target, **body, by=by)
        return Response(RunOut(steered).data, status=status)

    # The schema describes the endpoint with the docstring of its view.
    members = {
        "__doc__": verb.endpoint_help,
        "scopes": {"POST": verb.scope},
        "post": post,
        "require_rights": require_rights,
    }
    return type(verb.name.title(), (APIView,), members)


def _visible_target(
    by: Any, *, run: str | None = None, checkpoint: str | None = None
) -> tuple[UUID, UUID]:
    """Return the ids of the run or checkpoint that the address names, and of its run.
    Raises `UnknownThing`.
    """
    if checkpoint is not None:
        row = visible_checkpoint(by, checkpoint)
        return row.id, row.run_id
    run_id = visible_run(by, str(run)).id
    return run_id, run_id


def body_of(verb: Verb) -> type[Body]:
    """Return the body that a verb's endpoint reads."""
    members: dict[str, Any] = {"__doc__": verb.body_help}
    for argument in verb.arguments:
        members[argument.name] = field_of(argument)
    return type(f"{verb.name.title()}Body", (Body,), members)


def field_of(argument: Argument) -> Any:
    """Return the field that an argument has in a body."""
    settings: dict[str, Any] = {}
    if argument.help:
        settings["help_text"] = argument.help
    if not argument.required:
        settings["default"] = argument.default
        settings["allow_null"] = argument.default is None

    match argument.kind:
        case Kind.TEXT:
            settings["max_length"] = argument.longest
            # A text that may be left out may also be empty.
            settings["allow_blank"] = argument.default == ""
            return serializers.CharField(**settings)
        case Kind.FLAG:
            return serializers.BooleanField(**settings)
        case Kind.NODES:
            name = serializers.CharField(max_length=LONGEST_NAME)
            return serializers.ListField(child=name, **settings)
        case Kind.OBJECT:
            return ObjectField(**settings)
        case Kind.JSON:
            return serializers.JSONField(**settings)
