"""The longest tests begin first, in each process, and none is lost."""

from dataclasses import dataclass

from tests.support.order import spread


@dataclass
class Item:
    nodeid: str


def test_the_files_of_the_longest_are_shared_and_everything_else_keeps_its_order() -> (
    None
):
    short = [Item(f"tests/a/test_{n}.py::test") for n in range(8)]
    long = [
        Item(f"tests/soak/test_{file}.py::test_{n}")
        for file in ("x", "y")
        for n in (1, 2)
    ]
    shares = spread([*short, *long], 2)
    assert shares == [*long[:2], *short[:4], *long[2:], *short[4:]]


def test_one_process_has_the_longest_first_too() -> None:
    items = [Item("tests/a/test_a.py::test"), Item("tests/soak/test_soak.py::test")]
    assert spread(items, 1) == items[::-1]


def test_more_of_the_longest_than_a_stretch_holds_are_all_there() -> None:
    long = [Item(f"tests/soak/test_soak.py::test_{n}") for n in range(5)]
    short = [Item("tests/a/test_a.py::test")]
    assert spread([*short, *long], 3) == [*long, *short]
