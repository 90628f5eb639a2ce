"""Random graphs whose nodes write to channels of every kind and to memory, fail, and
try again, before gates of every policy; and one who decides them. All of it by dice
that fall the same for whoever throws them.
"""

from random import Random
from typing import Any

from orchestrator.engine import (
    START,
    Command,
    Fact,
    Gate,
    Graph,
    Retry,
    Send,
    Show,
    Write,
)
from orchestrator.engine.graphs.call import CALL
from tests.engine.random_graphs import Call
from tests.engine.reference import Spec
from tests.engine.small import Nothing
from tests.engine.waiting import State
from tests.properties.played import NAMESPACE

MOST_SUPERSTEPS = 7
MOST_ASKED = 5
ANN = ["user:ann"]
VALUES = ["", "x", "y"]
"""Few, so that a value is often set back to what it was."""
EFFECTS = ["pure", "pure", "read", "external", "write"]


def built(specs: list[Spec], starts: list[str], seed: int) -> Graph:
    """The graph of these nodes and edges, with what the dice make of each."""
    dice = Random(f"{seed}/graph")
    graph = Graph(
        "random",
        input=Nothing,
        state=State,
        memory=dice.choice(["live", "snapshot", "journaled"]),
        reviewers=ANN,
        max_supersteps=MOST_SUPERSTEPS,
    )
    for spec in specs:
        options = _options(spec, seed)
        graph.node(
            spec.name, join=spec.join, goto=spec.goto, sends=spec.sends, **options
        )(_node(spec, seed))
    for start in starts:
        graph.edge(START, start)
    for spec in specs:
        _lead_on(graph, spec, seed)
    return graph


def _lead_on(graph: Graph, spec: Spec, seed: int) -> None:
    for target in spec.plain:
        graph.edge(spec.name, target)
    if spec.branch:
        graph.branch(
            spec.name,
            _router(spec, seed),
            {f"l{n}": target for n, target in enumerate(spec.branch)},
        )
    for outcome, targets in (*spec.when.items(), ("error", spec.error)):
        for target in targets:
            graph.edge(spec.name, target, when=outcome)


def _router(spec: Spec, seed: int) -> Any:
    def router(state: Any) -> str:
        """Return an answer, now and then one that the branch does not know."""
        return Random(f"{seed}/{spec.name}/{state!r}").choice(
            [*["l0", "l1"] * 12, "l2"]
        )

    return router


def _options(spec: Spec, seed: int) -> dict[str, Any]:
    dice = Random(f"{seed}/options/{spec.name}")
    retry = Retry(attempts=2, backoff=0) if dice.random() < 0.4 else None
    if spec.call:
        effect = dice.choice(["external", "read"])
        return {
            "effect": effect,
            "idempotent": effect == "external",
            "approve": "call",
            "args": Call,
            "prepare": _preparing(spec, seed),
            "gate": _gate(spec, dice, seed),
            "retry": retry,
        }
    if spec.gated:
        return {"effect": "human", "gate": _gate(spec, dice, seed), "retry": retry}
    effect = dice.choice(EFFECTS)
    options: dict[str, Any] = {"effect": effect}
    if effect in ("external", "write"):
        options["idempotent"] = dice.random() < 0.5
        if not options["idempotent"] and dice.random() < 0.5:
            options["not_done"] = KeyError
        retry = retry if options["idempotent"] or "not_done" in options else None
    return {**options, "retry": retry}


def _gate(spec: Spec, dice: Random, seed: int) -> Gate:
    def named(state: Any) -> list[str]:
        return (
            ANN
            if Random(f"{seed}/reviewers/{spec.name}/{state!r}").random() < 0.95
            else []
        )

    def needed(state: Any, proposal: Any) -> Any:
        return Random(f"{seed}/needed/{spec.name}/{state!r}").choice(
            [True, "because", None, False]
        )

    shows = {"note": Show(label="A note")} if dice.random() < 0.5 else {}
    if spec.call:
        shows = {CALL: Show(label="Say {text}")} if shows else {}
    elif shows and dice.random() < 0.5:
        shows |= {"letter": Show(needs=["note"])}
    return Gate(
        reviewers=named if dice.random() < 0.2 else dice.choice([ANN, None]),
        all_or_nothing=dice.random() < 0.3,
        needs_approval=needed if dice.random() < 0.4 else None,
        shows=dice.choice([(), (), ["note"], ["total", "latest"]]),
        title=dice.choice(["", "Note {note} at {state.total}", "{proposal.note}"]),
        facts=[Fact("Total", "state.total")],
        writes=shows,
        auto=_policy(spec, seed) if dice.random() < 0.4 else None,
        veto=_veto(spec, seed) if dice.random() < 0.3 else None,
    )


def _policy(spec: Spec, seed: int) -> Any:
    def signs(state: Any, proposal: Any) -> Any:
        channels = sorted(proposal)
        dice = Random(f"{seed}/policy/{spec.name}/{state!r}/{channels}")
        return dice.choice([True, True, "people decide", None])

    return signs


def _veto(spec: Spec, seed: int) -> Any:
    def vetoes(state: Any, proposal: Any) -> Any:
        channels = sorted(proposal)
        dice = Random(f"{seed}/veto/{spec.name}/{state!r}/{channels}")
        return dice.choice([False, False, "look again"])

    return vetoes


def _preparing(spec: Spec, seed: int) -> Any:
    def prepare(state: Any, ctx: Any) -> Call:
        dice = Random(f"{seed}/{ctx.task}/{ctx.attempt}/prepare/{state!r}")
        if dice.random() < (0.2 if spec.error else 0.03):
            raise RuntimeError(f"{ctx.task} is not prepared")
        return Call(text=dice.choice(VALUES))

    return prepare


def _node(spec: Spec, seed: int) -> Any:
    def node(state: Any, ctx: Any) -> Any:
        dice = Random(
            f"{seed}/{ctx.task}/{ctx.attempt}/{state!r}/{ctx.error and ctx.error.message}"
            f"{ctx.args or ''}"
        )
        fails = dice.random()
        if fails < (0.4 if spec.error else 0.03):
            raise (KeyError if fails < 0.015 else RuntimeError)(
                f"{ctx.task} {ctx.attempt}"
            )
        if dice.random() < 0.25:
            _remember(ctx.memory, dice)
        goto = dice.choice(spec.goto) if spec.goto and dice.random() < 0.5 else None
        many = dice.randint(0, 3) if spec.sends and dice.random() < 0.5 else 0
        sends = [Send(dice.choice(spec.sends), n) for n in range(many)]
        return Command(update=_writes(spec, dice, str(ctx.task)), goto=goto, send=sends)

    return node


def _remember(memory: Any, dice: Random) -> None:
    for key in dice.sample("ab", dice.randint(1, 2)):
        what = dice.random()
        if what < 0.3:
            memory.get(key, NAMESPACE)
        elif what < 0.5:
            memory.delete(key, NAMESPACE)
        else:
            memory.put(key, dice.choice(VALUES), NAMESPACE)


def _writes(spec: Spec, dice: Random, task: str) -> list[Write]:
    """Return what the node proposes or writes. Where no gate holds it a channel of
    `Replace` is rare, for two conflict.
    """
    kinds = (
        ["note", "letter", "latest", "total", "log", "table"]
        if spec.gated and not spec.call
        else ["latest", "total", "log", "table"]
    )
    if (spec.call or not spec.gated) and dice.random() < 0.2:
        kinds.append(dice.choice(["note", "letter"]))
    chosen = [
        dice.choice(kinds)
        for _ in range(dice.randint(0 if dice.random() < 0.1 else 1, 3))
    ]
    return [
        Write(
            channel, _value(channel, dice, task), dice.choice([None, None, "A label"])
        )
        for channel in chosen
    ]


def _value(channel: str, dice: Random, task: str) -> Any:
    if channel == "total":
        return dice.choice([-1, 1])
    if channel == "log":
        return [task]
    return (
        {dice.choice("ab"): dice.choice(VALUES)}
        if channel == "table"
        else dice.choice(VALUES)
    )


def decider(seed: int) -> Any:
    """Return who answers some requests at each pause, and of these some writes, settled
    ones too.
    """
    calls: dict[Any, int] = {}

    def decide(request: Any) -> Any:
        calls[request.task] = calls.get(request.task, 0) + 1
        dice = Random(f"{seed}/decides/{request.task}/{calls[request.task]}")
        if dice.random() < 0.15:
            return None
        # What a veto keeps open is rejected in the end.
        if calls[request.task] > MOST_ASKED:
            return dict.fromkeys(range(len(request.writes)), "reject")
        positions = [write.position for write in request.writes if dice.random() < 0.8]
        dice.shuffle(positions)
        return {
            position: _verdict(request.writes[position], dice) for position in positions
        }

    return decide


def _verdict(write: Any, dice: Random) -> Any:
    word = dice.choice(["approve", "approve", "approve", "reject", "edit"])
    if word != "edit":
        return word
    if write.channel == CALL:
        return "edit", {"text": dice.choice(VALUES)}
    if write.channel.startswith("$memory"):
        return "edit", {"content": dice.choice(VALUES), "strength": 1.0}
    return "edit", _value(write.channel, dice, "edited")
