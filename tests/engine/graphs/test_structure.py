"""What is in a graph's fingerprint and what is not: the table of docs/versions.md, held
against the code.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from orchestrator.engine import (
    END,
    START,
    Append,
    Artifact,
    Fact,
    Gate,
    Graph,
    Interval,
    Last,
    Limit,
    Retry,
    Show,
)
from orchestrator.engine.errors import InvalidGraph
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.graphs.definition import Definition
from orchestrator.engine.graphs.node import Node
from tests.engine.small import Nothing, logs

TABLE = re.findall(
    r"^\| option \| in it .*(?:\n\|.*)*",
    (Path(__file__).parents[3] / "docs" / "versions.md").read_text(),
    re.MULTILINE,
)[0]
KEPT = {
    option: row.split("|")[2].strip()
    for row in TABLE.splitlines()[2:]
    for option in re.findall(r"`([\w.]+)`", row.split("|")[1])
}
"""Option -> yes, no or refused."""


class State(BaseModel):
    log: Annotated[list[str], Append] = []
    note: Annotated[str, Field(title="Note", description="A note")] = ""


class Other(Nothing):
    more: int = 0


class Retyped(State):
    note: int = 0  # type: ignore[assignment]


class Narrower(State):
    note: Annotated[str, Field(max_length=5)] = ""


class Reduced(State):
    note: Annotated[str, Last] = ""


class Filled(State):
    note: str = "empty"


class Artifacted(State):
    note: Annotated[str, Artifact] = ""


class Titled(State):
    note: Annotated[str, Field(title="Remark", description="A note")] = ""


class Described(State):
    note: Annotated[str, Field(title="Note", description="A remark")] = ""


def documented(state: Any, ctx: Any) -> None:
    """Other code, and words about it."""


def prepare(state: Any, ctx: Any) -> None:
    """Prepare the call."""


CALLED = {
    "effect": "external",
    "approve": "call",
    "gate": Gate(reviewers=["user:ann"]),
    "args": Nothing,
    "prepare": logs,
}
"""The options of a node that people let run."""
SKIPPABLE = Gate(reviewers=["user:ann"], skip=True)


def other_router(state: Any) -> str:
    return "back"


def router(state: Any) -> str:
    return "on"


def reviewers(state: Any) -> list[str]:
    return ["user:bob"]


def guard(state: Any, proposal: Any) -> bool:
    return True


def asked_terms(asked: Any) -> dict[str, Any]:
    return {"quorum": 2}


def declared(
    graph: dict[str, Any] | None = None,
    gate: dict[str, Any] | None = None,
    show: dict[str, Any] | None = None,
    fact: dict[str, Any] | None = None,
    node: dict[str, Any] | None = None,
    edge: tuple[Any, ...] = ("work", END),
    branch: tuple[Any, ...] = ("work", router, {"on": END, "back": "ask"}),
    order: int = 1,
) -> str:
    """The fingerprint of a graph of two nodes, one behind a gate, with these options
    changed.
    """
    graph = dict(graph or {})
    node = dict(node or {})
    flow = Graph(graph.pop("name", "g"), **{"input": Nothing, "state": State, **graph})
    facts = [Fact(**{"label": "Log", "path": "state.log", **(fact or {})})]
    asks = Gate(
        **{
            "facts": facts,
            "writes": {"note": Show(**(show or {}))},
            "reviewers": ["user:ann"],
            **(gate or {}),
        }
    )
    name = node.pop("name", "work")
    fn = node.pop("fn", logs)
    nodes: list[Callable[[], Any]] = [
        lambda: flow.node("ask", effect="human", gate=asks)(logs),
        lambda: (
            flow.node(name, **node)(fn)
            if "graph" not in node
            else flow.node(name, **node)
        ),
    ]
    for declare in nodes[::order]:
        declare()
    for source, target, *when in [
        (START, "ask"),
        ("ask", name),
        (edge[0].replace("work", name), *edge[1:]),
    ]:
        flow.edge(source, target, when=when[0] if when else None)
    flow.branch(branch[0].replace("work", name), *branch[1:])
    return compile(flow).fingerprint


def of_retry(**changed: Any) -> dict[str, Any]:
    return {"node": {"retry": Retry(**changed)}}


def asking(**gate: Any) -> dict[str, Any]:
    return {"node": {"gate": Gate(reviewers=["user:bob"], **gate), "approve": "writes"}}


WRITES: dict[str, Any] = {"node": {"effect": "write"}}
ACTS: dict[str, Any] = {"node": {"effect": "external"}}
AUTHORISED = {"node": {"effect": "external", "authority": "ask"}}
BY_GRAPH: dict[str, Any] = {
    "graph": {"reviewers": ["user:ann"]},
    "gate": {"reviewers": None},
}

CONFIRMED = {"confirm": "password", "writes": {"note": Show(money="amount")}}
CHANGES: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "Graph.name": [({}, {"graph": {"name": "h"}})],
    "Graph.version": [({}, {"graph": {"version": "2"}})],
    "Graph.input": [({}, {"graph": {"input": Other}})],
    "Graph.state": [({}, {"graph": {"state": Retyped}})],
    "Graph.memory": [({}, {"graph": {"memory": "snapshot"}})],
    "Graph.reviewers": [(BY_GRAPH, {**BY_GRAPH, "graph": {"reviewers": reviewers}})],
    "Graph.current": [({}, {"graph": {"current": True}})],
    "Graph.description": [({}, {"graph": {"description": "Pays claims."}})],
    "Graph.label": [({}, {"graph": {"label": "Run {x}"}})],
    "Graph.facts": [({}, {"graph": {"facts": [Fact("X", "input.x")]}})],
    "Graph.encrypted": [({}, {"graph": {"encrypted": True}})],
    "Graph.payloads": [({}, {"graph": {"payloads": "files"}})],
    "Graph.indexed_metadata": [({}, {"graph": {"indexed_metadata": ["customer"]}})],
    "Graph.secrets": [({}, {"graph": {"secrets": ["bank_token"]}})],
    "Graph.checkpoints": [
        ({}, {"graph": {"checkpoints": word}})
        for word in ("none", "explicit", Interval(3))
    ],
    "Graph.snapshot": [({}, {"graph": {"snapshot": 3}})],
    "Graph.on_save_error": [({}, {"graph": {"on_save_error": "continue"}})],
    "Graph.max_supersteps": [({}, {"graph": {"max_supersteps": 7}})],
    "Graph.max_tasks": [({}, {"graph": {"max_tasks": 7}})],
    "channel.type": [({}, {"graph": {"state": one}}) for one in (Retyped, Narrower)],
    "channel.reducer": [({}, {"graph": {"state": Reduced}})],
    "channel.default": [({}, {"graph": {"state": Filled}})],
    "channel.Artifact": [({}, {"graph": {"state": Artifacted}})],
    "channel.title": [({}, {"graph": {"state": Titled}})],
    "channel.description": [({}, {"graph": {"state": Described}})],
    "node.name": [({}, {"node": {"name": "toil"}})],
    "node.fn": [({}, {"node": {"fn": documented}})],
    "node.effect": [({}, {"node": {"effect": "read"}}), (WRITES, ACTS)],
    "node.idempotent": [(ACTS, {"node": {"effect": "external", "idempotent": True}})],
    "node.atomic": [(WRITES, {"node": {"effect": "write", "atomic": True}})],
    "node.not_done": [(ACTS, {"node": {"effect": "external", "not_done": KeyError}})],
    "node.gate": [({}, asking()), (asking(), asking(quorum=2))],
    "node.approve": [({}, asking())],
    "node.join": [({}, {"node": {"join": "any"}})],
    "node.goto": [({}, {"node": {"goto": "ask"}})],
    "node.sends": [({}, {"node": {"sends": "ask"}})],
    "node.reads": [({}, {"node": {"reads": ["note"]}})],
    "node.memory": [({}, {"node": {"memory": "journaled"}})],
    "node.checkpoint": [({}, {"node": {"checkpoint": "both"}})],
    "node.max_visits": [({}, {"node": {"max_visits": 3}})],
    "node.timeout": [
        ({}, {"node": {"timeout": 3}}),
        ({}, {"node": {"timeout": timedelta(minutes=2)}}),
    ],
    "node.retry": [({}, of_retry())],
    "Retry.attempts": [(of_retry(), of_retry(attempts=5))],
    "Retry.backoff": [(of_retry(), of_retry(backoff=5.0))],
    "Retry.factor": [(of_retry(), of_retry(factor=5.0))],
    "Retry.jitter": [(of_retry(), of_retry(jitter=0.5))],
    "Retry.on": [(of_retry(), of_retry(on=(KeyError,)))],
    "node.args": [({"node": CALLED}, {"node": {**CALLED, "args": State}})],
    "node.authority": [(ACTS, AUTHORISED)],
    "Gate.recheck": [(AUTHORISED, {**AUTHORISED, "gate": {"recheck": guard}})],
    "node.prepare": [({"node": CALLED}, {"node": {**CALLED, "prepare": prepare}})],
    "node.graph": [({}, {"node": {"graph": Graph("sub", input=Nothing, state=State)}})],
    "node.inputs": [({}, {"node": {"inputs": {}}})],
    "node.outputs": [({}, {"node": {"outputs": {}}})],
    "edge.source": [({}, {"edge": ("ask", END)})],
    "edge.target": [({}, {"edge": ("work", "ask")})],
    "edge.when": [({"edge": ("ask", END)}, {"edge": ("ask", END, "rejected")})],
    "branch.source": [({}, {"branch": ("ask", router, {"on": END, "back": "ask"})})],
    "branch.labels": [
        ({}, {"branch": ("work", router, labels)})
        for labels in ({"on": END, "again": "ask"}, {"on": "ask", "back": END})
    ],
    "branch.router": [
        ({}, {"branch": ("work", other_router, {"on": END, "back": "ask"})})
    ],
    "order.nodes": [({}, {"order": -1})],
    "order.edges": [({}, {"branch": ("work", router, {"back": "ask", "on": END})})],
    "Gate.reviewers": [
        ({}, {"gate": {"reviewers": who}}) for who in (["user:bob"], reviewers)
    ],
    "Gate.quorum": [({}, {"gate": {"quorum": 2}})],
    "Gate.reject_quorum": [({}, {"gate": {"reject_quorum": 2}})],
    "Gate.four_eyes": [({}, {"gate": {"four_eyes": True}})],
    "Gate.all_or_nothing": [({}, {"gate": {"all_or_nothing": True}})],
    "Gate.needs_approval": [({}, {"gate": {"needs_approval": guard}})],
    "Gate.shows": [({}, {"gate": {"shows": ["log"]}})],
    "Gate.writes": [
        ({}, {"gate": {"writes": writes}})
        for writes in ({}, {"note": Show(), "log": Show()})
    ],
    "Gate.title": [({}, {"gate": {"title": "Decide {note}"}})],
    "Gate.facts": [({}, {"gate": {"facts": []}})],
    "Gate.deadline": [({}, {"gate": {"deadline": timedelta(hours=1)}})],
    "Gate.on_deadline": [
        (
            {"gate": {"deadline": timedelta(hours=1)}},
            {"gate": {"deadline": timedelta(hours=1), "on_deadline": "approve"}},
        )
    ],
    "Gate.tiers": [
        ({}, {"gate": {"tiers": [(timedelta(hours=1), "escalate", "user:ann")]}})
    ],
    "Gate.confirm": [({}, {"gate": {"confirm": "password"}})],
    "Gate.confirm_above": [
        (
            {"gate": {**CONFIRMED, "confirm_above": 10}},
            {"gate": {**CONFIRMED, "confirm_above": 20}},
        )
    ],
    "Gate.considered": [({}, {"gate": {"considered": "opened"}})],
    "Gate.exclusive": [({}, {"gate": {"exclusive": True}})],
    "Gate.claim_for": [({}, {"gate": {"claim_for": timedelta(minutes=5)}})],
    "Gate.skip": [({"node": CALLED}, {"node": {**CALLED, "gate": SKIPPABLE}})],
    "Gate.auto": [({}, {"gate": {"auto": guard}})],
    "Gate.standing": [({}, {"gate": {"standing": True}})],
    "Gate.auto_after": [
        (
            {"gate": {"auto": guard}},
            {"gate": {"auto": guard, "auto_after": timedelta(minutes=5)}},
        )
    ],
    "Gate.veto": [({}, {"gate": {"veto": guard}})],
    "Gate.reports": [({}, {"gate": {"reports": True}})],
    "Gate.terms": [({}, {"gate": {"terms": asked_terms}})],
    "Show.label": [({}, {"show": {"label": "The note"}})],
    "Show.change": [({}, {"show": {"change": ("before", "after")}})],
    "Show.reversible": [({}, {"show": {"reversible": "It can be written again."}})],
    "Show.money": [({}, {"show": {"money": "amount"}})],
    "Show.reason_required": [({}, {"show": {"reason_required": True}})],
    "Show.limits": [({}, {"show": {"limits": {"value": Limit(choices=["a"])}}})],
    "Show.needs": [
        (
            {"gate": {"writes": {"note": Show(), "log": Show()}}},
            {"gate": {"writes": {"note": Show(needs=["log"]), "log": Show()}}},
        )
    ],
    "Fact.label": [({}, {"fact": {"label": "Lines"}})],
    "Fact.path": [({}, {"fact": {"path": "state.note"}})],
    "Fact.indexed": [({}, {"fact": {"indexed": True}})],
}
CASES = [(option, *pair) for option, pairs in CHANGES.items() for pair in pairs]


@pytest.mark.parametrize(
    ("option", "before", "after"), CASES, ids=[option for option, *_ in CASES]
)
def test_a_changed_option_moves_the_fingerprint_where_the_table_says_so_and_nowhere_else(
    option: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    kept = KEPT[option]
    if kept == "refused":
        with pytest.raises(InvalidGraph, match="this version has no|for terms= to say"):
            declared(**after)
    else:
        assert kept == ("no" if declared(**before) == declared(**after) else "yes")


def test_every_option_of_a_graph_stands_in_the_table_and_nothing_else_does() -> None:
    known = {f"Graph.{field.name}" for field in fields(Definition) if field.init}
    for word, kind in (
        ("node", Node),
        ("Gate", Gate),
        ("Show", Show),
        ("Fact", Fact),
        ("Retry", Retry),
    ):
        known |= {f"{word}.{field.name}" for field in fields(kind)}
    for verb in ("edge", "branch"):
        known |= {
            f"{verb}.{name}"
            for name in inspect.signature(getattr(Graph, verb)).parameters
            if name != "self"
        }
    known |= {
        f"channel.{what}"
        for what in ("type", "reducer", "default", "Artifact", "title", "description")
    }
    known |= {"order.nodes", "order.edges"}
    assert set(KEPT) == known == set(CHANGES)


def test_the_reviewers_are_the_same_named_by_gate_or_graph_and_in_any_order() -> None:
    named = {
        "graph": {"reviewers": ["user:bob", "user:ann"]},
        "gate": {"reviewers": None},
    }
    assert declared(**named) == declared(gate={"reviewers": ["user:ann", "user:bob"]})  # type: ignore[arg-type]


def test_the_mode_of_memory_is_the_same_whether_the_nodes_or_the_graph_say_it() -> None:
    assert declared(graph={"memory": "snapshot"}) == declared(
        graph={"memory": "snapshot"}, node={"memory": "snapshot"}
    )
