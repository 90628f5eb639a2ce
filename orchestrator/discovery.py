"""Finding graphs: each installed app's `graphs.py` is imported, and every module-level Graph in it registered."""

from importlib import import_module
from importlib.util import find_spec

from django.apps import apps
from django.db import IntegrityError, transaction

from checkpoints.db.clock import db_now
from checkpoints.models import GraphVersion
from orchestrator.engine import Graph, registry
from orchestrator.engine.compile import Compiled

_noted: set[str] = set()


def discover() -> list[Compiled]:
    """Register the graphs of all installed apps, once, when Django is ready. Raises `InvalidGraph` naming the graph."""
    found = []
    for config in apps.get_app_configs():
        name = f"{config.name}.graphs"
        if find_spec(name) is not None:
            graphs = [value for value in vars(import_module(name)).values() if isinstance(value, Graph)]
            found += [registry.register(graph) for graph in dict.fromkeys(graphs)]
    return found


def note_versions() -> None:
    """Write down each registered version that was never seen before. Called when a worker starts."""
    for compiled in registry.all():
        note_version(compiled)


def note_version(compiled: Compiled) -> None:
    """Write down a version, once a process."""
    if compiled.fingerprint in _noted:
        return
    row = {"name": compiled.name, "version": compiled.version, "fingerprint": compiled.fingerprint}
    current = {"current": registry.current(compiled.name) is compiled}
    try:
        with transaction.atomic():
            new = {**current, "first_seen_at": db_now()}
            GraphVersion.objects.update_or_create(**row, defaults=current, create_defaults=new)
    except IntegrityError:
        pass  # Another process wrote the same row first.
    # Only once it is sure to stay: a caller's rollback takes the row with it.
    transaction.on_commit(lambda: _noted.add(compiled.fingerprint))
