"""The uploaded files that a run's input names: whether their bytes are those that it was started with."""

from collections.abc import Iterator

from checkpoints import uploads
from checkpoints.models import Upload
from checkpoints.sealing import sealed_columns
from checkpoints.verification.base import Fault, Subject
from orchestrator.engine.errors import CountersignError, PayloadLost, PayloadsUnavailable, UnknownThing


def uploaded(subject: Subject) -> Iterator[Fault]:
    """Each file is read chunk by chunk, whatever its size."""
    try:
        given = sealed_columns.read_value(subject.run, "input")
    except CountersignError:
        return  # which the examiner of the run's row has named
    for ref in uploads.refs_in(given):
        what = f"{Upload._meta.db_table} {ref['file']}"
        try:
            uploads.verify_ref(ref)
        except OSError as error:
            yield _fault(subject, what, str(error), PayloadsUnavailable.code_of_class)
        except CountersignError as error:
            gone = isinstance(error, UnknownThing)
            yield _fault(subject, what, error.message, PayloadLost.code_of_class if gone else error.code)


def _fault(subject: Subject, what: str, reason: str, code: str) -> Fault:
    return Fault(str(subject.run.id), "", Upload._meta.db_table, what, f"{what}: {reason}", code)
