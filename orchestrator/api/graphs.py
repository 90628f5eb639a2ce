"""Endpoints of graphs: the catalogue of what can be started. Callers without any role
have none.
"""

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import describe, page_schema, person
from approvals.permissions import has_role
from orchestrator.api.serializers import GraphLine, GraphOut
from orchestrator.engine import registry
from orchestrator.engine.errors import UnknownThing
from orchestrator.graphs import NAME as SHIPPED


class Graphs(APIView):
    """The current version of each registered graph, by name."""

    @describe(operation_id="graphs_list", responses=page_schema(GraphLine))
    def get(self, request: Request) -> Response:
        if not has_role(person(request)):
            raise UnknownThing("you may not see the catalogue")
        names = sorted({compiled.name for compiled in registry.all()} - {SHIPPED})
        graphs = [registry.current(name).catalogue() for name in names]
        # A page like any other, though all graphs fit on one.
        page = {
            "next": None,
            "previous": None,
            "results": GraphLine(graphs, many=True).data,
        }
        return Response(page)


class OneGraph(APIView):
    """A graph: schemas of input and state, nodes, edges, flowchart."""

    @describe(responses=GraphOut)
    def get(self, request: Request, name: str) -> Response:
        if not has_role(person(request)):
            raise UnknownThing(f"there is no graph {name}")
        return Response(GraphOut(registry.current(name).catalogue()).data)
