"""Random edits of random graphs: what a deployment may change, from a title to a node
that is gone. All by dice.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator.engine import END, Append, Graph, Last, Retry
from orchestrator.engine.errors import InvalidGraph
from orchestrator.engine.graphs.compile import compile
from tests.engine.random_graphs import HOUR, built
from tests.engine.reference import Spec
from tests.properties.drawing import MOST_SUPERSTEPS, with_effect

PAUSE = 0.03
"""Seconds until the second attempt of a node that is patient: its run waits meanwhile.
"""


class Before(BaseModel):
    """What runs have before the deployment."""

    log: Annotated[list[str], Append] = []
    note: Annotated[str, Last] = ""
    extra: int = 7


class Added(Before):
    more: str = "new"


class Retyped(Before):
    extra: str = "none"  # type: ignore[assignment]


class Removed(BaseModel):
    log: Annotated[list[str], Append] = []
    note: Annotated[str, Last] = ""


class Reduced(Before):
    extra: Annotated[int, Last] = 7


@dataclass
class Source:
    """The code of one version, as an author edits it. `marks`: its migration changes
    what lines of the log mean.
    """

    specs: list[Spec]
    starts: list[str]
    state: type[BaseModel] = Before
    version: str = "1"
    migration: Any = None
    marks: bool = False
    nodes: dict[str, dict[str, Any]] = None  # type: ignore[assignment]
    gates: dict[str, dict[str, Any]] = None  # type: ignore[assignment]
    label: str | None = None

    def __post_init__(self) -> None:
        self.nodes = self.nodes or {}
        self.gates = self.gates or {}

    def graph(self, name: str, seed: int) -> Graph:
        """The graph that it declares. Raises `InvalidGraph` where the edits made it
        none.
        """
        made = built(
            self.specs,
            self.starts,
            seed,
            equipped=lambda spec, node: _equipped(spec, node, seed),
        )
        made.name = name
        made.version = self.version
        made.state = self.state
        made.label = self.label
        made.max_supersteps = MOST_SUPERSTEPS
        made.nodes = [self._node(node) for node in made.nodes]
        if self.migration:
            made.migration(from_version="1")(self.migration)
        compile(made)
        return made

    def _node(self, node: Any) -> Any:
        changed = replace(node, **self.nodes.get(node.name, {}))
        if changed.gate and node.name in self.gates:
            changed = replace(
                changed, gate=replace(changed.gate, **self.gates[node.name])
            )
        return changed


def _equipped(spec: Spec, node: Any, seed: int) -> tuple[Any, dict[str, Any]]:
    """The node with its effect; one of three is patient: its first attempt fails, and
    the next comes later.
    """
    fn, options = with_effect(spec, node, seed)
    if Random(f"{seed}/patient/{spec.name}").random() > 1 / 3:
        return fn, options
    return _failing_once(fn), {
        **options,
        "retry": Retry(2, PAUSE, jitter=0, on=(RuntimeError,)),
    }


def _failing_once(node: Any) -> Any:
    def tried(state: Any, ctx: Any) -> Any:
        if ctx.attempt == 1:
            raise RuntimeError("too early")
        return node(state, ctx)

    return tried


Edit = Callable[[Source, Random], None]


def texts(source: Source, dice: Random) -> None:
    """A title, a label, a timeout, a retry: nothing that a run depends on."""
    name = dice.choice(source.specs).name
    source.nodes[name] = {"timeout": float(dice.randint(60, 90)), "max_visits": 90}
    source.gates[name] = {"title": "Is that right?"}
    source.label = "A label"


def version(source: Source, dice: Random) -> None:
    source.version = "2"


def new_node(source: Source, dice: Random) -> None:
    source.specs.append(Spec("z", plain=[END]))
    dice.choice(source.specs[:-1]).plain.append("z")


def node_gone(source: Source, dice: Random) -> None:
    gone = dice.choice(source.specs).name
    source.specs = [spec for spec in source.specs if spec.name != gone]
    source.starts = [name for name in source.starts if name != gone]
    for spec in source.specs:
        for targets in (
            spec.plain,
            spec.branch,
            spec.error,
            spec.goto,
            spec.sends,
            *spec.when.values(),
        ):
            targets[:] = [
                END if name == gone and targets is spec.branch else name
                for name in targets
            ]
            targets[:] = [name for name in targets if name != gone]
        spec.plain = spec.plain or [END]


def edge_gone(source: Source, dice: Random) -> None:
    spec = dice.choice(source.specs)
    if spec.plain:
        spec.plain.remove(dice.choice(spec.plain))


def way_gone(source: Source, dice: Random) -> None:
    """A target of goto or of sends, or an error edge."""
    ways = [
        way
        for spec in source.specs
        for way in (spec.goto, spec.sends, spec.error)
        if way
    ]
    if ways:
        way = dice.choice(ways)
        way.remove(dice.choice(way))


def new_edge(source: Source, dice: Random) -> None:
    spec, target = (
        dice.choice(source.specs),
        dice.choice([*(spec.name for spec in source.specs), END]),
    )
    if target not in spec.plain:
        spec.plain.append(target)


def join(source: Source, dice: Random) -> None:
    spec = dice.choice(source.specs)
    spec.join = "any" if spec.join == "all" else "all"


def effect(source: Source, dice: Random) -> None:
    spec = dice.choice(source.specs)
    if not spec.gated:
        source.nodes[spec.name] = {
            "effect": dice.choice(["pure", "read"]),
            "idempotent": False,
            "atomic": False,
        }


def reads(source: Source, dice: Random) -> None:
    source.nodes[dice.choice(source.specs).name] = {
        "reads": ("log",),
        "memory": "snapshot",
    }


def policy(source: Source, dice: Random) -> None:
    options: list[dict[str, Any]] = [
        {"quorum": 2},
        {"reviewers": ["user:ann", "user:bob"]},
        {"all_or_nothing": True},
        {"shows": ["extra"]},
        {"needs_approval": None},
        {"deadline": HOUR, "on_deadline": dice.choice(["reject", "approve", "fail"])},
    ]
    gated = [spec.name for spec in source.specs if spec.gated]
    source.gates[dice.choice(gated or [source.specs[0].name])] = dice.choice(options)


def gate(source: Source, dice: Random) -> None:
    spec = dice.choice(source.specs)
    spec.gated = not spec.gated
    spec.call = False
    spec.deadline = ""
    spec.when = {}
    spec.plain = spec.plain or [END]


PAID = "y"
"""A node that comes behind one gate alone, or behind either of two."""


def with_payment(specs: list[Spec], dice: Random) -> list[Spec]:
    """Return the graph with a further node that comes only after a gate, or after
    either of two gates. These exist already, or are added.
    """
    specs = copy.deepcopy(specs)
    for spec in specs:
        # The payment may come behind it.
        if spec.deadline == "approve":
            spec.deadline = "reject"
    first = dice.choice([spec for spec in specs if spec.gated] or specs)
    for gate in {
        spec.name: spec for spec in (first, dice.choice([first, *specs]))
    }.values():
        if not gate.gated:
            gate.gated = True
            gate.plain = gate.plain or [END]
        gate.when.setdefault(dice.choice(["approved", "partial"]), []).append(PAID)
    return [*specs, Spec(PAID, plain=[END])]


def bypass(source: Source, dice: Random) -> None:
    """A way to what comes behind a gate: from elsewhere, from its other outcomes, or in
    the place of the gate.
    """
    gated = [spec for spec in source.specs if spec.gated]
    if not gated:
        return
    pays = [
        spec for spec in gated if any(PAID in targets for targets in spec.when.values())
    ]
    spec = dice.choice(pays or gated)
    behind = [
        *spec.plain,
        *spec.branch,
        *spec.when.get("approved", []),
        *spec.when.get("partial", []),
    ]
    target = (
        PAID
        if pays
        else dice.choice(sorted({*behind} - {END, spec.name}) or [source.specs[0].name])
    )
    if dice.random() < 0.2:
        for place in source.specs:
            place.plain[:] = [
                target if name == spec.name else name for name in place.plain
            ]
        return
    others = [
        place.plain
        for place in source.specs
        if place is not spec and place.name != target
    ]
    outcomes = [
        spec.when.setdefault(verdict, [])
        for verdict in ("rejected", "partial", "approved")
    ]
    way = dice.choice([spec.error, *outcomes, source.starts, *others])
    if target not in way:
        way.append(target)


def channel(source: Source, dice: Random) -> None:
    """A channel is new, gone, of another type or reducer; with a migration, with one
    that fails, or without.
    """
    source.state = dice.choice([Added, Retyped, Removed, Reduced])
    does: dict[Any, Callable[[Any], Any]] = {
        Retyped: lambda state: state["scratch"].update(
            extra=f"was {state['scratch']['extra']}"
        ),
        Removed: lambda state: {**state, "scratch": {"log": state["scratch"]["log"]}},
    }
    kind = dice.choice(["none", "fits", "fails"])
    source.version = "2"
    if kind != "none":
        source.migration = (
            does.get(source.state, lambda state: None) if kind == "fits" else _failing
        )


def meaning(source: Source, dice: Random) -> None:
    """Change what lines of the log mean, but not their type."""
    source.version = "2"
    source.migration = _marking
    source.marks = True


def _marking(state: Any) -> Any:
    return {
        **state,
        "scratch": {**state["scratch"], "log": marked(state["scratch"]["log"])},
    }


def marked(log: list[str]) -> list[str]:
    """The log as a migration may have it."""
    return [f"{line} in version 2" for line in log]


def _failing(state: Any) -> Any:
    raise KeyError("extra")


EDITS: list[Edit] = [
    *(
        texts,
        texts,
        version,
        new_node,
        node_gone,
        edge_gone,
        new_edge,
        join,
        effect,
        reads,
        policy,
        gate,
        channel,
    ),
    *(bypass, bypass, way_gone, way_gone),
]


def edited(before: Source, name: str, seed: int) -> tuple[Source, list[str]]:
    """The source after one to three edits, and what they are called; those that leave
    no legal graph are not made.
    """
    dice = Random(f"{seed}/edits")
    source = before
    rows = []
    often = dice.random()
    chosen = (
        [bypass]
        if often < 0.3
        else [meaning]
        if often < 0.4
        else dice.choices(EDITS, k=dice.choice([1, 2, 2, 3]))
    )
    for edit in chosen:
        tried = copy.deepcopy(source)
        edit(tried, dice)
        try:
            tried.graph(name, seed)
        except InvalidGraph:
            continue
        source = tried
        rows.append(edit.__name__)
    return source, rows
