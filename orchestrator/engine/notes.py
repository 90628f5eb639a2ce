"""What people and nodes note beside a run: metadata (small values by name) and figures (numbers that are added up).

Pure checks and one collector per attempt. Neither is read by a node, a router or a gate, so neither changes a run.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from orchestrator.engine import canonical
from orchestrator.engine.canonical import Json
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.output import Output

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")
MOST_NAMES = 20
"""Names of metadata that one run has, or one task gives; and names of figures of one task."""
LONGEST_TEXT = 200
"""Characters of a text in metadata, and of any value as filters compare it."""
SCALE = 1_000_000
"""Figures are kept in millionths, as whole numbers, so that sums are exact on every database."""
MOST_FIGURE = 1_000_000_000


def checked_metadata(given: Any, *, place: str = "metadata") -> dict[str, Json]:
    """The metadata as JSON, by name. Raises `InvalidValue` naming the entry: `metadata.customer`."""
    if not isinstance(given, Mapping):
        raise InvalidValue(f"{place} must be an object of names and values", path=place)
    if len(given) > MOST_NAMES:
        raise InvalidValue(f"{place} has {len(given)} names; at most {MOST_NAMES} are kept", path=place)
    return {name: checked_entry(name, value, place=place) for name, value in given.items()}


def checked_entry(name: Any, value: Any, *, place: str = "metadata") -> Json:
    """A value of metadata as JSON: text, a number, True or False. Raises `InvalidValue` naming the entry."""
    _check_name(name, place)
    path = f"{place}.{name}"
    if not isinstance(value, str | int | float):
        cure = "give text, a number, True or False"
        raise InvalidValue(f"{path} is a {type(value).__name__}; {cure}", path=path)
    try:
        plain = canonical.normalised(value)
    except InvalidValue as error:
        raise InvalidValue(f"{path}: {error.message}", path=path) from error
    if len(filter_text(plain)) > LONGEST_TEXT:
        raise InvalidValue(f"{path} has more than {LONGEST_TEXT} characters", path=path)
    return plain


def filter_text(value: Json) -> str:
    """The text by which a value of metadata is found: text itself, else its JSON: `7`, `1.5`, `true`."""
    return value if isinstance(value, str) else canonical.dumps(value).decode()


def checked_figure(name: Any, number: Any) -> int:
    """A figure in millionths. Raises `InvalidValue` for what is no whole number or Decimal, is not finite, too large,
    or finer than millionths.
    """
    _check_name(name, "figure")
    path = f"figure.{name}"
    if isinstance(number, bool) or not isinstance(number, int | Decimal):
        cure = f"give a whole number or a Decimal, as ctx.figure({name!r}, Decimal('0.25'))"
        raise InvalidValue(f"{path} is {number!r}; {cure}", path=path)
    if not math.isfinite(number) or not -MOST_FIGURE <= number <= MOST_FIGURE:
        raise InvalidValue(f"{path} is {number}; it must lie within ±{MOST_FIGURE}", path=path)
    millionths = Decimal(number) * SCALE
    if millionths != int(millionths):
        raise InvalidValue(f"{path} is {number}, which is finer than millionths; round it", path=path)
    return int(millionths)


def figure_number(millionths: int) -> Decimal:
    """The figure as a number, without trailing zeros: 1234, 0.25."""
    number = Decimal(millionths) / SCALE
    whole = number == number.to_integral_value()
    return number.quantize(Decimal(1)) if whole else number.normalize()


def figure_text(millionths: int) -> str:
    """The figure in plain digits, without exponent: "1234", "0.25"."""
    return format(figure_number(millionths), "f")


def _check_name(name: Any, place: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        cure = "use up to 60 letters, digits, _ . -, and begin with a letter"
        raise InvalidValue(f"{name!r} is no name in {place}; {cure}", path=place)


@dataclass(slots=True)
class Notes:
    """What one attempt notes."""

    metadata: dict[str, Json] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)

    def put(self, name: str, value: Any) -> None:
        """Note a value; the last of one name stays. Raises `InvalidValue`."""
        self.metadata[name] = checked_entry(name, value)
        _check_number_of(self.metadata, "metadata")

    def add(self, name: str, number: Any) -> None:
        """Add a number to the figure of this name. Raises `InvalidValue`."""
        total = self.figures.get(name, 0) + checked_figure(name, number)
        checked_figure(name, Decimal(total) / SCALE)
        self.figures[name] = total
        _check_number_of(self.figures, "figures")

    def onto(self, output: Output) -> Output:
        """The output of the attempt, with what it noted."""
        if not (self.metadata or self.figures):
            return output
        return replace(
            output,
            metadata=tuple(sorted(self.metadata.items())),
            figures=tuple(sorted(self.figures.items())),
        )


def _check_number_of(noted: Mapping[str, Any], place: str) -> None:
    if len(noted) > MOST_NAMES:
        raise InvalidValue(f"a task notes more than {MOST_NAMES} names of {place}", path=place)
