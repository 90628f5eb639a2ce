"""In which order the tests run: those of half a minute first, shared among the
processes, so that none begins when the others have nothing left to do.
"""

import zlib
from itertools import groupby, islice
from typing import Any

LONGEST = (
    "tests/soak/",
    "tests/properties/",
    "tests/house/test_deployment.py",
    "tests/house/test_own_",
    "tests/house/test_selection.py",
    "tests/orchestrator/worker/test_restart.py",
    "tests/stories/test_old_database.py",
)
"""How the ids of such tests begin."""


def part_of(nodeid: str, parts: int) -> int:
    """Return the part, from 0, that a test belongs to: the same in each run, as long as
    the test keeps its name.
    """
    return zlib.crc32(nodeid.encode()) % parts


def spread(items: list[Any], processes: int) -> list[Any]:
    """The same items, each with a `nodeid`, for processes that take equal stretches of
    them: the files of the longest are at the beginning of the stretches, whole and in
    turn; the rest follows in its order.
    """
    longest = [item for item in items if item.nodeid.startswith(LONGEST)]
    rest = iter([item for item in items if not item.nodeid.startswith(LONGEST)])
    stretches: list[list[Any]] = [[] for _ in range(processes)]
    for number, (_, tests) in enumerate(
        groupby(longest, key=lambda item: item.nodeid.partition("::")[0])
    ):
        stretches[number % processes] += tests
    for stretch in stretches:
        stretch += islice(rest, max(0, -(-len(items) // processes) - len(stretch)))
    return [item for stretch in stretches for item in stretch] + list(rest)
