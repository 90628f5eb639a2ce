"""account_change, played in memory: two people sign, and the policyholder hears of it."""

import pytest
from django.core import mail

from orchestrator.demo.accounts.graphs import graph
from orchestrator.engine import play

pytestmark = pytest.mark.django_db(transaction=True)
CHANGE = {
    "policy": "POL-2207",
    "payee": "Nora Field",
    "account": "NL91ABNA0417164300",
    "email": "nora@example.com",
}


def test_a_change_asks_two_people_with_four_eyes_and_nothing_is_sent_before() -> None:
    played = play(graph, CHANGE)
    assert played.status == "paused"
    (request,) = played.gates
    assert [write.label for write in request.writes] == [
        "Pay Nora Field to NL91ABNA0417164300"
    ]
    assert mail.outbox == []


@pytest.mark.parametrize(("verdict", "letters"), [("approve", 1), ("reject", 0)])
def test_the_policyholder_hears_of_what_was_approved(
    verdict: str, letters: int
) -> None:
    played = play(graph, CHANGE, decisions=lambda request: {0: (verdict, None)})
    assert played.status == "completed"
    assert len(mail.outbox) == letters
