"""The statements of all connections while a block runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.crash.abort import Watch, watching


class _Sent(Watch):
    def __init__(self) -> None:
        self.statements: list[str] = []

    def before(self, link: BaseDatabaseWrapper, sql: str) -> None:
        self.statements.append(sql)


@contextmanager
def counted() -> Iterator[list[str]]:
    """Yield what is sent, in order."""
    sent = _Sent()
    with watching(sent):
        yield sent.statements


class Breaks(Watch):
    """The connection breaks once, before or after the first statement that holds these
    words.
    """

    def __init__(self, words: str, *, after: bool) -> None:
        self._words = words
        self._after = after
        self.broke = False

    def before(self, link: BaseDatabaseWrapper, sql: str) -> None:
        self._pass(sql, after=False)

    def after(self, link: BaseDatabaseWrapper, sql: str) -> None:
        self._pass(sql, after=True)

    def _pass(self, sql: str, *, after: bool) -> None:
        if self._words in sql and self._after == after and not self.broke:
            self.broke = True
            raise OperationalError("the connection was cut")
