"""The common part of the suite's rules: how one is broken, and how all are run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Broken(AssertionError):
    """Something does not keep its contract. The message begins with the rule that it
    breaks.
    """


def must(holds: object, words: str) -> None:
    """Raise `Broken` with these words where `holds` is false."""
    if not holds:
        raise Broken(words)


@contextmanager
def refusing(*kinds: type[BaseException], words: str) -> Iterator[None]:
    """Raise `Broken` unless the block raises one of these."""
    try:
        yield
    except kinds:
        return
    except Exception as error:
        raise Broken(
            f"{words}: raises {type(error).__name__} instead of {kinds[0].__name__}"
        ) from error
    raise Broken(f"{words}: raises nothing")


def run(rules: Sequence[Callable[[T], None]], subject: Callable[[], T]) -> None:
    """Check each rule on a new subject. Raises `Broken` naming the first rule that is
    broken.
    """
    for rule in rules:
        try:
            rule(subject())
        except Broken as error:
            raise Broken(f"{rule.__name__}: {error}") from error
        # Also what no rule expects, or the caller would not see which rule it broke.
        except Exception as error:
            raise Broken(f"{rule.__name__}: {type(error).__name__}: {error}") from error
