"""The registry: the graphs of this process by name and version. Discovery registers
them at start-up; everything else looks them up.
"""

import difflib

from orchestrator.engine.errors import InvalidGraph, UnknownThing
from orchestrator.engine.graphs.compile import Compiled, compile
from orchestrator.engine.graphs.definition import Definition
from orchestrator.engine.versions.migration import Migration

ASKING = "countersign.approval"
"""The name of the graph that the package itself brings. Nobody else's has it."""
_registered: dict[tuple[str, str], Compiled] = {}


def register(graph: Definition) -> Compiled:
    """Compile, freeze and register a graph; the same object again changes nothing.
    Raises `InvalidGraph`.
    """
    key = (graph.name, graph.version)
    registered = _registered.get(key)
    # Discovery may meet one graph again, if another module imports it.
    if registered is not None and registered.graph is graph:
        return registered
    if registered is not None:
        raise InvalidGraph(
            f"graph {graph.name} version {graph.version} is registered already",
            graph=graph.name,
        )
    if graph.current:
        _refuse_second_current(graph.name)
    return replace(graph)


def _refuse_second_current(name: str) -> None:
    if any(compiled.graph.current for compiled in _versions(name)):
        raise InvalidGraph(f"two versions of graph {name} say current=True", graph=name)


def is_registered(name: str) -> bool:
    """Return whether there is a graph of this name here, in any version."""
    return bool(_versions(name))


def _versions(name: str) -> list[Compiled]:
    """Return the registered versions of a graph, in order of registration."""
    return [compiled for compiled in _registered.values() if compiled.name == name]


def replace(graph: Definition) -> Compiled:
    """Register a graph, replacing one of the same name and version. For tests and
    reloading.
    """
    compiled = compile(graph)
    graph.frozen = True
    _registered[graph.name, graph.version] = compiled
    return compiled


def get(name: str, version: str | None = None) -> Compiled:
    """Return a graph by name and version (None: the current one). Raises `UnknownThing`
    naming the registered versions or similar names.
    """
    if version is None:
        return current(name)
    if (name, version) not in _registered:
        versions = [compiled.version for compiled in _versions(name)]
        if not versions:
            raise _unknown(name)
        message = (
            f"graph {name} has no version {version} here; "
            f"registered: {', '.join(versions)}"
        )
        raise UnknownThing(
            message,
            graph=name,
            version=version,
            known=versions,
        )
    return _registered[name, version]


def current(name: str) -> Compiled:
    """Return the version for new runs: the one with `current=True`, else the last
    declared. Raises `UnknownThing`.
    """
    versions = _versions(name)
    if not versions:
        raise _unknown(name)
    # `register` allows only one version of a graph to say current=True.
    for compiled in versions:
        if compiled.graph.current:
            return compiled
    return versions[-1]


def find_graph(fingerprint: str) -> Compiled | None:
    """Return the graph that a run is pinned to, None if this process does not have it."""
    for compiled in _registered.values():
        if compiled.fingerprint == fingerprint:
            return compiled
    return None


def by_fingerprint(fingerprint: str) -> Compiled:
    """Return the graph that a run is pinned to. Raises `UnknownThing` if this process
    does not have it.
    """
    compiled = find_graph(fingerprint)
    if compiled is not None:
        return compiled
    what = f"no graph registered here has the fingerprint {fingerprint[:12]}…"
    raise UnknownThing(
        f"{what}; deploy the version that the run began with", fingerprint=fingerprint
    )


def migrations(name: str, *, apart_from: str = "") -> list[Migration]:
    """Return every step that the registered versions of a graph declare, except those
    of one version; the steps of the version declared last come first.
    """
    steps: list[Migration] = []
    # Among equally short ways, the first step listed wins: that of the newest version.
    for compiled in reversed(_versions(name)):
        if compiled.version != apart_from:
            steps += compiled.graph.migrations
    return steps


def all() -> list[Compiled]:
    """Return every registered graph, in order of registration."""
    return list(_registered.values())


def clear() -> None:
    """Forget all graphs. For tests."""
    _registered.clear()


def _unknown(name: str) -> UnknownThing:
    names = sorted({compiled.name for compiled in _registered.values()})
    near = difflib.get_close_matches(
        str(name),
        names,
        n=3,
    )
    hint = f"registered: {', '.join(names) or 'none'}"
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    message = (
        f"there is no graph {name}; {hint} "
        "Graphs stand in the graphs.py of an installed app"
    )
    return UnknownThing(
        message,
        graph=str(name),
        near=near,
    )
