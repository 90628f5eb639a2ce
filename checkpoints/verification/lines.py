"""The lines of a run: their seals, that none is missing, and that each is what the log says of its beginning."""

from collections.abc import Iterator
from typing import Any

from checkpoints.models import RunEvent, RunLine
from checkpoints.verification.base import Fault, Subject
from checkpoints.verification.line_facts import facts_of


def departures(subject: Subject) -> Iterator[Fault]:
    """Every line that departed from another: lines are few, one a fork, replay or rewind."""
    run = subject.run
    rows = {row.number: row for row in RunLine.objects.filter(run=run.id)}
    first = 1 if run.origin_checkpoint is not None else 2
    if not rows and first > run.line:
        return  # it began where no other line is, and has gone nowhere since
    told, allowed = _told(subject)
    for number in range(first, run.line + 1):
        row = rows.pop(number, None)
        if row is None:
            yield subject.gone(RunLine, f"{run.id} {number}")
        elif (fault := subject.seal_of(row)) is not None:
            yield fault
        elif number in told and _facts(row, allowed.get(number, set())) != told[number]:
            yield subject.fault(row, "began otherwise than the log says")
    for row in rows.values():
        yield subject.fault(row, "is of a line that the run does not have")


def _facts(row: RunLine, allowed: set[str]) -> tuple[Any, ...]:
    return str(row.departure), row.departure_seq, sorted({*row.stops, *allowed}), sorted(row.patched), row.travel


def _told(subject: Subject) -> tuple[dict[int, tuple[Any, ...]], dict[int, set[str]]]:
    """What the log says of each line, and which nodes were allowed on it. Lines that cannot be read are named by the
    examiner of the log.
    """
    told: dict[int, tuple[Any, ...]] = {}
    allowed: dict[int, set[str]] = {}
    kinds = ["run_started", "line_begun", "effects_allowed"]
    for event in RunEvent.objects.filter(run=subject.run.id, type__in=kinds).order_by("seq"):
        facts = facts_of(subject, event)
        if facts is None:
            continue
        line = facts.get("line", 1)
        if event.type == "effects_allowed":
            allowed.setdefault(line, set()).update(facts["nodes"])
        elif "departure" in facts:
            told[line] = (
                facts["departure"],
                facts["departure_seq"],
                sorted(facts["stops"]),
                sorted(facts["patched"]),
                facts["travel"],
            )
    return told, allowed
