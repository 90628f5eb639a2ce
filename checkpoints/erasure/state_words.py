"""Collects the values at paths of a run's state, from every state that it has had and
from values that were proposed and decided. They show whether a path exists at all, and
which texts to look for elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from checkpoints.core.state_paths import ABSENT, STATE, StatePath, value_at, value_in
from checkpoints.core.tombstone import is_tombstone
from checkpoints.db.pages import pages
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, PendingWrite, Run
from checkpoints.sealing import run_row, sealed_columns
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.values import canonical

PAGE = 20


def documents_of(run: Run) -> Iterator[Mapping[str, Any]]:
    """Yield the input, then the document at each checkpoint, in order."""
    # The input is kept with the run, and not in the documents of its checkpoints.
    yield {"input": run_row.input_of(run)}
    protection = protection_of(run)
    document = None
    last_id = None
    rows = Checkpoint.objects.filter(run=run.id)
    for page in pages(rows, "seq", size=PAGE):
        for row in page:
            data = reader.bytes_of(row, "change", protection)
            # Most documents are the one before with a change.
            if document is not None and last_id == row.parent:
                change = canonical.loads(data)
                document = reader.changed_channels(document, change)
            else:
                document = reader.document_at(row.id)
            last_id = row.id
            # A removal may have deleted the row since the page was read.
            if document is not None:
                yield document


def values_at(run: Run, paths: Sequence[StatePath]) -> dict[StatePath, list[Any]]:
    """Return the values that have been at each path, each value once; none for a path
    that was never there.
    """
    # By their canonical bytes, so that each value is there once.
    values_by_path: dict[StatePath, dict[bytes, Any]] = {}
    for path in paths:
        values_by_path[path] = {}
    for document in documents_of(run):
        for path, values in values_by_path.items():
            value = value_in(document, path)
            _add(values, value)

    # A value that was proposed may never have reached the state.
    channels = {path.channel for path in paths}
    for channel, proposed_value in _proposed_values(run.id, channels):
        for path, values in values_by_path.items():
            if not _is_in_channel(path, channel):
                continue
            # The first part of a path is the channel.
            value = value_at(proposed_value, path.parts[1:])
            _add(values, value)
    return {path: list(values.values()) for path, values in values_by_path.items()}


def _is_in_channel(path: StatePath, channel: str) -> bool:
    if path.channel != channel:
        return False
    return any(partition in STATE for partition in path.partitions)


def _add(values: dict[bytes, Any], value: Any) -> None:
    """Add a value, unless there is none, or it was erased before."""
    if value is ABSENT or is_tombstone(value):
        return
    key = canonical.encode(value)
    values.setdefault(key, value)


def _proposed_values(run: UUID, channels: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield channel and value of each revision of each write to these channels."""
    writes = PendingWrite.objects.filter(run=run, channel__in=channels)
    for page in pages(writes, "id"):
        for row in page:
            value = sealed_columns.read_value(row, "value")
            yield row.channel, value


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a value."""
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from texts_in(item)
        case list():
            for item in value:
                yield from texts_in(item)
