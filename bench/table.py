"""The one table: targets with what was measured beside them, one line a row and
database.
"""

from bench.results import Results
from bench.targets import TARGETS

STEADY = 2.0
"""How much the limit may move within a bench before its ratios are doubted aloud."""
HEAD = ("#", "what", "database", "must", "aim", "measured", "")


def table(results: Results, *, markdown: bool = False) -> str:
    """Return the table as text in columns, or as Markdown for a page."""
    rows = _rows(results)
    if markdown:
        lines = [
            f"| {' | '.join(row)} |"
            for row in (rows[0], ("---",) * len(HEAD), *rows[1:])
        ]
        return "\n".join(lines)
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def unsteady(results: Results) -> list[str]:
    """Return what must be said of a machine whose commit limit did not stay where it
    was: ratios to it prove little.
    """
    content = []
    for database in ("sqlite", "postgresql"):
        limits = [
            limit
            for name in ("W1", "W3", "W7")
            for limit in results.values("limit", workload=name, database=database)
        ]
        if limits and max(limits) / min(limits) > STEADY:
            times = max(limits) / min(limits)
            content.append(
                f"The commit limit of {database} moved by a factor of {times:.1f}:"
                " measure on a quiet machine."
            )
    return content


def _rows(results: Results) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [HEAD]
    for target in TARGETS:
        for database in target.databases:
            reading = target.read(results, database)
            facts = "not measured" if reading is None else reading[0]
            mark = (
                "–"
                if reading is None or not target.must
                else "reached"
                if reading[1]
                else "MISSED"
            )
            rows.append(
                (
                    str(target.number or ""),
                    target.what,
                    database,
                    target.must,
                    target.aim,
                    facts,
                    mark,
                )
            )
    return rows
