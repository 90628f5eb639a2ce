"""Endpoints of graphs: the catalogue of what can be started. Every person who is logged in may read it."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import page_schema
from orchestrator.api.serializers import GraphLine, GraphOut
from orchestrator.engine import registry


class Graphs(APIView):
    """The current version of each registered graph, by name."""

    @extend_schema(operation_id="graphs_list", responses=page_schema(GraphLine))
    def get(self, request: Request) -> Response:
        names = sorted({compiled.name for compiled in registry.all()})
        found = [registry.current(name).catalogue() for name in names]
        return Response({"next": None, "previous": None, "results": GraphLine(found, many=True).data})


class OneGraph(APIView):
    """A graph: schemas of input and state, nodes, edges, flowchart."""

    @extend_schema(responses=GraphOut)
    def get(self, request: Request, name: str) -> Response:
        return Response(GraphOut(registry.current(name).catalogue()).data)
