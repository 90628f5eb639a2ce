"""Metadata and figures as nodes note them: what cannot be kept is refused by name, and
then nothing of it is kept.
"""

from decimal import Decimal, localcontext
from typing import Any

import pytest

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.step.notes import (
    MOST_FIGURE,
    MOST_NAMES,
    Notes,
    checked_figure,
)

FINE = "finer than millionths"
FAR = "must lie within"


NO_FIGURES: dict[str, tuple[Any, str]] = {
    "too large for a float": (10**400, FAR),
    "too large for a text": (-(10**5000), FAR),
    "a huge exponent": (Decimal("1E+999999"), FAR),
    "a signalling NaN": (Decimal("sNaN"), FAR),
    "infinite": (Decimal("-Infinity"), FAR),
    "fine, with many digits": (Decimal("1." + "0" * 32 + "1"), FINE),
    "fine, with few digits": (Decimal("100000000.0000001"), FINE),
    "a tiny exponent": (Decimal("1E-999999"), FINE),
}


@pytest.mark.parametrize("case", NO_FIGURES)
def test_a_number_that_is_no_figure_is_refused_by_name(case: str) -> None:
    number, reason = NO_FIGURES[case]
    with pytest.raises(InvalidValue, match=reason) as refused:
        checked_figure("tokens", number)
    assert refused.value.facts["path"] == "figure.tokens"


def test_a_figure_is_exact_whatever_the_context_of_its_thread() -> None:
    most = Decimal(MOST_FIGURE)
    with localcontext(prec=3):
        notes = Notes()
        notes.add("cost", Decimal("1234567.891011"))
        notes.add("cost", Decimal("0.000001000000"))
        assert checked_figure("cost", most) == MOST_FIGURE * 1_000_000
    assert notes.figures == {"cost": 1_234_567_891_012}


def test_a_sum_that_becomes_too_large_is_refused_and_stays_as_it_was() -> None:
    notes = Notes()
    notes.add("cost", MOST_FIGURE)
    with pytest.raises(InvalidValue, match=FAR):
        notes.add("cost", Decimal("0.000001"))
    assert notes.figures == {"cost": MOST_FIGURE * 1_000_000}


def test_a_name_beyond_the_last_is_refused_and_not_kept() -> None:
    notes = Notes()
    for n in range(MOST_NAMES):
        notes.put(f"name{n}", n)
        notes.add(f"name{n}", n)
    for note in (notes.put, notes.add):
        with pytest.raises(InvalidValue, match=f"more than {MOST_NAMES} names"):
            note("another", 1)
        note("name0", 1)
    assert len(notes.metadata) == len(notes.figures) == MOST_NAMES
