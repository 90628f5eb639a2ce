"""A graph of LangGraph whose nodes ask, and which leaves its checkpoints."""

from operator import add
from typing import Annotated, Any, Self, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, StateSnapshot, interrupt

from orchestrator.bridges import reports
from orchestrator.bridges.langgraph_interrupts import SignedAnswer, question, resume
from orchestrator.client import Approval, Client
from tests.support.agents import REVIEWERS, TWO, Calls, Shop, Site


class State(TypedDict, total=False):
    results: Annotated[list[str], add]


class Payer:
    """Each call is a task of the node that is called as its tool."""

    def __init__(self, calls: Calls = TWO, run: str = "r-1") -> None:
        self.calls = calls
        self.run = run
        self.shop = Shop()
        self.saver = InMemorySaver()
        self.config: Any = {"configurable": {"thread_id": run}}

    def pause(self) -> Self:
        self.graph().invoke({}, self.config)
        return self

    def restarted(self) -> Self:
        later = type(self)(self.calls, self.run)
        later.shop.paid = self.shop.paid
        later.saver = self.saver
        return later

    def question(self) -> Any:
        schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
        return question(self.snapshot(), reviewers=REVIEWERS, schemas={"pay": schema})

    def go_on(self, approval: Approval, _: Site | None = None) -> str:
        command = resume(self.snapshot(), approval)
        return "; ".join(self.graph().invoke(command, self.config)["results"])

    def report(self, client: Client, approval: Approval) -> None:
        ended = {item.id: reports.DONE for item in approval.approved_items}
        reports.report(client, approval, ended)

    def snapshot(self) -> StateSnapshot:
        return self.graph().get_state(self.config)

    def graph(self) -> Any:
        builder = StateGraph(State)
        for tool in ("pay", "refund"):
            builder.add_node(tool, self._node(tool))
            builder.add_edge(tool, END)
        builder.add_conditional_edges(START, lambda _: [Send(*c) for c in self.calls])
        return builder.compile(checkpointer=self.saver)

    def _node(self, tool: str) -> Any:
        def node(proposed: dict[str, Any]) -> State:
            verdict: SignedAnswer = interrupt(proposed)
            if verdict["verdict"] != "approved":
                return {"results": [verdict["reason"]]}
            return {"results": [getattr(self.shop, tool)(**verdict["value"])]}

        return node
