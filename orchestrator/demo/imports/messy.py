"""Messy CSV files, always the same ones: the demo's sample of 200 rows, and larger ones
for tests and benchmarks.

`python -m orchestrator.demo.imports.messy [ROWS [BAD]]` prints one.
"""

import csv
import random
import sys
from collections.abc import Callable
from datetime import date, timedelta
from io import StringIO

ROWS = 200
BAD = 24
_FIRST_NAMES = (
    "Ada Ben Cleo Dan Eva Finn Gwen Hugo Ida Jon Kim Lea "
    "Max Nora Otto Pia Rolf Sara Tom Ulla Vera Will Yara Zoe"
)
_FAMILY_NAMES = (
    "Abel Berg Castel Dorn Ek Falk Grant Holm Iversen "
    "Jansen Keller Lund Moreau Nowak Olsen Petit Rossi Silva"
)
_COUNTRIES = "AT BE CH DE DK ES FI FR GB IE IT NL NO PL PT SE"

Row = dict[str, str]


def messy_csv(rows: int = ROWS, bad: int = BAD) -> str:
    """Return a CSV of this many rows, `bad` of them wrong in one way or another. It is
    the same each time.
    """
    chance = random.Random(20261120)  # noqa: S311 - a sample, not a secret
    table = [_row(number, chance) for number in range(1, rows + 1)]
    # The first row stays right: the duplicate below repeats it.
    for count, place in enumerate(sorted(chance.sample(range(1, rows), bad))):
        row = table[place]
        spoilers = _SPOILERS[count % len(_SPOILERS)]
        for column, spoil in spoilers.items():
            row[column] = spoil(row[column])
    out = StringIO()
    writer = csv.DictWriter(out, fieldnames=list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


def _row(number: int, chance: random.Random) -> Row:
    first = chance.choice(_FIRST_NAMES.split())
    family = chance.choice(_FAMILY_NAMES.split())
    day = date(2026, 1, 1) + timedelta(days=chance.randrange(300))
    return {
        "id": f"INV-{number:05}",
        "name": f"{first} {family}",
        "email": f"{first}.{family}{number}@example.com".lower(),
        "amount": f"{chance.randrange(500, 500_000) / 100:.2f}",
        "date": day.isoformat(),
        "country": chance.choice(_COUNTRIES.split()),
    }


def _decimal_comma(text: str) -> str:
    return text.replace(".", ",")


_SPOILERS: tuple[dict[str, Callable[[str], str]], ...] = (
    {"email": lambda text: f" {text} "},
    {"amount": _decimal_comma},
    {"date": lambda text: date.fromisoformat(text).strftime("%d.%m.%Y")},
    {"country": str.lower},
    {"email": lambda text: text.replace("@", " at ")},
    {"amount": lambda text: f"€ {float(text):,.2f}"},
    {"country": lambda text: "Germany"},
    {"amount": _decimal_comma, "country": str.lower},
    {"amount": lambda text: "to be agreed"},
    {"email": lambda text: text.replace(".com", ",com")},
    {"date": lambda text: "2026-02-30"},
    {"id": lambda text: "INV-00001"},
    {"email": lambda text: ""},
)
"""The faults of bad rows, in turn: the functions that spoil their cells, by column."""

if __name__ == "__main__":
    sys.stdout.write(messy_csv(*map(int, sys.argv[1:3])))
