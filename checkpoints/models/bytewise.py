"""Texts in the order of their bytes, which is that of Python. Databases order texts by
the rules of some language else.
"""

from typing import Any

from django.db.models import CharField, Func

COLLATIONS = {
    "sqlite": "BINARY",
    "postgresql": '"C"',
}
"""The order of bytes, as each database calls it."""


class Bytewise(Func):
    """A text that is compared and ordered by its bytes."""

    template = "%(expressions)s COLLATE %(collation)s"
    output_field = CharField()

    def as_sql(  # type: ignore[override]
        self,
        compiler: Any,
        connection: Any,
        **context: Any,
    ) -> Any:
        """Return it as SQL, with the name of that order in this database."""
        context["collation"] = COLLATIONS[connection.vendor]
        return super().as_sql(
            compiler,
            connection,
            **context,
        )
