"""The payload backends of this installation by their names: `database`, and those of
COUNTERSIGN["PAYLOADS"].
"""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from checkpoints.conf import Conf, conf
from checkpoints.payloads.base import PayloadBackend
from checkpoints.payloads.database import DatabasePayloads
from checkpoints.payloads.files import FilePayloads
from checkpoints.payloads.memory import MemoryPayloads
from checkpoints.payloads.sealed import SealedPayloads
from orchestrator.engine.errors import UnknownBackend

DATABASE = "database"
_DATABASE = DatabasePayloads()
_WORDS: dict[str, Any] = {
    "database": DatabasePayloads,
    "files": FilePayloads,
    "memory": MemoryPayloads,
}
_configured: tuple[Conf, dict[str, PayloadBackend]] | None = None
"""The backends, with the settings that they were built from."""
_lent: dict[str, PayloadBackend] = {}


def backend(name: str) -> PayloadBackend:
    """Return the backend of that name. Raises `UnknownBackend`; `ImproperlyConfigured`
    if its setting is no backend.
    """
    if name == DATABASE:
        return _DATABASE
    configured = backends()
    if name in configured:
        return configured[name]
    if name in _lent:
        return _lent[name]
    raise UnknownBackend(
        f"the settings know no payload backend {name!r}; known: "
        f"{', '.join(sorted(configured))}",
        backend=name,
    )


def backends() -> dict[str, PayloadBackend]:
    """Return all backends by name. They are built once for each set of settings."""
    global _configured
    now = conf()
    if _configured is None or _configured[0] is not now:
        by_name: dict[str, PayloadBackend] = {DATABASE: _DATABASE}
        for name, entry in now.payloads.items():
            by_name[name] = _build(name, entry)
        # In one assignment: another thread must not meet backends of other settings.
        _configured = (now, by_name)
    return _configured[1]


def lend(backend: PayloadBackend, name: str) -> str:
    """Register in this process a backend that the settings do not name. Return its
    name, which rows will have. Raises `ImproperlyConfigured` if the settings have
    another one of that name.
    """
    configured = backends().get(name)
    # A name in a row must mean one place, or its bytes would be looked for in the
    # other.
    if configured is not None and configured is not backend:
        raise ImproperlyConfigured(
            f"the settings have another payload backend of the name {name!r}"
        )
    _lent[name] = backend
    return name


def chosen(name: str | None) -> str:
    """Return the backend for new runs of a graph that declares `name`; for None the
    default. Raises `UnknownBackend`.
    """
    name = name or conf().default_payloads
    # An unknown one is refused here, before the run has its first checkpoint to save.
    backend(name)
    return name


def _build(name: str, entry: Mapping[str, Any]) -> PayloadBackend:
    options = dict(entry.get("options") or {})
    try:
        if entry["backend"] == "sealed":
            return SealedPayloads(_build(name, options["of"]))
        kind = _WORDS.get(entry["backend"]) or import_string(entry["backend"])
        backend: PayloadBackend = kind(**options)
    except (ImportError, TypeError, KeyError, ValueError, LookupError) as error:
        raise ImproperlyConfigured(
            f"COUNTERSIGN['PAYLOADS'][{name!r}]: {error}"
        ) from error
    # Otherwise a backend that lacks a method would fail only when a run commits.
    missing = [
        attribute
        for attribute in ("in_row", "put", "get", "delete", "names")
        if not hasattr(backend, attribute)
    ]
    if missing:
        raise ImproperlyConfigured(
            f"COUNTERSIGN['PAYLOADS'][{name!r}] is no payload backend: "
            f"no {', '.join(missing)}"
        )
    return backend
