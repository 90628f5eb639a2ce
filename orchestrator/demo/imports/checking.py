"""Which rows of a file are right, and what the others should probably say. The import's first node calls it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from orchestrator.demo.imports import kinds, reader
from orchestrator.demo.imports.reader import CsvProblem, Delimiter, Record, Table
from orchestrator.demo.imports.values import Checked, Column, Correction

MOST = 1000
"""Corrections that one import may ask people for."""
STEP = 1000
"""Rows between two reports of progress."""
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Check:
    """A check under way: what unique columns have held so far, and what was found."""

    table: Table
    columns: Sequence[Column]
    places: list[tuple[int, Column]]
    seen: dict[str, dict[str, int]]
    found: list[Correction] = field(default_factory=list)
    bad: int = 0
    rows: int = 0

    def look_at(self, record: Record) -> None:
        """Check one row."""
        self.rows += 1
        problems = self._problems(record)
        if not problems:
            return
        self.bad += 1
        if len(self.found) < MOST:
            self.found.append(self._correction(record, problems))

    def _problems(self, record: Record) -> dict[str, str]:
        cells, width = record.cells, len(self.table.header)
        if len(cells) != width:
            return {"cells": f"{len(cells)} instead of {width}"}
        problems = {}
        for place, column in self.places:
            text = cells[place]
            wrong = column.problem(text) or (column.unique and self._repeated(column, text, record.row)) or ""
            if wrong:
                problems[column.name] = wrong
        return problems

    def _repeated(self, column: Column, text: str, row: int) -> str:
        first = self.seen[column.name].setdefault(text, row)
        return "" if first == row or not text else f"the same as in row {first}"

    def _correction(self, record: Record, problems: dict[str, str]) -> Correction:
        if len(record.cells) != len(self.table.header):
            before = by_name(self.table, record.cells)
            return Correction(row=record.row, before=before, problems=problems, kinds=self._kinds(before))
        cells = dict(zip(self.table.header, record.cells, strict=True))
        before = {name: shortened(cells[name]) for name in problems}
        after = self._proposals(cells, problems, record.row)
        return Correction(row=record.row, before=before, problems=problems, kinds=self._kinds(before), after=after)

    def _proposals(self, cells: Mapping[str, str], problems: dict[str, str], row: int) -> dict[str, str] | None:
        found = {}
        for _, column in self.places:
            if column.name in problems:
                meant = kinds.proposal(column.kind, cells[column.name])
                if meant is None or (column.unique and self._repeated(column, meant, row)):
                    return None
                found[column.name] = meant
        return found

    def _kinds(self, names: Mapping[str, str]) -> dict[str, kinds.Kind]:
        # What may be left empty cannot be told by its kind alone; the import checks it by its column.
        return {column.name: column.kind for column in self.columns if column.name in names and column.required}


def check(
    file: IO[bytes], *, name: str, columns: Sequence[Column], delimiter: Delimiter, report: Progress
) -> tuple[Checked, list[Correction]]:
    """Go through an open file once. `report(rows, of)` is called now and then.

    Raises `CsvProblem` for a file that is none, has other columns, no rows, or more than `MOST` bad ones.
    """
    table = reader.open_table(file, columns=columns, delimiter=delimiter)
    expected = max(reader.count_lines(file) - table.start_line, 1)
    places = [(table.header.index(column.name), column) for column in columns]
    run = Check(table, columns, places, {column.name: {} for column in columns})
    for record in reader.records(file, delimiter=table.delimiter, offset=table.start, row=1, line=table.start_line):
        run.look_at(record)
        if run.rows % STEP == 0:
            report(run.rows, max(expected, run.rows))
    report(run.rows, run.rows)
    _refuse_hopeless(run)
    size = file.seek(0, 2)
    start, line = table.start, table.start_line
    checked = Checked(
        name=name,
        size=size,
        delimiter=table.delimiter,
        header=table.header,
        rows=run.rows,
        bad=run.bad,
        start=start,
        start_line=line,
    )
    return checked, run.found


def _refuse_hopeless(run: Check) -> None:
    if not run.rows:
        raise CsvProblem(f"the file has no rows behind its header in line {run.table.start_line}: add some")
    if run.bad > MOST:
        first = run.found[0]
        column, wrong = next(iter(first.problems.items()))
        raise CsvProblem(
            f"{run.bad:,} of {run.rows:,} rows need a correction, more than the {MOST:,} that people can be asked for: "
            f"mend the file where it comes from. The first is row {first.row}, {column}: {wrong}"
        )


def by_name(table: Table, found: list[str]) -> dict[str, str]:
    """The cells of a row that has too few or too many, as far as they have a column; the rest stands in the last."""
    width = len(table.header)
    cells = [*found[: width - 1], table.delimiter.join(found[width - 1 :])]
    return {name: shortened(cell) for name, cell in zip(table.header, cells + [""] * width, strict=False)}


def shortened(text: str) -> str:
    """A cell as a correction shows it."""
    return text if len(text) <= kinds.LONGEST else text[: kinds.LONGEST] + "…"
