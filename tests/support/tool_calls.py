"""People who decide on the tool calls of an agent, at the office of a site."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest

from approvals import reviews
from checkpoints.verification import verify_run
from orchestrator import asking, runs
from orchestrator.client import Approval
from tests.support.agents import Payer
from tests.support.bridges import Office

APPROVE: Mapping[str, Any] = {"verdict": "approve"}
REJECT: Mapping[str, Any] = {"verdict": "reject", "reason": "paid already"}

LIBRARIES = {
    "pydantic-ai": ("pydantic_ai", "pydantic_ai", "Payer"),
    "openai-agents": ("agents", "openai_agents", "Payer"),
    "langgraph": ("langgraph", "langgraph", "Payer"),
    "langchain": ("langchain", "langchain", "Payer"),
    "langchain-per-call": ("langchain", "langchain", "PayerPerCall"),
}


def payer_of(name: str) -> type[Payer]:
    """Return the agent of a library. Skips the test where it is not installed."""
    library, module, kind = LIBRARIES[name]
    pytest.importorskip(library, reason=f"{library} is not installed")
    payer: type[Payer] = getattr(import_module(f"tests.support.agents.{module}"), kind)
    return payer


def edit(**arguments: Any) -> Mapping[str, Any]:
    """Return the decision that approves a call with these arguments."""
    return {"verdict": "edit", "value": arguments}


def sign(office: Office, asked: Approval, *decisions: Mapping[str, Any]) -> Approval:
    """Let Rita decide on each item, in their order, and return what the client reads."""
    run = runs.advance(asked.id)
    shown = asking.approval_of(run)
    rows = []
    for item, decision in zip(shown.items, decisions, strict=True):
        rows.append({"write": str(item.write), "hash": item.hash, **decision})
    reviews.sign(run.id, rows, by=office.reviewer)
    runs.advance(run.id)
    assert verify_run(run.id) == []
    return office.client.wait(asked.key)
