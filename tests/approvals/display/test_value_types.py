"""How values read whose types a graph declares: amounts with their currency, accounts
in groups, all of them exact.
"""

from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from approvals.display.leaf import leaf_of
from approvals.display.value_types import NOTHING_DECLARED, ValueType, schema_of_answer
from tests.approvals.views.looks import look_of

Euros = Annotated[Decimal, Field(json_schema_extra={"currency": "EUR"})]
Francs = Annotated[Decimal, Field(json_schema_extra={"currency": "CHF"})]


class Payout(BaseModel):
    """A payment of the tests."""

    amount: Euros
    fee: Francs | None = None
    share: Decimal = Decimal(0)
    payee: str = ""
    parts: list[Euros] = []
    by_day: dict[str, Euros] = {}


PAYOUT = ValueType.of_schema(Payout.model_json_schema())


def text(value: Any, *path: str) -> tuple[str, str]:
    """Return how a value at that path of a payout is drawn, and what it says."""
    leaf = leaf_of(value, declared=PAYOUT.at(path))
    return leaf.kind, leaf.text


def test_an_amount_of_a_declared_currency_reads_as_money() -> None:
    assert text("4512.50", "amount") == ("amount", "€4,512.50")
    assert text("-0.50", "amount") == ("amount", "-€0.50")
    assert text("1234567", "fee") == ("amount", "CHF 1,234,567")


def test_a_decimal_without_a_currency_reads_as_a_number() -> None:
    assert text("11530.00", "share") == ("amount", "11,530.00")
    assert text("0.02", "share") == ("amount", "0.02")


def test_amounts_within_lists_and_dictionaries_read_as_money() -> None:
    assert text("1000.00", "parts", "0") == ("amount", "€1,000.00")
    assert text("1000.00", "by_day", "monday") == ("amount", "€1,000.00")
    leaf = leaf_of(["1000.00", "2.50"], declared=PAYOUT.at(("parts",)))
    assert [item.text for item in leaf.items] == ["€1,000.00", "€2.50"]


def test_a_text_where_none_is_declared_an_amount_keeps_its_quotes() -> None:
    assert text("4512.50", "payee") == ("quoted", "4512.50")
    assert leaf_of("4512.50").kind == "quoted"
    assert leaf_of("4512.50", declared=NOTHING_DECLARED).kind == "quoted"


@pytest.mark.parametrize(
    "odd", ["4,512.50", "€4512.50", "007", "1e3", " 4512.50", "", "+1", "4512.50 "]
)
def test_what_is_no_plain_amount_is_not_made_to_look_like_one(odd: str) -> None:
    assert leaf_of(odd, declared=PAYOUT.at(("amount",))).kind != "amount"


def test_amounts_that_differ_look_different() -> None:
    values: list[Any] = [
        "4512.5",
        "4512.50",
        4512.5,
        "4,512.50",
        "€4,512.50",
        "-4512.50",
        None,
        "4512.500",
    ]
    looks = [look_of(None, {"amount": value}, declared=PAYOUT) for value in values]
    assert len(set(looks)) == len(values)


def test_a_change_of_an_amount_says_both_as_money() -> None:
    look = look_of({"amount": "362.00"}, {"amount": "4512.50"}, declared=PAYOUT)
    assert "€362.00" in look
    assert "€4,512.50" in look
    assert "“" not in look


def test_an_account_number_stands_in_groups_of_four_and_a_text_with_blanks_in_quotes() -> (
    None
):
    leaf = leaf_of("DE89370400440532013000")
    assert leaf.kind == "account"
    assert [item.text for item in leaf.items] == [
        "DE89",
        "3704",
        "0044",
        "0532",
        "0130",
        "00",
    ]
    assert leaf.text == "DE89370400440532013000"
    assert leaf_of("DE89 3704 0044 0532 0130 00").kind == "quoted"


def test_a_text_that_only_looks_like_an_account_number_is_a_text() -> None:
    assert leaf_of("DE89370400440532013001").kind == "text"
    assert leaf_of("CLM-118834").kind == "text"


def test_an_empty_list_is_called_none_and_the_word_stands_in_quotes() -> None:
    assert leaf_of([]).kind == "nothing"
    assert leaf_of([]).text == "none"
    assert leaf_of("none").kind == "quoted"


def test_a_type_that_refers_to_itself_is_read_as_far_as_the_value_goes() -> None:
    schema = {
        "$ref": "#/$defs/Tree",
        "$defs": {
            "Tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}}
        },
    }
    deep = ValueType.of_schema(schema).at(["next"] * 50)
    assert not deep.is_amount
    circle = ValueType.of_schema(
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    )
    assert circle.currency == ""


def test_what_a_question_adds_to_its_channel_leaves_the_kind_of_its_form() -> None:
    channel = {"type": "integer", "default": 0, "$defs": {"A": {}}}
    assert schema_of_answer(None, channel) == {"type": "integer", "$defs": {"A": {}}}
    bounded = schema_of_answer({"minimum": 3}, channel)
    assert (bounded["type"], bounded["minimum"]) == ("integer", 3)
    assert schema_of_answer({"enum": [1]}, channel) == {"enum": [1], "$defs": {"A": {}}}
