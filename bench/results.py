"""The results: one record a figure, printed as a line of JSON at once, and kept
for the table.
"""

import json
import statistics
from typing import Any


class Results:
    """Records of one bench. A record has `workload`, `database`, `who`, and its
    figures.
    """

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []

    def add(self, **record: Any) -> None:
        """Keep a record and print it. Floats are shortened to what is meant."""
        short = {
            name: round(value, 5) if isinstance(value, float) else value
            for name, value in record.items()
        }
        self._records.append(short)
        print(json.dumps(short), flush=True)

    def values(self, figure: str, **where: Any) -> list[float]:
        """Return the figure in all records that match."""
        matching = [
            record
            for record in self._records
            if figure in record and where.items() <= record.items()
        ]
        return [float(record[figure]) for record in matching]

    def texts(self, name: str, **where: Any) -> list[str]:
        """Return what is said under that name in all records that match."""
        return [
            str(record[name])
            for record in self._records
            if name in record and where.items() <= record.items()
        ]

    def median(self, figure: str, **where: Any) -> float | None:
        """Return the median over the rounds; None if nothing was measured."""
        values = self.values(figure, **where)
        return statistics.median(values) if values else None
