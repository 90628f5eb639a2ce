"""`python -m tests.house.collection DATABASE` prints as JSON which tests each command runs on that database.

In a process of its own: the tests of one database are not those of the other, and a process has one.
"""

import contextlib
import io
import json
import sys
from collections.abc import Iterable

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


def chosen(everything: list[str], options: Iterable[str]) -> list[str]:
    """The ids that pytest runs of these with the paths and the `--ignore=` among its options."""
    ignored = [word.removeprefix("--ignore=") for word in options if word.startswith("--ignore=")]
    named = [word for word in options if word.startswith("tests/")]
    return [one for one in everything if (not named or _within(one, named)) and not _within(one, ignored)]


def _within(one: str, paths: Iterable[str]) -> bool:
    file = one.partition("::")[0]
    return any(file == path or file.startswith(f"{path}/") for path in paths)


def main(database: str) -> None:
    """Print the ids of everything, of the two commands, and of the browser's pass."""
    everything, some = collected(database), ("tests/house", "--ignore=tests/house/test_wheel.py")
    assert collected(database, *some) == chosen(everything, some), "pytest reads its options in another way"
    ids = {
        "everything": everything,
        "make test": chosen(everything, passes(sweeps=False)[database]),
        "make sweep-short": chosen(everything, passes(sweeps=True)[database]),
        "in a browser": chosen(everything, [BROWSER]),
    }
    print(json.dumps(ids))


if __name__ == "__main__":
    main(sys.argv[1])
