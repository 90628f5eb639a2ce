"""Notes of people and nodes beside a run: metadata (small values by name) and figures
(numbers that are added up).

Pure checks, and one collector per attempt. No node, router or gate reads them, so they
never change a run.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, Inexact
from typing import Any

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.step.output import Output
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")
MOST_NAMES = 20
"""The most names of metadata of one run or of one task; and names of figures of one
task.
"""
LONGEST_TEXT = 200
"""The most characters of a text in metadata, and of any value as filters compare it."""
SCALE = 1_000_000
"""Figures are kept in millionths, as whole numbers, so that sums are exact on every
database.
"""
MOST_FIGURE = 1_000_000_000
_MILLIONTH = Decimal("0.000001")


def checked_metadata(metadata: Any) -> dict[str, Json]:
    """Return the metadata as JSON, by name. Raises `InvalidValue` naming the entry:
    `metadata.customer`.
    """
    if not isinstance(metadata, Mapping):
        raise InvalidValue(
            "metadata must be an object of names and values", path="metadata"
        )
    if len(metadata) > MOST_NAMES:
        raise InvalidValue(
            f"metadata has {len(metadata)} names; at most {MOST_NAMES} are kept",
            path="metadata",
        )
    checked: dict[str, Json] = {}
    for name, value in metadata.items():
        checked[name] = checked_entry(name, value)
    return checked


def checked_entry(name: Any, value: Any) -> Json:
    """Return a value of metadata as JSON: text, a number, True or False. Raises
    `InvalidValue` naming the entry.
    """
    _check_name(name, "metadata")
    path = f"metadata.{name}"
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
    """Return the text that finds a value of metadata: text itself, else its JSON: `7`,
    `1.5`, `true`.
    """
    if isinstance(value, str):
        return value
    return canonical.dumps(value).decode()


def checked_figure(name: Any, number: Any) -> int:
    """Return a figure in millionths. Raises `InvalidValue` for anything but a whole
    number or Decimal, and if it is not finite, too large, or finer than millionths.
    """
    _check_name(name, "figure")
    path = f"figure.{name}"
    # A float is refused because sums of figures are exact.
    if isinstance(number, bool) or not isinstance(number, int | Decimal):
        cure = (
            "give a whole number or a Decimal, "
            f"as ctx.figure({name!r}, Decimal('0.25'))"
        )
        raise InvalidValue(f"{path} is {number!r}; {cure}", path=path)
    if not _is_in_range(number):
        raise _out_of_range(path)
    millionths = _millionths_of(number)
    if millionths is None:
        raise InvalidValue(
            f"{path} is {number}, which is finer than millionths; round it", path=path
        )
    return millionths


def _is_in_range(number: int | Decimal) -> bool:
    # NaN cannot be compared.
    if isinstance(number, Decimal) and not number.is_finite():
        return False
    return -MOST_FIGURE <= number <= MOST_FIGURE


def _out_of_range(path: str) -> InvalidValue:
    # The number is left out, for it may have too many digits to be written.
    return InvalidValue(f"{path} must lie within ±{MOST_FIGURE}", path=path)


def _millionths_of(number: int | Decimal) -> int | None:
    """Return a number in millionths; None if it is finer than that."""
    if isinstance(number, int):
        return number * SCALE
    # A separate context: that of the thread belongs to the node, and may round.
    exact = Context(prec=28, traps=[Inexact])
    try:
        with_six_places = number.quantize(_MILLIONTH, context=exact)
    except Inexact:
        return None
    return int(exact.multiply(with_six_places, SCALE))


def figure_number(millionths: int) -> Decimal:
    """Return the figure as a number, without trailing zeros: 1234, 0.25."""
    number = Decimal(millionths) / SCALE
    # `normalize` alone would write 1200 as 1.2E+3.
    if number == number.to_integral_value():
        return number.quantize(Decimal(1))
    return number.normalize()


def figure_text(millionths: int) -> str:
    """Return the figure in plain digits, without exponent: "1234", "0.25"."""
    return format(figure_number(millionths), "f")


def _check_name(name: Any, place: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        cure = "use up to 60 letters, digits, _ . -, and begin with a letter"
        raise InvalidValue(f"{name!r} is no name in {place}; {cure}", path=place)


@dataclass(slots=True)
class Notes:
    """The notes of one attempt."""

    metadata: dict[str, Json] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)

    def put(
        self,
        name: str,
        value: Any,
    ) -> None:
        """Note a value; the last of one name stays. Raises `InvalidValue`."""
        checked = checked_entry(name, value)
        _require_room(self.metadata, name, "metadata")
        self.metadata[name] = checked

    def add(
        self,
        name: str,
        number: Any,
    ) -> None:
        """Add a number to the figure of this name. Raises `InvalidValue`."""
        total = self.figures.get(name, 0) + checked_figure(name, number)
        # Small numbers may add up to one that is too large.
        if abs(total) > MOST_FIGURE * SCALE:
            raise _out_of_range(f"figure.{name}")
        _require_room(self.figures, name, "figures")
        self.figures[name] = total

    def onto(self, output: Output) -> Output:
        """Return the output of the attempt, with its notes."""
        if not (self.metadata or self.figures):
            return output
        return replace(
            output,
            metadata=tuple(sorted(self.metadata.items())),
            figures=tuple(sorted(self.figures.items())),
        )


def _require_room(notes: Mapping[str, Any], name: str, place: str) -> None:
    """Raise `InvalidValue` if there are too many notes for a new name."""
    if name not in notes and len(notes) >= MOST_NAMES:
        raise InvalidValue(
            f"a task notes more than {MOST_NAMES} names of {place}", path=place
        )
