"""What stands at paths of a run's state, in every state that it has had, and in what was proposed and decided: whether
a path is there at all, and the texts by which it is found elsewhere.
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
from orchestrator.engine import canonical

PAGE = 20


def documents_of(run: Run) -> Iterator[Mapping[str, Any]]:
    """The input, then the document at each checkpoint, in order."""
    yield {"input": run_row.input_of(run)}
    last, document = None, None
    protection = protection_of(run)
    for page in pages(Checkpoint.objects.filter(run=run.id), "seq", size=PAGE):
        for row in page:
            change = reader.bytes_of(row, "change", protection)
            if document is not None and last == row.parent:
                document = reader.changed_channels(document, canonical.loads(change))
            else:
                document = reader.document_at(row.id)
            last = row.id
            if document is not None:
                yield document


def values_at(run: Run, paths: Sequence[StatePath]) -> dict[StatePath, list[Any]]:
    """What has stood at each path, each value once; no values for a path that was never there."""
    found: dict[StatePath, dict[bytes, Any]] = {path: {} for path in paths}
    for document in documents_of(run):
        for path in paths:
            _note(found[path], value_in(document, path))
    for channel, value in _proposed(run.id, {path.channel for path in paths}):
        for path in paths:
            if path.channel == channel and any(part in STATE for part in path.partitions):
                _note(found[path], value_at(value, path.parts[1:]))
    return {path: list(values.values()) for path, values in found.items()}


def _note(values: dict[bytes, Any], value: Any) -> None:
    if value is not ABSENT and not is_tombstone(value):
        values.setdefault(canonical.encode(value), value)


def _proposed(run: UUID, channels: set[str]) -> Iterator[tuple[str, Any]]:
    for page in pages(PendingWrite.objects.filter(run=run, channel__in=channels), "id"):
        for row in page:
            yield row.channel, sealed_columns.read_value(row, "value")


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)
