"""What differs between two versions of a graph, in words, and what each difference means for a run. Pure.

Worker, `check_versions`, pages and API read this one function over two structures (`structure.document`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchestrator.engine.frozen import frozen
from orchestrator.engine.gate_differences import gate_changes
from orchestrator.engine.pending_parts import Pending
from orchestrator.engine.type_words import resolved, type_change
from orchestrator.engine.ways_ahead import WaysAhead, read_edge

HARMLESS, WARNING, BREAKING = "harmless", "warning", "breaking"
WEIGHTS = (BREAKING, WARNING, HARMLESS)

_SURE = {
    "idempotent": "safe to do again",
    "atomic": "atomic",
    "not_done": "the errors that say that nothing happened",
}
_OWN = {"memory": "memory", "reads": "the channels that it reads"}

Structure = Mapping[str, Any]


@frozen
class Difference:
    """One difference: `what` it is of and what is `said` of it. `weight`: harmless, warning or breaking. `migratable`:
    it breaks, and a migration of the state answers for it.
    """

    weight: str
    what: str
    said: str
    migratable: bool = False

    @property
    def words(self) -> str:
        """The difference as one line."""
        return f"{self.what}: {self.said}"

    def to_json(self) -> dict[str, Any]:
        return {"weight": self.weight, "what": self.what, "said": self.said, "migratable": self.migratable}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Difference":
        return cls(kept["weight"], kept["what"], kept["said"], kept["migratable"])


def differences(old: Structure, new: Structure, at: Pending | None = None) -> tuple[Difference, ...]:
    """Every difference between two structures, the heaviest first: for a run that stands at this point, or for any run
    (None), of which each part may be needed.
    """
    ahead = WaysAhead(old, new, at)
    found = [
        *_of_version(old, new),
        *_of_input(old["input"], new["input"]),
        *_of_channels(old, new),
        *_of_nodes(old, new, ahead),
        *_of_edges(old, new, ahead),
        *_of_open_superstep(old, new, ahead),
        *_of_order(old, new),
    ]
    return tuple(sorted(found, key=lambda one: WEIGHTS.index(one.weight)))


def _of_version(old: Structure, new: Structure) -> Iterator[Difference]:
    if old["format"] != new["format"]:
        yield Difference(BREAKING, "structure", f"format {old['format']} became {new['format']}")
    if old["version"] != new["version"]:
        yield Difference(HARMLESS, "version", f"{old['version']} became {new['version']}")


def _fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a model by name, without references."""
    definitions = schema.get("$defs", {})
    return {name: resolved(one, definitions) for name, one in schema.get("properties", {}).items()}


def _of_input(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    before, after = _fields(old), _fields(new)
    for name in before:
        if name not in after:
            yield Difference(BREAKING, f"input `{name}`", "was removed")
        elif said := type_change(before[name], after[name]):
            yield Difference(BREAKING, f"input `{name}`", said)
    for name in after:
        if name not in before:
            needed = name in new.get("required", ())
            said = "is new, and runs that have begun lack it" if needed else "is new"
            yield Difference(BREAKING if needed else WARNING, f"input `{name}`", said)
    rest = [{k: v for k, v in one.items() if k not in ("properties", "$defs", "required")} for one in (old, new)]
    if rest[0] != rest[1]:
        yield Difference(BREAKING, "input", type_change(*rest) or "its type changed")
    if old.get("required", []) != new.get("required", []) and {*before} == {*after}:
        yield Difference(WARNING, "input", "which fields must be given changed")


def _of_channels(old: Structure, new: Structure) -> Iterator[Difference]:
    before, after = _fields(old["state"]), _fields(new["state"])
    for name, kept in old["channels"].items():
        what = f"channel `{name}`"
        if name not in new["channels"]:
            yield Difference(BREAKING, what, "was removed", migratable=True)
            continue
        own = new["channels"][name]
        if retyped := type_change(before[name], after[name]):
            yield Difference(BREAKING, what, retyped, migratable=True)
        for key, word in (("reducer", "reducer "), ("partition", "partition "), ("own", "a reducer of one's own: ")):
            if kept[key] != own[key]:
                yield Difference(BREAKING, what, f"{word}{kept[key]} became {own[key]}", migratable=True)
        if kept["default"] != own["default"] and not retyped:
            yield Difference(WARNING, what, f"default {_value(kept['default'])} became {_value(own['default'])}")
    for name, own in new["channels"].items():
        if name not in old["channels"]:
            yield Difference(WARNING, f"channel `{name}`", f"is new, with the default {_value(own['default'])}")


def _value(value: Any) -> str:
    text = "nothing" if value is None else '""' if value == "" else str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _of_nodes(old: Structure, new: Structure, ahead: WaysAhead) -> Iterator[Difference]:
    before, after = ({node["name"]: node for node in one["nodes"]} for one in (old, new))
    for name, node in before.items():
        if name in after:
            yield from _of_node(name, node, after[name], ahead)
        elif ahead.needs(name):
            yield Difference(BREAKING, f"node `{name}`", "was removed, and the run was about to go on there")
        else:
            yield Difference(WARNING if ahead.began(name) else HARMLESS, f"node `{name}`", "was removed")
        if node["gate"] or node["approve"]:
            yield from _of_way(name, name in after, ahead)
    yield from (Difference(WARNING, f"node `{name}`", "is new") for name in after if name not in before)
    for gates, behind, free in ahead.round_gates():
        said = f"{_quoted(free)} came only behind {behind}, and can begin without any of them now"
        yield Difference(BREAKING, f"gates of nodes {_quoted(gates)}", said)


def _of_way(gate: str, there: bool, ahead: WaysAhead) -> Iterator[Difference]:
    """Whether the new version still leads to this gate, where the old one did, and past it only through it."""
    what = f"gate of node `{gate}`"
    if ahead.began(gate) and not (there and ahead.begins(gate)):
        how = "is not on the way any more" if there else "was removed with its node"
        yield Difference(BREAKING, what, f"{how}, and the run was to be asked there")
        return
    for behind, free in ahead.round_gate(gate):
        yield Difference(BREAKING, what, f"{_quoted(free)} came only behind {behind}, and can begin without it now")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _of_node(name: str, old: Mapping[str, Any], new: Mapping[str, Any], ahead: WaysAhead) -> Iterator[Difference]:
    what = f"node `{name}`"
    if old["effect"] != new["effect"]:
        yield Difference(BREAKING, what, f"effect {old['effect']} became {new['effect']}")
    for key, words in _SURE.items():
        if old[key] != new[key]:
            yield Difference(BREAKING, what, f"{words}: {_list(old[key])} became {_list(new[key])}")
    if old["join"] != new["join"]:
        weight = BREAKING if ahead.needs(name) else WARNING
        yield Difference(weight, what, f"join {old['join']} became {new['join']}")
    for key, words in _OWN.items():
        if old[key] != new[key]:
            yield Difference(WARNING, what, f"{words}: {_list(old[key])} became {_list(new[key])}")
    yield from _of_gate(name, old, new, ahead)


def _list(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "all"
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def _of_gate(name: str, old: Mapping[str, Any], new: Mapping[str, Any], ahead: WaysAhead) -> Iterator[Difference]:
    """What was asked already keeps what it was asked with; what will be asked must not become easier to pass."""
    what, asks = f"gate of node `{name}`", ahead.asks(name)
    if asks and old["gate"] and not new["gate"]:
        yield Difference(BREAKING, what, "was removed, and people are asked there now")
        return
    for change in gate_changes(old, new):
        if not ahead.begins(name):
            why = "what people are asked now keeps the old rule" if asks else "nobody will be asked there again"
            yield Difference(HARMLESS, what, f"{change.said} ({why})")
        else:
            yield Difference(BREAKING if change.weaker else WARNING, what, change.said)


def _of_edges(old: Structure, new: Structure, ahead: WaysAhead) -> Iterator[Difference]:
    for edge in old["edges"]:
        if edge not in new["edges"]:
            if ahead.holds(edge):
                yield Difference(BREAKING, f"edge `{edge}`", "was removed, and the run was on its way along it")
            elif ahead.will_take(edge):
                yield Difference(BREAKING, f"edge `{edge}`", "was removed, and a result that is kept leads along it")
            else:
                weight = (
                    WARNING if ahead.began(read_edge(edge).source) or ahead.needs(read_edge(edge).source) else HARMLESS
                )
                yield Difference(weight, f"edge `{edge}`", "was removed")
    yield from (Difference(WARNING, f"edge `{edge}`", "is new") for edge in new["edges"] if edge not in old["edges"])


def _of_open_superstep(old: Structure, new: Structure, ahead: WaysAhead) -> Iterator[Difference]:
    """The tasks of a superstep that is open must all begin in the new version as they did, or what they returned would
    be left behind. A join may wait there for something that did not lead to it before.
    """
    if ahead.at is None or _shape(old) == _shape(new):
        return
    joins = {node["name"] for node in new["nodes"] if node["join"] == "all"}
    for name in ahead.at.nodes:
        if name in joins and (others := ahead.would_wait(name)):
            yield Difference(BREAKING, f"node `{name}`", f"was begun, and would wait for {_quoted(others)} now")


def _shape(structure: Structure) -> Any:
    return structure["edges"], [(node["name"], node["join"]) for node in structure["nodes"]]


def _of_order(old: Structure, new: Structure) -> Iterator[Difference]:
    """What is reduced first, and which of several tokens comes first."""
    orders = [([node["name"] for node in one["nodes"]], list(one["edges"])) for one in (old, new)]
    for word, before, after in zip(("nodes", "edges"), *orders, strict=True):
        both = {*before} & {*after}
        if [one for one in before if one in both] != [one for one in after if one in both]:
            yield Difference(WARNING, f"order of {word}", "changed")
