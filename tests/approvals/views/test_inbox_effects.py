"""The effects of requests in the inbox, where rows and graph do not fit each other."""

from typing import Any

import pytest

from approvals.models import ApprovalRequest, Notice
from approvals.notices import message
from approvals.views import inbox_effects
from checkpoints.models import PendingWrite
from checkpoints.verification import verify_run
from orchestrator.engine import END, START, Gate, Write
from tests.support import claims
from tests.support.cast import People
from tests.support.forging import rewrite
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_amount_that_this_version_of_the_graph_does_not_declare_has_no_currency(
    people: People,
) -> None:
    with claims.registered(claims.in_two_steps()):
        claims.paused("CLM-1", people.starter, graph="two_steps")
        rewrite(PendingWrite.objects.get(channel="payout"), channel="count")
        request = ApprovalRequest.objects.select_related("run").get()
        effects = inbox_effects.effects_of([request])[request.id]
    sums = [effect.sums for effect in effects if effect.sums]
    assert [list(by_currency) for by_currency in sums] == [[""]]


@pytest.mark.parametrize("amount", ["1E+1000000", "9E+999999", "sNaN", "NaN"])
def test_an_amount_that_cannot_be_summed_fails_no_page_and_no_message(
    amount: str, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_or_reason(row: PendingWrite, column: str) -> dict[str, str]:
        return {"money": amount}

    monkeypatch.setattr(inbox_effects, "read_or_reason", read_or_reason)
    with claims.registered(claims.in_two_steps()):
        claims.paused("CLM-1", people.starter, graph="two_steps")
        request = ApprovalRequest.objects.select_related("run").get()
        effects = inbox_effects.effects_of([request])[request.id]
        message.data_of(Notice.objects.get(event="request.opened"))
    assert [effect.sums for effect in effects if effect.sums] == []


def test_without_money_no_column_of_a_write_is_read(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_or_reason(row: PendingWrite, column: str) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr(inbox_effects, "read_or_reason", read_or_reason)
    with claims.registered(claims.in_two_steps()):
        claims.paused("CLM-1", people.starter, graph="two_steps")
        request = ApprovalRequest.objects.select_related("run").get()
        effects = inbox_effects.effects_of([request], with_money=False)
    assert sum(effect.count for effect in effects[request.id])


def test_the_effect_that_a_write_names_is_counted(people: People) -> None:
    made = graph("named-effects")

    @made.node("propose", effect="human", gate=Gate(reviewers=["group:claims"]))
    def propose(state: Any, ctx: Any) -> list[Write]:
        return [
            Write("notes", ["a"], effect="external"),
            Write("notes", ["b"], effect="external"),
            Write("notes", ["c"], effect="pure"),
            Write("letter", "Dear"),
        ]

    made.edge(START, "propose")
    made.edge("propose", END)
    run = advanced(made)
    request = ApprovalRequest.objects.select_related("run").get()
    assert request.policy["effects"] == {"notes": {"external": 2, "pure": 1}}
    effects = inbox_effects.effects_of([request], with_money=False)[request.id]
    assert [(one.effect, one.count) for one in effects] == [
        ("write", 2),
        ("external", 2),
    ]
    message.data_of(Notice.objects.get(event="request.opened"))
    assert verify_run(run.id) == []
