"""Columns, corrections and reports of an import, as values: what stands in its input
and in its channels.
"""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.demo.imports import kinds
from orchestrator.demo.imports.kinds import Kind


class Strict(BaseModel):
    """Unknown fields are refused: a misspelt one in an edit must not vanish."""

    model_config = ConfigDict(extra="forbid")


class Column(Strict):
    """The rules for one column of the file."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    kind: Kind = "text"
    required: bool = True
    unique: bool = False

    def problem(self, text: str) -> str:
        """Return what is wrong with a cell; empty if nothing is."""
        if not text.strip():
            return "empty" if self.required or text else ""
        return kinds.problem(self.kind, text)


COLUMNS = (
    Column(name="id", unique=True),
    Column(name="email", kind="email"),
    Column(name="amount", kind="number"),
    Column(name="date", kind="date"),
    Column(name="country", kind="country"),
)


class Correction(Strict):
    """The correction of one bad row. `after` None means that the row is left out.

    `row` is as a spreadsheet counts, the header being row 1. `before`, `problems` and
    `kinds` are by column, and so is `after`, which a reviewer may edit: it is checked
    like the file itself.
    """

    row: int = Field(ge=2)
    before: dict[str, str]
    problems: dict[str, str]
    kinds: dict[str, Kind] = {}
    after: dict[str, str] | None = None

    @model_validator(mode="after")
    def _after_is_right(self) -> Self:
        if self.after is None:
            return self
        if set(self.after) != set(self.before):
            raise ValueError(
                f"after must say what becomes of {', '.join(self.before)}, and of nothing else"
            )
        for column, text in self.after.items():
            if column in self.kinds and (
                wrong := Column(name=column, kind=self.kinds[column]).problem(text)
            ):
                raise ValueError(f"after.{column}: {wrong}")
        return self

    @property
    def label(self) -> str:
        """Return what the reviewer reads first."""
        columns = ", ".join(self.problems)
        return f"Row {self.row}: {columns}" + (
            "" if self.after else " (no correction known, leave the row out)"
        )


class Checked(Strict):
    """The file as a whole. `rows` counts data rows, `bad` those to be corrected; at
    byte `start` they begin.
    """

    name: str
    size: int
    delimiter: str
    header: list[str]
    rows: int
    bad: int
    start: int
    start_line: int


class Cursor(Strict):
    """How far the import has come: the byte, the row and the line at which it goes on."""

    offset: int
    row: int
    line: int
    imported: int = 0


class LeftOut(Strict):
    """A row that is not in the table, and why."""

    row: int
    why: str


class Report(Strict):
    """How the import ended. `imported` counts all rows of it that are in the table, the
    corrected ones among them.
    """

    file: str
    rows: int
    imported: int
    corrected: int
    left_out: list[LeftOut]
