"""Lines of a run's log about what came of writes that people approved, as whoever acted
on them reported it. Pure.

The column `task` of such a line has what lists read of it, because they open no payload.
"""

from typing import NamedTuple
from uuid import UUID

REPORTED = "outcome_reported"
"""The type of these lines."""
DONE = "done"
FAILED = "failed"
UNKNOWN = "unknown"
RESULTS = (DONE, FAILED, UNKNOWN)


class ReportedOn(NamedTuple):
    """The write of a request that a line is about, and its result."""

    request: UUID
    write: UUID
    result: str

    def __str__(self) -> str:
        return f"{self.request}/{self.write}/{self.result}"

    @classmethod
    def parse(cls, text: str) -> "ReportedOn":
        """Return what a column says. Raises `ValueError`."""
        request, write, result = text.split("/")
        if result not in RESULTS:
            raise ValueError(f"{result!r} is no result")
        return cls(UUID(request), UUID(write), result)
