"""What an edit may make of a proposed value, and what it may not."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.engine import END, START, Gate, Graph, Limit, Show, play
from orchestrator.engine.errors import InvalidGraph, InvalidValue
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.graphs.gate import present
from orchestrator.engine.graphs.limit import (
    MOST_FAULTS,
    faults_of_edit,
    limit_in_words,
)
from tests.engine.small import graph_of
from tests.support.small_graphs import Notes, Order

PROPOSED = {
    "amount": "100.00",
    "payee": {"iban": "DE89"},
    "due": "2026-11-28",
    "items": [{"price": 1}, {"price": 2}],
}


def _edited(**changes: Any) -> dict[str, Any]:
    return {**PROPOSED, **changes}


def _faults(path: str, limit: Limit, edited: Any, proposed: Any = None) -> list[str]:
    """The sentences about an edit under one limit."""
    stored = _stored(path, limit)
    proposed = PROPOSED if proposed is None else proposed
    faults = faults_of_edit([stored], proposed=proposed, edited=edited)
    return [f"{fault.path} {fault.reason}".strip() for fault in faults]


def _stored(path: str, limit: Limit, **sources: Any) -> dict[str, Any]:
    """A limit as the request of a gate with it stores it."""
    shown = present(
        Gate(reviewers=["user:ann"], writes={"payout": Show(limits={path: limit})}),
        node="ask",
        input=sources,
        state={"scratch": {}, "artifacts": {}},
        writes=[_Proposed()],
    )
    (stored,) = shown["writes"][0]["limits"]
    return dict(stored)


class _Proposed:
    channel = "payout"
    value = PROPOSED
    label = None


@pytest.mark.parametrize(
    ("path", "limit", "edit", "fault"),
    [
        ("amount", Limit(at_most=Decimal(150)), {"amount": "150.00"}, ""),
        (
            "amount",
            Limit(at_most=Decimal(150)),
            {"amount": "150.01"},
            "amount must be at most 150",
        ),
        # Amounts are compared as numbers: as text, "90" is more than "150".
        ("amount", Limit(at_most=150), {"amount": "90"}, ""),
        ("amount", Limit(at_least=1), {"amount": "0.99"}, "amount must be at least 1"),
        ("amount", Limit(at_least=1), {"amount": "a lot"}, "amount must be at least 1"),
        ("amount", Limit(at_most=150), {"amount": True}, "amount must be at most 150"),
        ("amount", Limit(at_most=150), {"amount": "NaN"}, "amount must be at most 150"),
        (
            "due",
            Limit(at_most=date(2026, 12, 31)),
            {"due": "2027-01-01"},
            "due must be at most 2026-12-31",
        ),
        ("due", Limit(at_most=date(2026, 12, 31)), {"due": "2026-12-31"}, ""),
        (
            "amount",
            Limit(choices=["100.00", 50]),
            {"amount": "75.00"},
            'amount must be one of "100.00", 50',
        ),
        (
            "payee.iban",
            Limit(unchanged=True),
            {"payee": {"iban": "DE00"}},
            "payee.iban must stay as it was proposed",
        ),
        (
            "items.*.price",
            Limit(at_most=5),
            {"items": [{"price": 1}, {"price": 6}]},
            "items.1.price must be at most 5",
        ),
        # The same amount, written otherwise.
        ("amount", Limit(choices=[50]), {"amount": "50.00"}, ""),
        ("due", Limit(at_most=date(2026, 12, 31)), {"due": "2026-12-31T23:59"}, ""),
        # Digits that a consumer may read otherwise are no number.
        (
            "amount",
            Limit(at_most=150),
            {"amount": "1_0"},
            "amount must be at most 150",
        ),
        (
            "items[0].price",
            Limit(at_most=5),
            {"items": [{"price": 6}, {"price": 2}]},
            "items.0.price must be at most 5",
        ),
        (
            "value.amount",
            Limit(at_most=150),
            {"amount": "151"},
            "amount must be at most 150",
        ),
        (
            "items.0.price",
            Limit(at_most=5),
            {"items": [{"price": 6}, {"price": 6}]},
            "items.0.price must be at most 5",
        ),
    ],
)
def test_an_edit_keeps_the_limit_of_the_part_that_it_changes(
    path: str, limit: Limit, edit: dict[str, Any], fault: str
) -> None:
    assert _faults(path, limit, _edited(**edit)) == ([fault] if fault else [])


def test_a_part_that_stays_as_it_was_proposed_is_within_every_limit() -> None:
    assert _faults("amount", Limit(at_most=10), _edited(due="2027-01-01")) == []


def test_a_part_that_is_bound_is_not_removed() -> None:
    edited = dict(PROPOSED)
    del edited["amount"]
    assert _faults("amount", Limit(at_most=150), edited) == [
        "amount must not be removed"
    ]


def test_an_item_leaves_a_list_unless_the_list_stays_as_it_was_proposed() -> None:
    shorter = _edited(items=[{"price": 1}])
    assert _faults("items.*.price", Limit(at_most=5), shorter) == []
    assert _faults("items.*.price", Limit(unchanged=True), shorter) == [
        "items.1.price must not be removed"
    ]


def test_an_item_does_not_lose_what_is_bound() -> None:
    edited = _edited(items=[{"price": 1}, {"rate": 1_000_000}])
    assert _faults("items.*.price", Limit(at_most=5), edited) == [
        "items.1 must have price, which is bound"
    ]


def test_an_item_that_stays_whole_is_within_every_limit_wherever_it_stands() -> None:
    assert (
        _faults(
            "items.*.price",
            Limit(at_most=100),
            _edited(items=[{"price": 500}]),
            proposed=_edited(items=[{"price": 1}, {"price": 500}]),
        )
        == []
    )


def test_no_item_takes_the_place_of_one_that_was_above_the_limit() -> None:
    # The large price was of another item, and only once.
    large = {"name": "a", "price": 500}
    proposed = _edited(items=[large, {"name": "b", "price": 1}])
    for items in ([{"name": "b", "price": 500}], [large, large]):
        faults = _faults(
            "items.*.price",
            Limit(at_most=100),
            _edited(items=items),
            proposed=proposed,
        )
        assert len(faults) == 1


def test_a_path_that_leads_nowhere_lets_no_edit_pass() -> None:
    assert _faults("amonut", Limit(at_most=5), _edited(amount="1")) == [
        "amonut leads nowhere, so its limit lets no edit pass"
    ]


def test_below_null_nothing_is_there_to_be_bound() -> None:
    proposed = _edited(payee=None)
    limit = Limit(unchanged=True)
    unchanged = _edited(payee=None, amount="1")
    assert _faults("payee.iban", limit, unchanged, proposed=proposed) == []
    named = _edited(payee={"iban": "DE00"})
    assert _faults("payee.iban", limit, named, proposed=proposed) == [
        "payee.iban must stay as it was proposed"
    ]


def test_a_refusal_names_only_the_first_parts() -> None:
    items = [{"price": 10}] * 1000
    faults = _faults("items.*.price", Limit(at_most=5), _edited(items=items))
    assert len(faults) == MOST_FAULTS


def test_a_part_that_an_edit_adds_keeps_the_limit_too() -> None:
    assert _faults("amount", Limit(at_most=5), {"amount": 6}, proposed={}) == [
        "amount must be at most 5"
    ]
    assert _faults("amount", Limit(unchanged=True), {"amount": 6}, proposed={}) == [
        "amount must stay as it was proposed"
    ]


def test_the_whole_of_a_value_has_a_limit_under_its_own_name() -> None:
    assert _faults("value", Limit(at_most=5), 6, proposed=1) == ["must be at most 5"]
    assert _faults("value", Limit(at_most=5), 5, proposed=1) == []


def test_a_bound_is_taken_from_the_input_when_the_request_is_opened() -> None:
    limit = Limit(at_most="{input.most}")
    assert _stored("amount", limit, most="120.00") == {
        "path": "amount",
        "at_most": "120.00",
    }


def test_a_bound_that_leads_nowhere_lets_no_edit_pass() -> None:
    stored = _stored("amount", Limit(at_most="{input.most}"))
    faults = faults_of_edit(
        [stored], proposed=PROPOSED, edited=_edited(amount="100.01")
    )
    assert faults == [
        ("amount", "cannot be edited: its limit is input.most, which is not there")
    ]


def test_a_limit_reads_as_a_reviewer_would_say_it() -> None:
    both = Limit(at_least=1, at_most=Decimal("4512.50"))
    assert limit_in_words(_stored("amount", both)) == (
        "amount at least 1 and at most 4512.50"
    )
    assert limit_in_words(_stored("payee", Limit(unchanged=True))) == (
        "payee as proposed"
    )
    assert limit_in_words(_stored("value", Limit(choices=[1, 2]))) == (
        "the value one of 1, 2"
    )


@pytest.mark.parametrize(
    ("show", "fault"),
    [
        (Show(limits={"amount": 5}), r"limits has 5 for amount"),
        (Show(limits={"": Limit(at_most=5)}), r"limits has '' for a path"),
        (Show(limits={"amount": Limit()}), "the limit of amount bounds nothing"),
        (Show(limits={"amount": Limit(choices=[])}), "the choices of amount are empty"),
        (Show(limits={"amount": Limit(choices="EUR")}), "must be a list, not 'EUR'"),
        (
            Show(limits={"amount": Limit(at_most="a lot")}),
            "at_most of amount is 'a lot', which is no number, no date",
        ),
        (Show(limits={"a..b": Limit(at_most=5)}), "limits has 'a..b' for a path"),
        (Show(limits={"amount": Limit(choices=5)}), "must be a list, not 5"),
        (Show(limits={"amount": Limit(choices=["{input.x}"])}), "are no templates"),
        (Show(limits={"amount": Limit(choices=[print])}), "of amount is no JSON"),
        (Show(limits={"amount": Limit(at_most=float("nan"))}), "is nan, which is no"),
        (
            Show(limits={"amount": Limit(at_most="{payout.amount}")}),
            "at_most of amount is read from payout.amount",
        ),
        (Show(limits=["amount"]), r"limits=\['amount'\] of Show for note is no dict"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused_at_registration(
    show: Show, fault: str
) -> None:
    gate = Gate(reviewers=["user:ann"], writes={"note": show})
    with pytest.raises(InvalidGraph, match=fault):
        compile(
            graph_of(
                [(START, "ask"), ("ask", END)],
                {"ask": {"effect": "human", "gate": gate}},
            )
        )


def test_a_played_edit_keeps_the_limits() -> None:
    limits = {"value": Limit(choices=["yes", "no"])}
    gate = Gate(reviewers=["user:ann"], writes={"letter": Show(limits=limits)})
    flow = Graph("played_limits", input=Order, state=Notes)

    @flow.node(effect="human", gate=gate)
    def ask(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "perhaps"}

    flow.edge(START, "ask")
    flow.edge("ask", END)
    with pytest.raises(InvalidValue, match='letter must be one of "yes", "no"'):
        play(flow, {}, decisions=lambda request: {0: ("edit", "never")})
    played = play(flow, {}, decisions=lambda request: {0: ("edit", "no")})
    assert played.state["scratch"]["letter"] == "no"
