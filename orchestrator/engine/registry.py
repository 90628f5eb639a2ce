"""The graphs of this process, by name and version. Discovery registers at start-up; everybody asks."""

import difflib

from orchestrator.engine.compile import Compiled, compile
from orchestrator.engine.definition import Definition
from orchestrator.engine.errors import InvalidGraph, UnknownThing
from orchestrator.engine.migration import Migration

_known: dict[tuple[str, str], Compiled] = {}


def register(graph: Definition) -> Compiled:
    """Compile, freeze and register a graph; the same object again changes nothing. Raises `InvalidGraph`."""
    key = (graph.name, graph.version)
    known = _known.get(key)
    if known is not None and known.graph is graph:
        return known
    if known is not None:
        raise InvalidGraph(f"graph {graph.name} version {graph.version} is registered already", graph=graph.name)
    if graph.current and any(c.name == graph.name and c.graph.current for c in _known.values()):
        raise InvalidGraph(f"two versions of graph {graph.name} say current=True", graph=graph.name)
    return replace(graph)


def replace(graph: Definition) -> Compiled:
    """As `register`, in the place of a graph of the same name and version. For tests and reloading."""
    compiled = compile(graph)
    graph.frozen = True
    _known[graph.name, graph.version] = compiled
    return compiled


def get(name: str, version: str | None = None) -> Compiled:
    """A graph by name and version (None: the current one). Raises `UnknownThing` naming what there is."""
    if version is None:
        return current(name)
    if (name, version) not in _known:
        known = [c.version for c in _known.values() if c.name == name]
        if not known:
            raise _unknown(name)
        message = f"graph {name} has no version {version} here; registered: {', '.join(known)}"
        raise UnknownThing(message, graph=name, version=version, known=known)
    return _known[name, version]


def current(name: str) -> Compiled:
    """The version that new runs take: the one with `current=True`, else the last declared. Raises `UnknownThing`."""
    versions = [compiled for compiled in _known.values() if compiled.name == name]
    if not versions:
        raise _unknown(name)
    return next((compiled for compiled in versions if compiled.graph.current), versions[-1])


def find_graph(fingerprint: str) -> Compiled | None:
    """The graph that a run is pinned to; None where this process has no such one."""
    for compiled in _known.values():
        if compiled.fingerprint == fingerprint:
            return compiled
    return None


def by_fingerprint(fingerprint: str) -> Compiled:
    """As `find_graph`. Raises `UnknownThing` where this process has no such one."""
    if (found := find_graph(fingerprint)) is not None:
        return found
    what = f"no graph registered here has the fingerprint {fingerprint[:12]}…"
    raise UnknownThing(f"{what}; deploy the version that the run began with", fingerprint=fingerprint)


def migrations(name: str, *, apart_from: str = "") -> list[Migration]:
    """Every step that the registered versions of a graph declare, without those of one version; those of the newest
    declared version come first.
    """
    versions = [one.graph for one in _known.values() if one.name == name and one.version != apart_from]
    return [step for graph in reversed(versions) for step in graph.migrations]


def all() -> list[Compiled]:
    """Every registered graph, in order of registration."""
    return list(_known.values())


def clear() -> None:
    """Forget all graphs. For tests."""
    _known.clear()


def _unknown(name: str) -> UnknownThing:
    names = sorted({compiled.name for compiled in _known.values()})
    near = difflib.get_close_matches(str(name), names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"registered: {', '.join(names) or 'none'}"
    message = f"there is no graph {name}; {hint} Graphs stand in the graphs.py of an installed app"
    return UnknownThing(message, graph=str(name), near=near)
