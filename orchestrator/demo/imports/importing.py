"""Import of a file's rows into the table. The writing nodes of the import graph call it
inside their transaction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO
from uuid import UUID

from orchestrator.demo.imports import reader
from orchestrator.demo.imports.models import ImportedRow
from orchestrator.demo.imports.values import (
    Checked,
    Column,
    Correction,
    Cursor,
    LeftOut,
    Report,
)

CHUNK = 5000
"""The most rows in one transaction: far below what fits in half a lease, on SQLite too,
where it holds the one write lock.
"""
_BATCH = 500


def beginning(checked: Checked) -> Cursor:
    """Return the place where an import begins."""
    return Cursor(offset=checked.start, row=1, line=checked.start_line)


def import_chunk(
    file: IO[bytes],
    *,
    run: UUID,
    checked: Checked,
    cursor: Cursor,
    skipped: Iterable[int],
) -> Cursor:
    """Write the next good rows of an open file and return where to continue; at the end
    the offset is the file's size.
    """
    if cursor == beginning(checked):
        # A run that was rewound imports everything again; the rows of its earlier line
        # must not stay.
        ImportedRow.objects.filter(run=run).delete()
    leave_out = frozenset(skipped)
    remaining = reader.records(
        file,
        delimiter=checked.delimiter,
        offset=cursor.offset,
        row=cursor.row,
        line=cursor.line,
    )
    chunk = list(islice(remaining, CHUNK))
    rows = {}
    for record in chunk:
        if record.row not in leave_out:
            # Rows of another length are all among those that are left out.
            rows[record.row] = dict(zip(checked.header, record.cells, strict=True))
    _save(run, rows, corrected=False)
    imported = cursor.imported + len(rows)
    if len(chunk) < CHUNK:
        return Cursor(
            offset=checked.size, row=cursor.row, line=cursor.line, imported=imported
        )
    last = chunk[-1]
    return Cursor(offset=last.end, row=last.row, line=last.line, imported=imported)


def import_corrected(
    file: IO[bytes],
    *,
    run: UUID,
    checked: Checked,
    columns: Sequence[Column],
    questions: Sequence[Correction],
    agreed: Sequence[Correction],
    progress: Callable[[int], None],
) -> tuple[int, list[LeftOut]]:
    """Write the bad rows as they were agreed on. Return how many are in the table, and
    why the others are not. `progress(rows)` is called now and then.

    Every row is checked once more as a whole, because an edit may clash with another
    row, which no single column can show.
    """
    records = _records(file, checked, progress) if questions else iter(())
    cells, taken = _bad_rows_and_taken(
        records, checked=checked, columns=columns, questions=questions, agreed=agreed
    )
    # If a row was corrected twice, the first correction counts.
    answers = {correction.row: correction for correction in reversed(agreed)}
    good: dict[int, dict[str, str]] = {}
    left_out: list[LeftOut] = []
    for question in questions:
        values, why = _outcome(question, answers.get(question.row), cells)
        why = why or _wrong(values, columns, taken)
        if why:
            left_out.append(LeftOut(row=question.row, why=why))
            continue
        # It takes part from here on: a later correction may not repeat its values.
        good[question.row] = values
        for column in columns:
            if column.unique:
                taken[column.name].setdefault(values[column.name], question.row)
    _save(run, good, corrected=True)
    return len(good), left_out


def report(
    checked: Checked, cursor: Cursor, *, corrected: int, left_out: list[LeftOut]
) -> Report:
    """Return the report of an import that has ended."""
    imported = cursor.imported + corrected
    return Report(
        file=checked.name,
        rows=checked.rows,
        imported=imported,
        corrected=corrected,
        left_out=left_out,
    )


def _outcome(
    question: Correction, answer: Correction | None, cells: Mapping[int, dict[str, str]]
) -> tuple[dict[str, str], str]:
    """Return the row's values in the agreed form, or why there are none."""
    if answer is None:
        return {}, "rejected"
    if answer.after is None:
        return {}, "left out, as agreed"
    if set(answer.after) != set(question.before):
        return {}, f"the correction is not about {', '.join(question.before)}"
    return {**cells[question.row], **answer.after}, ""


def _wrong(
    values: Mapping[str, str],
    columns: Sequence[Column],
    taken: Mapping[str, Mapping[str, int]],
) -> str:
    for column in columns:
        value = values[column.name]
        problem = column.problem(value)
        if problem:
            return f"{column.name}: {problem}"
        if column.unique and value in taken[column.name]:
            return f"{column.name}: the same as in row {taken[column.name][value]}"
    return ""


def _records(
    file: IO[bytes], checked: Checked, progress: Callable[[int], None]
) -> Iterator[reader.Record]:
    """Yield all records of an open file."""
    for record in reader.records(
        file,
        delimiter=checked.delimiter,
        offset=checked.start,
        row=1,
        line=checked.start_line,
    ):
        if record.row % CHUNK == 1:
            progress(record.row - 1)
        yield record


def _bad_rows_and_taken(
    records: Iterable[reader.Record],
    *,
    checked: Checked,
    columns: Sequence[Column],
    questions: Sequence[Correction],
    agreed: Sequence[Correction],
) -> tuple[dict[int, dict[str, str]], dict[str, dict[str, int]]]:
    """Return, after one pass, the cells of the bad rows, and which good row already has
    a value that a correction sets.
    """
    before = {correction.row: correction.before for correction in questions}
    corrected_values: set[str] = set()
    for correction in agreed:
        corrected_values.update((correction.after or {}).values())
    unique_columns = _unique_columns(columns, checked.header)
    cells: dict[int, dict[str, str]] = {}
    taken: dict[str, dict[str, int]] = {name: {} for name in unique_columns}
    for record in records:
        if record.row in before:
            cells[record.row] = before[record.row]
            # The header does not fit a row of another length.
            if len(record.cells) == len(checked.header):
                cells[record.row] = dict(zip(checked.header, record.cells, strict=True))
            continue
        for name, place in unique_columns.items():
            # Values that no correction sets are not kept: a file may be long.
            if record.cells[place] in corrected_values:
                taken[name][record.cells[place]] = record.row
    return cells, taken


def _unique_columns(columns: Sequence[Column], header: Sequence[str]) -> dict[str, int]:
    """Return the places of the columns in which no value may occur twice, by name."""
    return {
        column.name: header.index(column.name) for column in columns if column.unique
    }


def _save(run: UUID, rows: Mapping[int, dict[str, str]], *, corrected: bool) -> None:
    ImportedRow.objects.bulk_create(
        [
            ImportedRow(run=run, row=row, values=values, corrected=corrected)
            for row, values in rows.items()
        ],
        batch_size=_BATCH,
        update_conflicts=True,
        unique_fields=["run", "row"],
        update_fields=["values", "corrected"],
    )
