"""What the rules of the suite have in common: how one is broken, and how all are run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Broken(AssertionError):
    """Something does not keep its contract. The message begins with the rule that it breaks."""


def must(holds: object, words: str) -> None:
    """Raise `Broken` with these words where `holds` is false."""
    if not holds:
        raise Broken(words)


@contextmanager
def refusing(*kinds: type[BaseException], words: str) -> Iterator[None]:
    """What stands in the block must raise one of these."""
    try:
        yield
    except kinds:
        return
    except Exception as error:
        raise Broken(f"{words}: raises {type(error).__name__} instead of {kinds[0].__name__}") from error
    raise Broken(f"{words}: raises nothing")


def run(rules: Sequence[Callable[[T], None]], subject: Callable[[], T]) -> None:
    """Hold something made anew to each rule. Raises `Broken` naming the first rule that it breaks."""
    for rule in rules:
        try:
            rule(subject())
        except Broken as error:
            raise Broken(f"{rule.__name__}: {error}") from error
        except Exception as error:
            raise Broken(f"{rule.__name__}: {type(error).__name__}: {error}") from error
