"""The run's own row: its seal, and the payloads in it."""

from collections.abc import Iterator

from checkpoints import run_seal
from checkpoints.models import Run
from checkpoints.verification.base import Fault, Subject
from orchestrator.engine.errors import CountersignError


def run_row(subject: Subject) -> Iterator[Fault]:
    """The seal of the row, and the payloads that the seal leaves out."""
    run = subject.run
    try:
        run_seal.verify_row(run)
    except CountersignError as error:
        yield subject.refused(run, error)
        return
    for column in Run.PAYLOADS:
        try:
            data = subject.payload(run, column)
        except CountersignError as error:
            yield subject.refused(run, error)
            continue
        if column == "input" and subject.cover.digest(data) != run.input_hash:
            yield subject.fault(run, "has another input than it was started with")
