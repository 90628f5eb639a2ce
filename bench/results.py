"""What was measured: one record a figure, printed as a line of JSON at once, and kept for the table."""

import json
import statistics
from typing import Any


class Results:
    """Records of one bench. A record has `workload`, `database`, `who`, and its figures."""

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []

    def add(self, **record: Any) -> None:
        """Keep a record and print it. Floats are shortened to what is meant."""
        short = {name: round(value, 5) if isinstance(value, float) else value for name, value in record.items()}
        self._records.append(short)
        print(json.dumps(short), flush=True)

    def values(self, figure: str, **where: Any) -> list[float]:
        """The figure in all records that match."""
        found = [one for one in self._records if figure in one and where.items() <= one.items()]
        return [float(one[figure]) for one in found]

    def texts(self, name: str, **where: Any) -> list[str]:
        """What is said under that name in all records that match."""
        return [str(one[name]) for one in self._records if name in one and where.items() <= one.items()]

    def median(self, figure: str, **where: Any) -> float | None:
        """Over the rounds; None where nothing was measured."""
        values = self.values(figure, **where)
        return statistics.median(values) if values else None
