"""What became of each path of a run, by a slow model: every state is read whole, and
neighbours are compared.
"""

from collections.abc import Iterator
from typing import Any

from checkpoints import timeline
from checkpoints.core.diff import Path, written
from checkpoints.models import Checkpoint, Run
from orchestrator.engine.values import canonical

MISSING = object()


def rows_of(run: Run) -> list[Checkpoint]:
    """The run's kept checkpoints, oldest first, of a run with one line."""
    return list(Checkpoint.objects.filter(run=run.id, kept=True).order_by("seq"))


def states_of(run: Run) -> list[tuple[int, dict[str, Any]]]:
    """Each seq with the state there, without the input."""
    states = [(row.seq, timeline.state_at(row.id)) for row in rows_of(run)]
    return [
        (seq, {name: value for name, value in state.items() if name != "input"})
        for seq, state in states
    ]


def all_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every path at which there is something, containers too."""
    if path:
        yield path
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner_value in inner:
        yield from all_paths(inner_value, (*path, key))


def changed_at(
    states: list[tuple[int, dict[str, Any]]], before: dict[str, Any] | None = None
) -> dict[str, list[int]]:
    """Each path, with its partition, with the seqs at which it differs from the state
    before.
    """
    known = {path for _, state in states for path in all_paths(state) if len(path) > 1}
    seqs: dict[str, list[int]] = {written(path): [] for path in known}
    last = before or {}
    for seq, state in states:
        for path in known:
            if _bytes(_at(last, path)) != _bytes(_at(state, path)):
                seqs[written(path)].append(seq)
        last = state
    return seqs


def _at(value: Any, path: Path) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return value


def _bytes(value: Any) -> bytes:
    return b"missing" if value is MISSING else canonical.encode([value])
