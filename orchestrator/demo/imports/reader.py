"""Reading a CSV file row by row, from its beginning or from a byte where an earlier
read stopped.

Every fault of the file as a whole is a `CsvProblem` that names the line and the cure.
Memory use does not grow with the file. Rows are numbered as a spreadsheet does: the
header is row 1; a line is a line of the file, counted from 1.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO, Literal

from orchestrator.demo.imports.values import Column

Delimiter = Literal["auto", ",", ";", "tab", "|"]
_CANDIDATES = (",", ";", "\t", "|")
_LONGEST_LINE = 1024 * 1024
_AS_CSV = "save it as CSV with the encoding UTF-8"


class CsvProblem(ValueError):
    """A file that cannot be imported; the message names line and cure."""


@dataclass(frozen=True, slots=True)
class Record:
    """One row. `end` is the byte after it, `line` its last line."""

    row: int
    line: int
    cells: list[str]
    end: int


@dataclass(frozen=True, slots=True)
class Table:
    """The header of a file and where its rows begin. `header` has the schema's names
    for the columns that it knows.
    """

    delimiter: str
    header: list[str]
    start: int
    start_line: int


class _Lines:
    """The lines of an open file as text, counting bytes: csv.reader takes one whenever
    it needs one.
    """

    def __init__(self, file: IO[bytes], *, offset: int, line: int) -> None:
        file.seek(offset)
        self._file = file
        self.offset = offset
        self.line = line

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        # A file without line breaks must not be read into memory as one line.
        raw = self._file.readline(_LONGEST_LINE + 1)
        if not raw:
            raise StopIteration
        self.line += 1
        self.offset += len(raw)
        if len(raw) > _LONGEST_LINE:
            raise CsvProblem(
                f"line {self.line} is longer than 1 MiB: "
                f"this is no CSV, or has no line breaks; {_AS_CSV}"
            )
        return _decoded(raw, line=self.line)


def _decoded(raw: bytes, *, line: int) -> str:
    if b"\x00" in raw:
        raise CsvProblem(f"line {line} holds binary data: {_AS_CSV}")
    try:
        # A byte order mark may stand before the first line alone.
        return raw.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte {raw[error.start]:#04x} at position {error.start + 1}"
        raise CsvProblem(f"line {line} is not UTF-8 ({byte}): {_AS_CSV}") from None


def open_table(
    file: IO[bytes], *, columns: Sequence[Column], delimiter: Delimiter
) -> Table:
    """Read the header of an open file. Raises `CsvProblem`."""
    _refuse_other_formats(file)
    lines = _Lines(file, offset=0, line=0)
    first = next(lines, "")
    if not first.strip():
        raise CsvProblem(f"line 1 is empty: it must name the columns {_names(columns)}")
    mark: str = delimiter
    if delimiter == "auto":
        mark = _delimiter(first, columns)
    elif delimiter == "tab":
        mark = "\t"
    cells = _first_row(lines, first, mark)
    header = _header(cells, columns)
    return Table(mark, header, lines.offset, lines.line)


def _refuse_other_formats(file: IO[bytes]) -> None:
    file.seek(0)
    # By their first bytes, or the refusal would blame the encoding.
    head = file.read(8)
    if not head:
        raise CsvProblem(
            "the file is empty: line 1 must name the columns, the rows follow"
        )
    if head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise CsvProblem(
            "line 1: this is a spreadsheet or an archive, no CSV: "
            f"open it in its program and {_AS_CSV}"
        )
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CsvProblem(f"line 1: the file is UTF-16: {_AS_CSV}")


def _first_row(lines: _Lines, first: str, mark: str) -> list[str]:
    try:
        return next(csv.reader(chain([first], lines), delimiter=mark, strict=True))
    except csv.Error as error:
        raise CsvProblem(
            f"line {lines.line}: the header cannot be read ({error}): mend its quotes"
        ) from None


def _delimiter(first: str, columns: Sequence[Column]) -> str:
    """Return the mark that yields most of the expected columns, then most columns at
    all.
    """
    expected = {column.name.casefold() for column in columns}

    def score(mark: str) -> tuple[int, int]:
        names = [name.strip(' "').casefold() for name in first.strip().split(mark)]
        return len(expected.intersection(names)), len(names)

    return max(_CANDIDATES, key=score)


def _header(cells: list[str], columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns, as the import spells them. Raises
    `CsvProblem`.
    """
    spelling = {column.name.casefold(): column.name for column in columns}
    header = [spelling.get(cell.strip().casefold(), cell.strip()) for cell in cells]
    _require_columns(header, columns)
    unnamed = [str(number) for number, name in enumerate(header, 1) if not name]
    if unnamed:
        raise CsvProblem(
            f"line 1: column {', '.join(unnamed)} has no name: name it or remove it"
        )
    doubled = sorted({name for name in header if header.count(name) > 1})
    if doubled:
        raise CsvProblem(
            f"line 1 names {', '.join(doubled)} twice:"
            " every column needs a name of its own"
        )
    return header


def _require_columns(header: Sequence[str], columns: Sequence[Column]) -> None:
    missing = [column.name for column in columns if column.name not in header]
    if missing:
        first_line = ", ".join(header)[:200]
        raise CsvProblem(
            f"line 1 must name the columns {_names(columns)}, but"
            f" {', '.join(missing)} is missing: it says {first_line!r}. "
            "Add or mend the header line, or describe your own columns"
            " when you start the import"
        )


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(column.name for column in columns)


def records(
    file: IO[bytes], *, delimiter: str, offset: int, row: int, line: int
) -> Iterator[Record]:
    """Yield the rows from byte `offset` on, without empty lines; the first has the
    number `row` + 1. Raises `CsvProblem`.
    """
    lines = _Lines(file, offset=offset, line=line)
    begins = line + 1
    try:
        for number, cells in enumerate(
            csv.reader(lines, delimiter=delimiter, strict=True), row + 1
        ):
            if cells:
                yield Record(number, lines.line, cells, lines.offset)
            begins = lines.line + 1
    except csv.Error as error:
        reason = str(error)
        if "unexpected end" in reason:
            reason = "a quote is opened and never closed"
        raise CsvProblem(
            f"row beginning in line {begins} cannot be read ({reason}): mend its quotes"
        ) from None


def count_lines(file: IO[bytes]) -> int:
    """Return how many lines a file has; for showing progress."""
    file.seek(0)
    count = 0
    while chunk := file.read(_LONGEST_LINE):
        count += chunk.count(b"\n")
    return count
