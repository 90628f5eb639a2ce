"""The statements of all connections while a block runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db.backends.base.base import BaseDatabaseWrapper

from tests.crash.abort import Watch, watching


class _Sent(Watch):
    def __init__(self) -> None:
        self.statements: list[str] = []

    def before(self, link: BaseDatabaseWrapper, sql: str) -> None:
        self.statements.append(sql)


@contextmanager
def counted() -> Iterator[list[str]]:
    """What is sent, in order."""
    sent = _Sent()
    with watching(sent):
        yield sent.statements
