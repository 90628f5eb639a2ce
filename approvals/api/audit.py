"""Endpoints of the audit log: its lines, and one line with its decisions as evidence.
They only read.
"""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import (
    Query,
    SealedOut,
    describe,
    page_schema,
    paginate,
    person,
    read_body,
)
from approvals.api.serializers import DecisionLine
from approvals.audit import reads as audit
from approvals.audit.reads import LineFilter
from approvals.audit.words import sentence_of
from checkpoints.models import AuditLine
from checkpoints.models.audit_line import NEWEST
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator.engine.errors import UnknownThing

HIGHEST = 2**63 - 1


class AuditQuery(Query):
    """The filters of the audit log."""

    by = serializers.CharField(required=False, help_text="Name of who acted.")
    run = serializers.CharField(required=False, help_text="Id or key.")
    graph = serializers.CharField(required=False)
    kind = serializers.CharField(required=False)
    to = serializers.DateTimeField(required=False, help_text="Before this time.")

    def get_fields(self) -> Any:
        # `from` is a keyword of Python.
        begin = serializers.DateTimeField(
            required=False, source="since", help_text="At this time or later."
        )
        return {**super().get_fields(), "from": begin}


class AuditOut(SealedOut, serializers.ModelSerializer[AuditLine]):
    """A line of the audit log. `number` and `hash` are empty until a job has chained it
    to the one before.
    """

    by = serializers.CharField(source="actor_name")
    did = serializers.SerializerMethodField()
    facts = serializers.JSONField()
    seal = serializers.SerializerMethodField()

    class Meta:
        model = AuditLine
        fields = [
            "id",
            "number",
            "at",
            "by",
            "kind",
            "did",
            "graph",
            "run",
            "request",
            "facts",
            "seal_key",
            "seal",
            "hash",
            "fault",
        ]
        read_only_fields = fields

    def get_did(self, line: AuditLine) -> str:
        return sentence_of(line.kind, line.facts)

    def get_seal(self, line: AuditLine) -> str:
        return bytes(line.seal or b"").hex()


class AuditLineOut(AuditOut):
    """A line with its decisions, each with the old, the proposed and the final value."""

    decisions = serializers.SerializerMethodField()

    class Meta(AuditOut.Meta):
        fields = [*AuditOut.Meta.fields, "decisions"]
        read_only_fields = fields

    @extend_schema_field(DecisionLine(many=True))
    def get_decisions(self, line: AuditLine) -> list[dict[str, Any]]:
        evidence = audit.evidence_of(line)
        context = {"protection": evidence.protection}
        rows: Any = DecisionLine(evidence.decisions, many=True, context=context).data
        return list(rows)


class AuditLines(APIView):
    """The lines that the caller may see, newest first: all with the right to read the
    audit log; else those about runs for callers who see all runs; else the caller's
    own. Lines that a job writes every minute are left out unless their kind is
    requested.
    """

    @describe(
        operation_id="audit_list",
        parameters=[AuditQuery],
        responses=page_schema(AuditOut),
    )
    def get(self, request: Request) -> Response:
        query = read_body(AuditQuery, request.query_params)
        # Parameters are called as in the API, filters as in the audit log.
        names = {
            "by": "who",
            "run": "run",
            "graph": "graph",
            "kind": "kind",
            "since": "since",
            "to": "until",
        }
        filters = {names[field]: query[field] for field in names if field in query}
        visible = audit.visible_lines(person(request))
        rows = audit.filtered(visible, LineFilter(**filters))
        return paginate(request, rows, AuditOut, by=NEWEST, protection=PLAIN)


class OneAuditLine(APIView):
    """One line, with its decisions. Unknown to callers who may not see it, or its run."""

    @describe(operation_id="audit_retrieve", responses=AuditLineOut)
    def get(self, request: Request, number: int) -> Response:
        # The database refuses a larger number than its column holds.
        if number > HIGHEST:
            raise UnknownThing(
                f"there is no audit line {number}", number=str(number)[:20]
            )
        line = audit.find_line(person(request), number)
        return Response(AuditLineOut(line, context={"protection": PLAIN}).data)
