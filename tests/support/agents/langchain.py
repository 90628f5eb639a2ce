"""An agent of LangChain with a human in the loop, which leaves its checkpoints."""

from typing import Any, Literal, Self

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import StateSnapshot

from orchestrator.bridges import reports
from orchestrator.bridges.langgraph_interrupts import outcomes, question, resume
from orchestrator.client import Approval, Client
from tests.support.agents import REVIEWERS, TWO, Calls, Shop, Site


class Scripted(GenericFakeChatModel):
    """A model that makes these calls, and then repeats what came of them."""

    messages: Any = ()
    calls: Any

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        returns = [m for m in messages if isinstance(m, ToolMessage)]
        answer = AIMessage("; ".join(str(message.content) for message in returns))
        if not returns:
            calls = enumerate(self.calls, start=1)
            rows = [{"name": t, "args": a, "id": f"call-{n}"} for n, (t, a) in calls]
            answer = AIMessage("", tool_calls=rows)
        return ChatResult(generations=[ChatGeneration(message=answer)])


class Payer:
    """It pauses once for all of its calls."""

    mode: Literal["batched", "per_call"] = "batched"
    allowed: Any = ("approve", "edit", "reject")

    def __init__(self, calls: Calls = TWO, run: str = "r-1") -> None:
        self.calls = calls
        self.run = run
        self.shop = Shop()
        self.saver = InMemorySaver()
        self.config: Any = {"configurable": {"thread_id": run}}
        functions = (self.shop.pay, self.shop.refund)
        self.tools = [StructuredTool.from_function(function) for function in functions]

    def pause(self) -> Self:
        self.graph().invoke({"messages": [("user", "Pay.")]}, self.config)
        return self

    def restarted(self) -> Self:
        later = type(self)(self.calls, self.run)
        later.shop.paid = self.shop.paid
        later.saver = self.saver
        return later

    def question(self) -> Any:
        schemas = {}
        for tool in self.tools:
            schemas[tool.name] = convert_to_openai_tool(tool)["function"]["parameters"]
        return question(self.snapshot(), reviewers=REVIEWERS, schemas=schemas)

    def go_on(self, approval: Approval, _: Site | None = None) -> str:
        command = resume(self.snapshot(), approval)
        return str(self.graph().invoke(command, self.config)["messages"][-1].content)

    def report(self, client: Client, approval: Approval) -> None:
        history = self.graph().get_state_history(self.config)
        reports.report(client, approval, outcomes(history, approval))

    def snapshot(self) -> StateSnapshot:
        return self.graph().get_state(self.config)

    def graph(self) -> Any:
        allowed = {"allowed_decisions": [*self.allowed]}
        middleware: Any = HumanInTheLoopMiddleware(
            {"pay": allowed, "refund": allowed}, interrupt_mode=self.mode
        )
        return create_agent(
            Scripted(calls=self.calls),
            self.tools,
            middleware=[middleware],
            checkpointer=self.saver,
        )


class PayerPerCall(Payer):
    """It pauses at each of its calls, all at once."""

    mode = "per_call"


def scripted() -> Scripted:
    """Return the model of an example, which makes one call."""
    return Scripted(calls=TWO[:1])
