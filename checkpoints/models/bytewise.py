"""Texts in the order of their bytes, which is that of Python. Databases order texts by
the rules of some language else.
"""

from typing import Any

from django.db.models import CharField, Func


class Bytewise(Func):
    """A text that is compared and ordered by its bytes."""

    template = "%(expressions)s COLLATE %(collation)s"
    output_field = CharField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, collation="BINARY", **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, collation='"C"', **context)
