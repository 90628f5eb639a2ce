"""Makes messy CSV files, always the same ones: the demo's sample of 200 rows, and larger ones for tests and benchmarks.

`python -m orchestrator.demo.imports.messy [ROWS [BAD]]` prints one.
"""

import csv
import random
import sys
from collections.abc import Callable
from datetime import date, timedelta
from io import StringIO

ROWS, BAD = 200, 24
_GIVEN = "Ada Ben Cleo Dan Eva Finn Gwen Hugo Ida Jon Kim Lea Max Nora Otto Pia Rolf Sara Tom Ulla Vera Will Yara Zoe"
_FAMILY = "Abel Berg Castel Dorn Ek Falk Grant Holm Iversen Jansen Keller Lund Moreau Nowak Olsen Petit Rossi Silva"
_COUNTRIES = "AT BE CH DE DK ES FI FR GB IE IT NL NO PL PT SE"

Row = dict[str, str]


def messy_csv(rows: int = ROWS, bad: int = BAD) -> str:
    """A CSV of so many rows, `bad` of them wrong in one way or another. Deterministic."""
    chance = random.Random(20261120)  # noqa: S311 - a sample, not a secret
    table = [_row(number, chance) for number in range(1, rows + 1)]
    # The first row stays right: the duplicate below repeats it.
    for count, place in enumerate(sorted(chance.sample(range(1, rows), bad))):
        _SPOILERS[count % len(_SPOILERS)](table[place])
    out = StringIO()
    writer = csv.DictWriter(out, fieldnames=list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


def _row(number: int, chance: random.Random) -> Row:
    given, family = chance.choice(_GIVEN.split()), chance.choice(_FAMILY.split())
    day = date(2026, 1, 1) + timedelta(days=chance.randrange(300))
    return {
        "id": f"INV-{number:05}",
        "name": f"{given} {family}",
        "email": f"{given}.{family}{number}@example.com".lower(),
        "amount": f"{chance.randrange(500, 500_000) / 100:.2f}",
        "date": day.isoformat(),
        "country": chance.choice(_COUNTRIES.split()),
    }


def _blanks(row: Row) -> None:
    row["email"] = f" {row['email']} "


def _spelt_out(row: Row) -> None:
    row["email"] = row["email"].replace("@", " at ")


def _comma_in_domain(row: Row) -> None:
    row["email"] = row["email"].replace(".com", ",com")


def _decimal_comma(row: Row) -> None:
    row["amount"] = row["amount"].replace(".", ",")


def _currency(row: Row) -> None:
    row["amount"] = f"€ {float(row['amount']):,.2f}"


def _no_amount(row: Row) -> None:
    row["amount"] = "to be agreed"


def _day_first(row: Row) -> None:
    row["date"] = date.fromisoformat(row["date"]).strftime("%d.%m.%Y")


def _no_such_day(row: Row) -> None:
    row["date"] = "2026-02-30"


def _lower_case(row: Row) -> None:
    row["country"] = row["country"].lower()


def _country_name(row: Row) -> None:
    row["country"] = "Germany"


def _nothing(row: Row) -> None:
    row["email"] = ""


def _repeated(row: Row) -> None:
    row["id"] = "INV-00001"


def _two_at_once(row: Row) -> None:
    _decimal_comma(row)
    _lower_case(row)


_SPOILERS: tuple[Callable[[Row], None], ...] = (
    _blanks, _decimal_comma, _day_first, _lower_case, _spelt_out, _currency, _country_name, _two_at_once,
    _no_amount, _comma_in_domain, _no_such_day, _repeated, _nothing,
)  # fmt: skip

if __name__ == "__main__":
    sys.stdout.write(messy_csv(*map(int, sys.argv[1:3])))
