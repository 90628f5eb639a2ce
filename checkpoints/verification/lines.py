"""Examines the lines of a run: their seals, that none is missing, and that each began
as the log says.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from checkpoints.models import RunEvent, RunLine
from checkpoints.verification.base import Fault, Subject
from checkpoints.verification.line_facts import facts_of

_Beginning = tuple[Any, ...]
"""Departure, its number, the stops, the patched channels and the kind of travel with
which a line began.
"""


@dataclass(slots=True)
class _LoggedLines:
    """The log's entries about the lines of a run.

    `beginnings`: how each line began, by its number. `allowed`: the nodes that were
    allowed to start later, by the number of the line; its row no longer has them among
    its stops.
    """

    beginnings: dict[int, _Beginning] = field(default_factory=dict)
    allowed: dict[int, set[str]] = field(default_factory=dict)


def departures(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of every line that departed from another. Lines are few: one for
    a fork, replay or rewind.
    """
    run = subject.run
    rows = {row.number: row for row in RunLine.objects.filter(run=run.id)}
    # The first line of a run departs from another only if the run has an origin.
    first = 1 if run.origin_checkpoint is not None else 2
    # A run that began by itself and was never rewound has no such line.
    may_have_departed = run.line >= first
    if not rows and not may_have_departed:
        return
    logged = _logged_lines(subject)
    for number in range(first, run.line + 1):
        row = rows.pop(number, None)
        if row is None:
            yield subject.missing_row(RunLine, f"{run.id} {number}")
            continue
        fault = subject.seal_of(row) or _other_beginning(subject, row, logged)
        if fault is not None:
            yield fault
    for row in rows.values():
        yield subject.fault(row, "is of a line that the run does not have")


def _other_beginning(
    subject: Subject, row: RunLine, logged: _LoggedLines
) -> Fault | None:
    # Without an entry in the log there is nothing to compare with: it was removed, or
    # it cannot be read, which the examiner of the log names.
    if row.number not in logged.beginnings:
        return None
    allowed = logged.allowed.get(row.number, set())
    beginning = (
        str(row.departure),
        row.departure_seq,
        sorted({*row.stops, *allowed}),
        sorted(row.patched),
        row.travel,
    )
    if beginning == logged.beginnings[row.number]:
        return None
    return subject.fault(row, "began otherwise than the log says")


def _logged_lines(subject: Subject) -> _LoggedLines:
    """Return what the log says of each line. Leaves out events that cannot be read."""
    logged = _LoggedLines()
    types = ["run_started", "line_begun", "effects_allowed"]
    events = RunEvent.objects.filter(run=subject.run.id, type__in=types)
    for event in events.order_by("seq"):
        facts = facts_of(subject, event)
        if facts is None:
            continue
        line = facts.get("line", 1)
        if event.type == "effects_allowed":
            logged.allowed.setdefault(line, set()).update(facts["nodes"])
        elif "departure" in facts:
            logged.beginnings[line] = (
                facts["departure"],
                facts["departure_seq"],
                sorted(facts["stops"]),
                sorted(facts["patched"]),
                facts["travel"],
            )
    return logged
