"""Rows of a file become rows of the table. The writing nodes of the import graph call it inside their transaction."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO
from uuid import UUID

from orchestrator.demo.imports import reader
from orchestrator.demo.imports.models import ImportedRow
from orchestrator.demo.imports.values import Checked, Column, Correction, Cursor, LeftOut, Report

CHUNK = 5000
"""Rows in one transaction: far below what fits in half a lease, on SQLite too, where it holds the one write lock."""
_BATCH = 500


def beginning(checked: Checked) -> Cursor:
    """Where an import begins."""
    return Cursor(offset=checked.start, row=1, line=checked.start_line)


def import_chunk(file: IO[bytes], *, run: UUID, checked: Checked, cursor: Cursor, skipped: Iterable[int]) -> Cursor:
    """Write the next good rows of an open file and say where to go on; at the end the offset is the file's size."""
    if cursor == beginning(checked):
        # A run that was rewound imports anew; what its earlier course had imported must not linger beside it.
        ImportedRow.objects.filter(run=run).delete()
    leave_out = frozenset(skipped)
    found = reader.records(file, delimiter=checked.delimiter, offset=cursor.offset, row=cursor.row, line=cursor.line)
    taken = list(islice(found, CHUNK))
    good = {record.row: record.cells for record in taken if record.row not in leave_out}
    _save(run, {row: dict(zip(checked.header, cells, strict=True)) for row, cells in good.items()}, corrected=False)
    imported = cursor.imported + len(good)
    if len(taken) < CHUNK:
        return Cursor(offset=checked.size, row=cursor.row, line=cursor.line, imported=imported)
    last = taken[-1]
    return Cursor(offset=last.end, row=last.row, line=last.line, imported=imported)


def import_corrected(
    file: IO[bytes],
    *,
    run: UUID,
    checked: Checked,
    columns: Sequence[Column],
    asked: Sequence[Correction],
    agreed: Sequence[Correction],
    progress: Callable[[int], None],
) -> tuple[int, list[LeftOut]]:
    """Write the bad rows as they were agreed on. Gives how many are in the table, and why the others are not.
    `progress(rows)` is called now and then.

    Every row is checked once more, whole: an edit may clash with another row, which no single column can show.
    """
    found = _records(file, checked, progress) if asked else iter(())
    cells, taken = _bad_rows_and_taken(found, checked=checked, columns=columns, asked=asked, agreed=agreed)
    answers = {one.row: one for one in reversed(agreed)}
    good: dict[int, dict[str, str]] = {}
    left_out: list[LeftOut] = []
    for question in asked:
        values, why = _outcome(question, answers.get(question.row), cells)
        why = why or _wrong(values, columns, taken)
        if why:
            left_out.append(LeftOut(row=question.row, why=why))
            continue
        good[question.row] = values
        for column in columns:
            if column.unique:
                taken[column.name].setdefault(values[column.name], question.row)
    _save(run, good, corrected=True)
    return len(good), left_out


def report(checked: Checked, cursor: Cursor, *, corrected: int, left_out: list[LeftOut]) -> Report:
    """The end of an import."""
    imported = cursor.imported + corrected
    return Report(file=checked.name, rows=checked.rows, imported=imported, corrected=corrected, left_out=left_out)


def _outcome(
    question: Correction, answer: Correction | None, cells: Mapping[int, dict[str, str]]
) -> tuple[dict[str, str], str]:
    """The row's values as agreed, or why there are none."""
    if answer is None:
        return {}, "rejected"
    if answer.after is None:
        return {}, "left out, as agreed"
    if set(answer.after) != set(question.before):
        return {}, f"the correction is not about {', '.join(question.before)}"
    return {**cells[question.row], **answer.after}, ""


def _wrong(values: Mapping[str, str], columns: Sequence[Column], taken: Mapping[str, Mapping[str, int]]) -> str:
    for column in columns:
        if problem := column.problem(values[column.name]):
            return f"{column.name}: {problem}"
        if column.unique and (other := taken[column.name].get(values[column.name])):
            return f"{column.name}: the same as in row {other}"
    return ""


def _records(file: IO[bytes], checked: Checked, progress: Callable[[int], None]) -> Iterator[reader.Record]:
    """All records of an open file."""
    for record in reader.records(
        file, delimiter=checked.delimiter, offset=checked.start, row=1, line=checked.start_line
    ):
        if record.row % CHUNK == 1:
            progress(record.row - 1)
        yield record


def _bad_rows_and_taken(
    found: Iterable[reader.Record],
    *,
    checked: Checked,
    columns: Sequence[Column],
    asked: Sequence[Correction],
    agreed: Sequence[Correction],
) -> tuple[dict[int, dict[str, str]], dict[str, dict[str, int]]]:
    """One pass: the cells of the bad rows, and which good row already has a value that a correction wants."""
    before = {one.row: one.before for one in asked}
    wanted = {value for one in agreed for value in (one.after or {}).values()}
    unique = [(checked.header.index(column.name), column.name) for column in columns if column.unique]
    cells: dict[int, dict[str, str]] = {}
    taken: dict[str, dict[str, int]] = {name: {} for _, name in unique}
    for record in found:
        if record.row in before:
            whole = len(record.cells) == len(checked.header)
            cells[record.row] = dict(zip(checked.header, record.cells, strict=True)) if whole else before[record.row]
            continue
        for place, name in unique:
            if record.cells[place] in wanted:
                taken[name][record.cells[place]] = record.row
    return cells, taken


def _save(run: UUID, rows: Mapping[int, dict[str, str]], *, corrected: bool) -> None:
    ImportedRow.objects.bulk_create(
        [ImportedRow(run=run, row=row, values=values, corrected=corrected) for row, values in rows.items()],
        batch_size=_BATCH,
        update_conflicts=True,
        unique_fields=["run", "row"],
        update_fields=["values", "corrected"],
    )
