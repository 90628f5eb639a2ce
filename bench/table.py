"""The one table: targets with what was measured beside them, one line a row and database."""

from bench.results import Results
from bench.targets import LEFT_OUT, TARGETS

HEAD = ("#", "what", "database", "must", "aim", "measured", "")


def table(results: Results, *, markdown: bool = False) -> str:
    """As text in columns, or as Markdown for a page."""
    rows = _rows(results)
    if markdown:
        lines = [f"| {' | '.join(row)} |" for row in (rows[0], ("---",) * len(HEAD), *rows[1:])]
        return "\n".join([*lines, "", LEFT_OUT])
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", LEFT_OUT])


def _rows(results: Results) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [HEAD]
    for target in TARGETS:
        for database in target.databases:
            found = target.read(results, database)
            told = "not measured" if found is None else found[0]
            mark = "–" if found is None or not target.must else "reached" if found[1] else "MISSED"
            rows.append((str(target.number or ""), target.what, database, target.must, target.aim, told, mark))
    return rows
