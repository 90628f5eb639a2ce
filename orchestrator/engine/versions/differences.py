"""The differences between two versions of a graph, in words, and what each of them
means for a run. Pure.

Worker, `check_versions`, pages and API call this one function over two structures
(`structure.document`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.engine.frozen import frozen
from orchestrator.engine.values.type_words import resolved, type_change
from orchestrator.engine.versions.gate_differences import gate_changes
from orchestrator.engine.versions.pending_parts import Pending
from orchestrator.engine.versions.ways_ahead import WaysAhead, read_edge

HARMLESS = "harmless"
WARNING = "warning"
BREAKING = "breaking"
WEIGHTS = (BREAKING, WARNING, HARMLESS)

_REPEATABLE = {
    "idempotent": "safe to do again",
    "atomic": "atomic",
    "not_done": "the errors that say that nothing happened",
}
_INNER = {"memory": "memory", "reads": "the channels that it reads"}

_CHANNEL_PARTS = {
    "reducer": "reducer ",
    "partition": "partition ",
    "own": "a reducer of one's own: ",
}

ALIKE = "is written otherwise, and takes the same values"

Structure = Mapping[str, Any]


@frozen
class Difference:
    """One difference: its subject (`what`), and `change`, the change in words. `weight`:
    harmless, warning or breaking. `migratable`: it breaks, but a migration of the state
    answers for it.
    """

    weight: str
    what: str
    change: str
    migratable: bool = False

    @property
    def words(self) -> str:
        """The difference as one line."""
        return f"{self.what}: {self.change}"

    def to_json(self) -> dict[str, Any]:
        return {
            "weight": self.weight,
            "what": self.what,
            "said": self.change,
            "migratable": self.migratable,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Difference":
        return cls(
            stored["weight"],
            stored["what"],
            stored["said"],
            stored["migratable"],
        )


def differences(
    old: Structure,
    new: Structure,
    at: Pending | None = None,
    *,
    silent: Collection[str] | None = None,
) -> tuple[Difference, ...]:
    """Return every difference between two structures, the heaviest first: for a run
    that stands at this point, or for any run (None), which may need each part.

    `silent` are the nodes at which people are asked now and whose deadline approves;
    without a record of them (None) the gates of the old version say so.
    """
    ahead = WaysAhead(old, new, at, silent)
    all_differences = [
        *_of_version(old, new),
        *_of_input(old["input"], new["input"]),
        *_of_state(old["state"], new["state"]),
        *_of_channels(old, new),
        *_of_nodes(old, new, ahead),
        *_of_edges(old, new, ahead),
        *_of_open_superstep(old, new, ahead),
        *_of_order(old, new),
    ]
    # The sort is stable, so within a weight the order of the lists above stays.
    return tuple(sorted(all_differences, key=_rank))


def _rank(difference: Difference) -> int:
    return WEIGHTS.index(difference.weight)


def _of_version(old: Structure, new: Structure) -> Iterator[Difference]:
    if old["format"] != new["format"]:
        yield Difference(
            BREAKING, "structure", f"format {old['format']} became {new['format']}"
        )
    if old["version"] != new["version"]:
        yield Difference(
            HARMLESS, "version", f"{old['version']} became {new['version']}"
        )


def _fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a model by name, without references."""
    definitions = schema.get("$defs", {})
    fields: dict[str, Any] = {}
    for name, field in schema.get("properties", {}).items():
        fields[name] = resolved(field, definitions)
    return fields


def _of_input(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    before = _fields(old)
    after = _fields(new)
    yield from _of_input_fields(before, after, new)
    rest_before = _rest(old)
    rest_after = _rest(new)
    if rest_before != rest_after:
        change = type_change(rest_before, rest_after)
        yield Difference(BREAKING, "input", change or "its type changed")
    # New and removed fields have a separate difference.
    if _required(old) != _required(new) and before.keys() == after.keys():
        yield Difference(WARNING, "input", "which fields must be given changed")
    if old != new and _meaning(old) == _meaning(new):
        yield Difference(HARMLESS, "input", ALIKE)


def _of_input_fields(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    new: Mapping[str, Any],
) -> Iterator[Difference]:
    for name in before:
        if name not in after:
            yield Difference(BREAKING, f"input `{name}`", "was removed")
            continue
        change = type_change(before[name], after[name])
        if change:
            yield Difference(BREAKING, f"input `{name}`", change)
    for name in after:
        if name in before:
            continue
        # The input was frozen when the run started, so nobody can add the field.
        if name in _required(new):
            text = "is new, and runs that have begun lack it"
            yield Difference(BREAKING, f"input `{name}`", text)
        else:
            yield Difference(WARNING, f"input `{name}`", "is new")


def _required(schema: Mapping[str, Any]) -> set[str]:
    return set(schema.get("required", ()))


def _rest(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model declares beside its fields."""
    rest = dict(schema)
    for key in ("properties", "$defs", "required"):
        rest.pop(key, None)
    return rest


def _meaning(schema: Mapping[str, Any]) -> Any:
    """Return what a model takes, however it is written."""
    return _fields(schema), _required(schema), _rest(schema)


def _of_state(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the differences of the state's model that belong to no single channel."""
    if old != new and _meaning(old) == _meaning(new):
        yield Difference(HARMLESS, "state", ALIKE)
    rest_before = _rest(old)
    rest_after = _rest(new)
    if rest_before != rest_after:
        change = type_change(rest_before, rest_after)
        yield Difference(WARNING, "state", change or "its type changed")
    # A channel that is new or gone is a difference by itself.
    in_both = _fields(old).keys() & _fields(new).keys()
    if _required(old) & in_both != _required(new) & in_both:
        yield Difference(WARNING, "state", "which channels must be given changed")


def _of_channels(old: Structure, new: Structure) -> Iterator[Difference]:
    before = _fields(old["state"])
    after = _fields(new["state"])
    for name, channel in old["channels"].items():
        what = f"channel `{name}`"
        if name not in new["channels"]:
            yield Difference(
                BREAKING,
                what,
                "was removed",
                migratable=True,
            )
            continue
        channel_now = new["channels"][name]
        change = type_change(before[name], after[name])
        if change:
            yield Difference(
                BREAKING,
                what,
                change,
                migratable=True,
            )
        yield from _of_reducer(what, channel, channel_now)
        # Another type brings another default, which is no further difference.
        if channel["default"] != channel_now["default"] and not change:
            text = (
                f"default {_value(channel['default'])} "
                f"became {_value(channel_now['default'])}"
            )
            yield Difference(WARNING, what, text)
    for name, channel in new["channels"].items():
        if name not in old["channels"]:
            text = f"is new, with the default {_value(channel['default'])}"
            yield Difference(WARNING, f"channel `{name}`", text)


def _of_reducer(
    what: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
) -> Iterator[Difference]:
    """Yield the differences in how writes change a channel, and in how signatures are
    bound to it.
    """
    for key, words in _CHANNEL_PARTS.items():
        if old[key] != new[key]:
            text = f"{words}{old[key]} became {new[key]}"
            yield Difference(
                BREAKING,
                what,
                text,
                migratable=True,
            )
    # If the reducer is another one, that is the difference.
    same_reducer = old["reducer"] == new["reducer"] and old["own"] == new["own"]
    if same_reducer and old["bound"] != new["bound"]:
        text = (
            f"a signature is bound to its value: {_list(old['bound'])} "
            f"became {_list(new['bound'])}"
        )
        # Bound to less, a signature would outlive a change of what it was given on.
        yield Difference(BREAKING if old["bound"] else WARNING, what, text)


def _value(value: Any) -> str:
    if value is None:
        return "nothing"
    if value == "":
        return '""'
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _of_nodes(
    old: Structure,
    new: Structure,
    ahead: WaysAhead,
) -> Iterator[Difference]:
    before = {node["name"]: node for node in old["nodes"]}
    after = {node["name"]: node for node in new["nodes"]}
    for name, node in before.items():
        if name in after:
            yield from _of_node(name, node, after[name], ahead)
            yield from _of_authority(node, after[name], _rechecks(before, after), ahead)
        else:
            calls = node["approve"] == "call"
            yield _of_removed_node(name, ahead, calls=calls)
        if node["gate"] or node["approve"]:
            yield from _of_way_to_gate(name, name in after, ahead)
    for name in after:
        if name not in before:
            yield Difference(WARNING, f"node `{name}`", "is new")
    # A node reached through one of several gates does not depend on any of them alone.
    for gates, behind, free in ahead.round_gates():
        text = (
            f"{_quoted(free)} came only behind {behind}, "
            "and can begin without any of them now"
        )
        yield Difference(BREAKING, f"gates of nodes {_quoted(gates)}", text)


def _of_removed_node(name: str, ahead: WaysAhead, *, calls: bool) -> Difference:
    what = f"node `{name}`"
    if calls and ahead.asks(name):
        text = "was removed, and people decide about a call of it now"
        return Difference(BREAKING, what, text)
    if ahead.needs(name):
        text = "was removed, and the run was about to go on there"
        return Difference(BREAKING, what, text)
    weight = WARNING if ahead.began(name) else HARMLESS
    return Difference(weight, what, "was removed")


def _of_way_to_gate(
    gate: str,
    is_there: bool,
    ahead: WaysAhead,
) -> Iterator[Difference]:
    """Yield a difference if the old version led to this gate and the new one does not,
    or leads past it.
    """
    what = f"gate of node `{gate}`"
    is_reached = is_there and ahead.begins(gate)
    if ahead.began(gate) and not is_reached:
        how = "is not on the way any more" if is_there else "was removed with its node"
        yield Difference(BREAKING, what, f"{how}, and the run was to be asked there")
        return
    for behind, free in ahead.round_gate(gate):
        text = (
            f"{_quoted(free)} came only behind {behind}, and can begin without it now"
        )
        yield Difference(BREAKING, what, text)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _of_node(
    name: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    ahead: WaysAhead,
) -> Iterator[Difference]:
    what = f"node `{name}`"
    if old["effect"] != new["effect"]:
        text = f"effect {old['effect']} became {new['effect']}"
        yield Difference(BREAKING, what, text)
    # They decide whether an effect may happen twice, so they break wherever a run is.
    for key, words in _REPEATABLE.items():
        if old[key] != new[key]:
            text = f"{words}: {_list(old[key])} became {_list(new[key])}"
            yield Difference(BREAKING, what, text)
    if old["join"] != new["join"]:
        weight = BREAKING if ahead.needs(name) else WARNING
        yield Difference(weight, what, f"join {old['join']} became {new['join']}")
    for key, words in _INNER.items():
        if old[key] != new[key]:
            text = f"{words}: {_list(old[key])} became {_list(new[key])}"
            yield Difference(WARNING, what, text)
    yield from _of_call(name, old, new, ahead)
    yield from _of_gate(name, old, new, ahead)


def _of_call(
    name: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    ahead: WaysAhead,
) -> Iterator[Difference]:
    """Yield the changes of what a node is called with. A call about which people are
    asked, or that they approved, runs with exactly the arguments that they saw.
    """
    what = f"call of node `{name}`"
    before = old.get("args")
    after = new.get("args")
    waits = ahead.asks(name) and ahead.at is not None
    if before is None or after is None:
        # Another kind of gate is a change of the gate, but what waits is not the same.
        if before != after and waits:
            text = "people are asked now, and what they decide is something else"
            yield Difference(BREAKING, what, text)
        return
    if _meaning(before) == _meaning(after):
        return
    change = type_change(before, after) or "its arguments changed"
    yield Difference(BREAKING if waits else WARNING, what, change)


def _rechecks(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Return the names of each gate's recheck in both versions, where they differ."""
    changed: dict[str, tuple[Any, Any]] = {}
    for name in before.keys() & after.keys():
        old = (before[name]["gate"] or {}).get("recheck")
        new = (after[name]["gate"] or {}).get("recheck")
        if old != new:
            changed[name] = (old, new)
    return changed


def _of_authority(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    rechecks: Mapping[str, tuple[Any, Any]],
    ahead: WaysAhead,
) -> Iterator[Difference]:
    """Yield the changes of the gates on whose authority a node acts, and of what is
    asked there again. It must not act on less than the run was promised.
    """
    name = new["name"]
    what = f"authority of node `{name}`"
    before = old.get("authority", [])
    after = new.get("authority", [])
    acts_yet = ahead.begins(name) or ahead.asks(name)
    if before != after:
        is_less = not set(before) <= set(after)
        text = f"{_list(before)} became {_list(after)}"
        yield Difference(_weight(acts_yet, weaker=is_less), what, text)
    for gate in sorted({*before} & {*after} & rechecks.keys()):
        recheck_before, recheck_after = rechecks[gate]
        # Nobody can say which of two rules is stricter.
        weight = _weight(acts_yet, weaker=recheck_before is not None)
        words = f"{recheck_before or 'none'} became {recheck_after or 'none'}"
        yield Difference(weight, what, f"the recheck of {gate}: {words}")


def _weight(matters: bool, *, weaker: bool) -> str:
    if not matters:
        return HARMLESS
    return BREAKING if weaker else WARNING


def _list(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "all"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _of_gate(
    name: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    ahead: WaysAhead,
) -> Iterator[Difference]:
    """Yield the changes of a node's gate. An open request keeps the rules under which
    it was opened; a later one must not be easier to satisfy.
    """
    what = f"gate of node `{name}`"
    asks = ahead.asks(name)
    if asks and old["gate"] and not new["gate"]:
        yield Difference(BREAKING, what, "was removed, and people are asked there now")
        return
    if ahead.silence_approves(name):
        yield from _of_silence(what, ahead.acting_by_silence(name))
    for change in gate_changes(old, new):
        if ahead.begins(name):
            yield Difference(BREAKING if change.weaker else WARNING, what, change.words)
        elif asks:
            text = f"{change.words} (what people are asked now keeps the old rule)"
            yield Difference(HARMLESS, what, text)
        else:
            text = f"{change.words} (nobody will be asked there again)"
            yield Difference(HARMLESS, what, text)


def _of_silence(what: str, acting: Sequence[str]) -> Iterator[Difference]:
    """Yield a difference if nodes could act without people: what people are asked now is
    still approved by its deadline.
    """
    if acting:
        text = (
            "its deadline approves what people are asked now, and would let "
            f"{_quoted(acting)} act although nobody signed"
        )
        yield Difference(BREAKING, what, text)


def _of_edges(
    old: Structure,
    new: Structure,
    ahead: WaysAhead,
) -> Iterator[Difference]:
    for edge in old["edges"]:
        if edge not in new["edges"]:
            yield _of_removed_edge(edge, ahead)
    for edge in new["edges"]:
        if edge not in old["edges"]:
            yield Difference(WARNING, f"edge `{edge}`", "is new")


def _of_removed_edge(edge: str, ahead: WaysAhead) -> Difference:
    what = f"edge `{edge}`"
    if ahead.holds(edge):
        text = "was removed, and the run was on its way along it"
        return Difference(BREAKING, what, text)
    if ahead.will_take(edge):
        text = "was removed, and a result that is kept leads along it"
        return Difference(BREAKING, what, text)
    source = read_edge(edge).source
    may_be_taken = ahead.began(source) or ahead.needs(source)
    return Difference(WARNING if may_be_taken else HARMLESS, what, "was removed")


def _of_open_superstep(
    old: Structure,
    new: Structure,
    ahead: WaysAhead,
) -> Iterator[Difference]:
    """Yield the started nodes that would wait in the new version. All tasks of an open
    superstep must begin there as they did, or their results would be lost; but a join
    may wait for work that did not lead to it before.
    """
    # Whether a node begins depends on edges and joins alone.
    if ahead.at is None or _shape(old) == _shape(new):
        return
    joins = {node["name"] for node in new["nodes"] if node["join"] == "all"}
    for name in ahead.at.nodes:
        if name not in joins:
            continue
        others = ahead.would_wait(name)
        if others:
            text = f"was begun, and would wait for {_quoted(others)} now"
            yield Difference(BREAKING, f"node `{name}`", text)


def _shape(structure: Structure) -> Any:
    joins = [(node["name"], node["join"]) for node in structure["nodes"]]
    return structure["edges"], joins


def _of_order(old: Structure, new: Structure) -> Iterator[Difference]:
    """Yield the differences of order, which decides what is reduced first, and which of
    several tokens comes first.
    """
    if _is_reordered(_node_names(old), _node_names(new)):
        yield Difference(WARNING, "order of nodes", "changed")
    if _is_reordered(old["edges"], new["edges"]):
        yield Difference(WARNING, "order of edges", "changed")


def _node_names(structure: Structure) -> list[str]:
    return [node["name"] for node in structure["nodes"]]


def _is_reordered(before: Iterable[str], after: Iterable[str]) -> bool:
    """Return whether the names that both have stand in another order."""
    both = set(before).intersection(after)
    names_before = [name for name in before if name in both]
    names_after = [name for name in after if name in both]
    return names_before != names_after
