"""What pydantic finds wrong is said in one plain sentence for each kind of fault."""

import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    AnyUrl,
    AwareDatetime,
    BaseModel,
    Field,
    HttpUrl,
    PastDate,
    create_model,
)
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ErrorType

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.values import fault, values
from orchestrator.engine.values.files import FileRef


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Payee(BaseModel, extra="forbid"):
    name: str


def in_words(value: str) -> str:
    if value != "yes":
        raise ValueError("say yes")
    return value


def in_words_of_ones_own(value: str) -> str:
    raise PydanticCustomError("not_mine", "This account is another bank's.")


FAULTS: list[tuple[Any, Any, str]] = [
    (str, 3, "This must be text."),
    (
        Annotated[str, Field(min_length=1)],
        "",
        "This is too short: it needs at least 1 character.",
    ),
    (
        Annotated[str, Field(max_length=2)],
        "abc",
        "This is too long: it may have at most 2 characters.",
    ),
    (
        Annotated[str, Field(pattern=r"^CLM-\d+$")],
        "x",
        "This is not written in the form that is asked for here.",
    ),
    (int, "many", "This must be a whole number."),
    (int, 1.5, "This must be a whole number."),
    (int, [], "This must be a whole number."),
    (float, "many", "This must be a number."),
    (
        Annotated[float, Field(allow_inf_nan=False)],
        "inf",
        "This must be a number that is neither infinite nor undefined.",
    ),
    (Annotated[int, Field(gt=0)], 0, "This must be more than 0."),
    (Annotated[int, Field(ge=1)], 0, "This must be 1 or more."),
    (Annotated[int, Field(lt=9)], 9, "This must be less than 9."),
    (Annotated[int, Field(le=8)], 9, "This must be 8 or less."),
    (Annotated[int, Field(multiple_of=5)], 9, "This must be a multiple of 5."),
    (Decimal, "a lot", "This must be a number."),
    (Decimal, [], "This must be a number."),
    (
        Annotated[Decimal, Field(max_digits=3)],
        "1234",
        "This may have at most 3 digits.",
    ),
    (
        Annotated[Decimal, Field(decimal_places=1)],
        "1.23",
        "This may have at most 1 digit behind the point.",
    ),
    (
        Annotated[Decimal, Field(max_digits=4, decimal_places=2)],
        "123.4",
        "This may have at most 2 digits before the point.",
    ),
    (bool, "perhaps", "This must be yes or no."),
    (bool, [], "This must be yes or no."),
    (date, "soon", "This must be a date, as 2026-03-02."),
    (date, [], "This must be a date, as 2026-03-02."),
    (date, "2026-03-02T09:30:00", "This must be a date without a time of day."),
    (PastDate, "2999-01-01", "This must be a date in the past."),
    (datetime, "soon", "This must be a date with a time, as 2026-03-02T09:30."),
    (
        AwareDatetime,
        "2026-03-02T09:30",
        "This needs a time zone, as +01:00 or Z at its end.",
    ),
    (time, "noon", "This must be a time of day, as 09:30."),
    (
        timedelta,
        "long",
        "This must be a length of time, as PT1H30M for an hour and a half.",
    ),
    (UUID, "x", "This must be an id, as 0190c5a8-0000-7000-8000-000000000000."),
    (Colour, "green", "This must be one of: 'red' or 'blue'."),
    (Literal["yes", "no"], "perhaps", "This must be one of: 'yes' or 'no'."),
    (list[str], "a", "This must be a list."),
    (set[str], "a", "This must be a list."),
    (tuple[int, int], "a", "This must be a list."),
    (
        Annotated[list[int], Field(min_length=2)],
        [1],
        "This is too short: it needs at least 2 items.",
    ),
    (
        Annotated[list[int], Field(max_length=1)],
        [1, 2],
        "This is too long: it may have at most 1 item.",
    ),
    (dict[str, int], [], "This must be an object with named fields."),
    (Payee, [], "This must be an object with named fields."),
    (Payee, {}, "This is needed."),
    (Payee, {"name": "Marta", "iban": "DE"}, "There is no such field here."),
    (FileRef, {"file": "1"}, "This is needed."),
    (None, 3, "This must be left empty."),
    (AnyUrl, "nowhere", "This must be a web address, as https://example.org/."),
    (
        HttpUrl,
        "ftp://example.org",
        "This address must begin with one of: 'http' or 'https'.",
    ),
    (Annotated[str, AfterValidator(in_words)], "no", "Say yes."),
    (
        Annotated[str, AfterValidator(in_words_of_ones_own)],
        "no",
        "This account is another bank's.",
    ),
]


@pytest.mark.parametrize(("kind", "value", "sentence"), FAULTS)
def test_each_fault_that_a_type_can_raise_is_one_plain_sentence(
    kind: Any, value: Any, sentence: str
) -> None:
    model = create_model("Model", value=(kind, ...))
    with pytest.raises(InvalidValue) as refused:
        values.validated(model, {"value": value})
    assert refused.value.facts["reason"] == sentence


def test_every_kind_of_fault_that_pydantic_knows_has_its_sentence() -> None:
    known = set(get_args(ErrorType))
    assert known - set(fault.SENTENCES) == fault.OWN
    assert set(fault.SENTENCES) <= known


@pytest.mark.parametrize("kind", sorted(fault.SENTENCES))
def test_a_sentence_says_nothing_of_types_and_patterns(kind: str) -> None:
    sentence = fault.SENTENCES[kind]
    assert sentence.endswith(".")
    assert not re.search(r"pattern|Input|instance|a valid|parse|'\{", sentence)
