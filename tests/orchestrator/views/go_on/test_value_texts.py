"""Values as an operator reads them."""

from typing import Any

import pytest

from approvals.display.value_types import NOTHING_DECLARED
from orchestrator.views.go_on.value_texts import plain_text, summary, type_of
from tests.support.patch_points import point

CHANNELS = point().graph.channels
AMOUNT = type_of(CHANNELS["payout"]).at(["amount"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("4512.50", "4,512.50"),
        ("0.10", "0.10"),
        (12, "12"),
        ("1e3", "1,000"),
        ("many", '"many"'),
        ("1e999999", '"1e999999"'),
    ],
)
def test_money_keeps_its_digits_and_sets_thousands_apart(value: Any, text: str) -> None:
    assert plain_text(value, AMOUNT) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Ines Faro", "Ines Faro"),
        ("PT50000201231234567890154", "PT50000201231234567890154"),
        ("12", '"12"'),
        ("yes", '"yes"'),
        ("not set", '"not set"'),
        (" x", '" x"'),
        ("", "empty text"),
        (None, "not set"),
        (True, "yes"),
        (2026, "2026"),
        (12170, "12,170"),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_quotes_stand_only_where_a_text_could_be_mistaken(
    value: Any, text: str
) -> None:
    assert plain_text(value) == text


def test_a_channel_is_told_in_a_few_words() -> None:
    payout = {"amount": "4512.50", "account": "DE1", "paid": False}
    assert (
        summary(payout, type_of(CHANNELS["payout"]))
        == "amount 4,512.50, account DE1, paid no"
    )
    assert summary(["a", "b"], type_of(CHANNELS["notes"])) == "2 items: a, b"
    assert summary([payout], type_of(CHANNELS["more"])) == "1 item"
    assert summary({}, NOTHING_DECLARED) == "no fields"
    assert summary([], NOTHING_DECLARED) == "none"
    assert len(summary("x" * 5000, NOTHING_DECLARED)) < 200


def test_the_type_at_a_path_is_the_one_that_the_model_declares() -> None:
    assert type_of(CHANNELS["more"]).at([3, "amount"]).is_amount
    assert not type_of(CHANNELS["anything"]).at(["a", 0, "b"]).is_amount
