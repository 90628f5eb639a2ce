"""The check of a file's rows, with a proposed correction for each bad one. The import's
first node calls it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from orchestrator.demo.imports import kinds, reader
from orchestrator.demo.imports.reader import CsvProblem, Delimiter, Record, Table
from orchestrator.demo.imports.values import Checked, Column, Correction

MOST = 1000
"""The most corrections that one import may ask people for."""
STEP = 1000
"""The number of rows between two reports of progress."""
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Check:
    """A check under way: the values of unique columns so far, and the corrections."""

    table: Table
    columns: Sequence[Column]
    places: list[tuple[int, Column]]
    seen: dict[str, dict[str, int]]
    corrections: list[Correction] = field(default_factory=list)
    bad: int = 0
    rows: int = 0

    def look_at(self, record: Record) -> None:
        """Check one row."""
        self.rows += 1
        problems = self._problems(record)
        if not problems:
            return
        self.bad += 1
        if len(self.corrections) < MOST:
            self.corrections.append(self._correction(record, problems))

    def _problems(self, record: Record) -> dict[str, str]:
        cells = record.cells
        width = len(self.table.header)
        if len(cells) != width:
            return {"cells": f"{len(cells)} instead of {width}"}
        problems = {}
        for place, column in self.places:
            text = cells[place]
            problem = column.problem(text)
            if not problem and column.unique:
                problem = self._repeated(column, text, record.row)
            if problem:
                problems[column.name] = problem
        return problems

    def _repeated(self, column: Column, text: str, row: int) -> str:
        first = self.seen[column.name].setdefault(text, row)
        return "" if first == row or not text else f"the same as in row {first}"

    def _correction(self, record: Record, problems: dict[str, str]) -> Correction:
        if len(record.cells) != len(self.table.header):
            # It is not clear which cell is missing, so nothing is proposed.
            before = by_name(self.table, record.cells)
            return Correction(
                row=record.row,
                before=before,
                problems=problems,
                kinds=self._kinds(before),
            )
        cells = dict(zip(self.table.header, record.cells, strict=True))
        before = {name: shortened(cells[name]) for name in problems}
        after = self._proposals(cells, problems, record.row)
        return Correction(
            row=record.row,
            before=before,
            problems=problems,
            kinds=self._kinds(before),
            after=after,
        )

    def _proposals(
        self, cells: Mapping[str, str], problems: dict[str, str], row: int
    ) -> dict[str, str] | None:
        """Return what was probably meant by each cell with a problem; None if that is
        not clear for one of them.
        """
        proposals = {}
        for _, column in self.places:
            if column.name not in problems:
                continue
            meant = kinds.proposal(column.kind, cells[column.name])
            if meant is None:
                return None
            # The value is noted, so that it is proposed for no later row.
            if column.unique and self._repeated(column, meant, row):
                return None
            proposals[column.name] = meant
        return proposals

    def _kinds(self, names: Mapping[str, str]) -> dict[str, kinds.Kind]:
        # A value's kind alone does not show whether it may be empty; the import checks it
        # by its column.
        return {
            column.name: column.kind
            for column in self.columns
            if column.name in names and column.required
        }


def check(
    file: IO[bytes],
    *,
    name: str,
    columns: Sequence[Column],
    delimiter: Delimiter,
    report: Progress,
) -> tuple[Checked, list[Correction]]:
    """Return what the import needs to know of an open file, and the corrections of its
    bad rows. `report(rows, of)` is called now and then.

    Raises `CsvProblem` for a file that is no CSV, has other columns, no rows, or more
    than `MOST` bad rows.
    """
    table = reader.open_table(file, columns=columns, delimiter=delimiter)
    # Only an estimate: a quoted cell may hold line breaks.
    expected = max(reader.count_lines(file) - table.start_line, 1)
    places = [(table.header.index(column.name), column) for column in columns]
    run = Check(table, columns, places, {column.name: {} for column in columns})
    for record in reader.records(
        file,
        delimiter=table.delimiter,
        offset=table.start,
        row=1,
        line=table.start_line,
    ):
        run.look_at(record)
        if run.rows % STEP == 0:
            report(run.rows, max(expected, run.rows))
    report(run.rows, run.rows)
    _refuse_hopeless(run)
    size = file.seek(0, 2)
    start = table.start
    line = table.start_line
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
    return checked, run.corrections


def _refuse_hopeless(run: Check) -> None:
    if not run.rows:
        raise CsvProblem(
            "the file has no rows behind its header "
            f"in line {run.table.start_line}: add some"
        )
    if run.bad > MOST:
        first = run.corrections[0]
        column, problem = next(iter(first.problems.items()))
        raise CsvProblem(
            f"{run.bad:,} of {run.rows:,} rows need a correction, "
            f"more than the {MOST:,} that people can be asked for: "
            "mend the file where it comes from. "
            f"The first is row {first.row}, {column}: {problem}"
        )


def by_name(table: Table, row: list[str]) -> dict[str, str]:
    """Return the cells of a row that has too few or too many, by column. Surplus cells
    are joined in the last column.
    """
    width = len(table.header)
    cells = [*row[: width - 1], table.delimiter.join(row[width - 1 :])]
    cells += [""] * width
    shown = {}
    for name, cell in zip(table.header, cells, strict=False):
        shown[name] = shortened(cell)
    return shown


def shortened(text: str) -> str:
    """Return a cell as a correction shows it."""
    if len(text) <= kinds.LONGEST:
        return text
    return text[: kinds.LONGEST] + "…"
