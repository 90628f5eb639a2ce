"""Examines the uploaded files that a run's input names: whether their bytes are those
that it was started with.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from checkpoints import uploads
from checkpoints.models import Upload
from checkpoints.sealing import sealed_columns
from checkpoints.verification.base import Fault, Subject
from orchestrator.engine.errors import (
    CountersignError,
    InvalidValue,
    PayloadLost,
    PayloadsUnavailable,
    TamperedUpload,
    UnknownThing,
)


def files_named(subject: Subject) -> list[dict[str, Any]]:
    """Return the references to files in a run's input; none if it cannot be read, which
    the examiner of the run's row names, or if the run was imported: its files are in
    the installation that it comes from.
    """
    if subject.run.imported:
        return []
    try:
        return uploads.refs_in(sealed_columns.read_value(subject.run, "input"))
    except CountersignError:
        return []


def uploaded(subject: Subject, files: Iterable[dict[str, Any]]) -> Iterator[Fault]:
    """Yield the faults of these files, each read chunk by chunk, whatever its size."""
    for ref in files:
        what = f"{Upload._meta.db_table} {ref['file']}"
        try:
            uploads.verify_ref(ref)
        except OSError as error:
            yield _fault(subject, what, str(error), PayloadsUnavailable.code_of_class)
        except CountersignError as error:
            code = error.code
            # A file that an input names existed once, so what is unknown was lost.
            if isinstance(error, UnknownThing):
                code = PayloadLost.code_of_class
            # A start refuses a reference that states no size or no hash.
            elif isinstance(error, InvalidValue):
                code = TamperedUpload.code_of_class
            yield _fault(subject, what, error.message, code)


def _fault(subject: Subject, what: str, reason: str, code: str) -> Fault:
    return Fault(
        str(subject.run.id), "", Upload._meta.db_table, what, f"{what}: {reason}", code
    )
