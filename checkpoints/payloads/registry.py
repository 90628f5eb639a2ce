"""The payload backends of this installation by their names: `database`, and what COUNTERSIGN["PAYLOADS"] names."""

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
_WORDS: dict[str, Any] = {"database": DatabasePayloads, "files": FilePayloads, "memory": MemoryPayloads}
_made: tuple[Conf, dict[str, PayloadBackend]] | None = None
_lent: dict[str, PayloadBackend] = {}


def backend(name: str) -> PayloadBackend:
    """The backend of that name. Raises `UnknownBackend`; `ImproperlyConfigured` where its setting is no backend."""
    if name == DATABASE:
        return _DATABASE
    made = backends()
    if name in _lent and name not in made:
        return _lent[name]
    if name not in made:
        raise UnknownBackend(
            f"the settings know no payload backend {name!r}; known: {', '.join(sorted(made))}", backend=name
        )
    return made[name]


def backends() -> dict[str, PayloadBackend]:
    """All of them by name. Made once for each set of settings."""
    global _made
    now = conf()
    if _made is None or _made[0] is not now:
        _made = (now, {DATABASE: _DATABASE, **{name: _built(name, given) for name, given in now.payloads.items()}})
    return _made[1]


def lend(backend: PayloadBackend, name: str) -> str:
    """Let this process know a backend that the settings do not name. Gives its name, by which rows will know it. Raises
    `ImproperlyConfigured` where the settings have another of that name.
    """
    known = backends().get(name)
    if known is not None and known is not backend:
        raise ImproperlyConfigured(f"the settings have another payload backend of the name {name!r}")
    _lent[name] = backend
    return name


def chosen(name: str | None) -> str:
    """The backend for new runs of a graph that asks for `name`; for None the default. Raises `UnknownBackend`."""
    name = name or conf().default_payloads
    backend(name)
    return name


def _built(name: str, given: Mapping[str, Any]) -> PayloadBackend:
    options = dict(given.get("options") or {})
    try:
        if given["backend"] == "sealed":
            return SealedPayloads(_built(name, options["of"]))
        kind = _WORDS.get(given["backend"]) or import_string(given["backend"])
        made: PayloadBackend = kind(**options)
    except (ImportError, TypeError, KeyError, ValueError, LookupError) as error:
        raise ImproperlyConfigured(f"COUNTERSIGN['PAYLOADS'][{name!r}]: {error}") from error
    missing = [what for what in ("in_row", "put", "get", "delete", "names") if not hasattr(made, what)]
    if missing:
        raise ImproperlyConfigured(f"COUNTERSIGN['PAYLOADS'][{name!r}] is no payload backend: no {', '.join(missing)}")
    return made
