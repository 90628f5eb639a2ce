"""`python -m tests.house.collection DATABASE` prints as JSON which tests each command collects on that database.

In one process, because most of a collection is importing the tests; per database, because what a module parametrises
may depend on it.
"""

import contextlib
import io
import json
import sys

import pytest

from tests.__main__ import BROWSER, passes


class Collected:
    """A plugin that keeps the ids of the tests."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        # Without parameters: a second collection in one process may write the same value in another way.
        self.ids = [item.nodeid.partition("[")[0] for item in session.items]


def collected(database: str, *options: str) -> list[str]:
    """The ids of what pytest would run with these options. Raises `RuntimeError` where it cannot collect them."""
    found = Collected()
    words = ["--collect-only", "-q", f"--database={database}", *options, "-n0"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = pytest.main(words, plugins=[found])
    if code:
        raise RuntimeError(said.getvalue()[-3000:])
    return found.ids


def main(database: str) -> None:
    """Print the ids of everything, of the two commands, and of the browser's pass."""
    ids = {
        "everything": collected(database),
        "make test": collected(database, *passes(sweeps=False)[database]),
        "make sweep-short": collected(database, *passes(sweeps=True)[database]),
        "in a browser": collected(database, BROWSER),
    }
    print(json.dumps(ids))


if __name__ == "__main__":
    main(sys.argv[1])
