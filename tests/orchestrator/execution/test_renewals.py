"""Renewals: people are asked again about what a node acts on, once the signatures that
let it do not count any more.
"""

import html
import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client

from approvals import reviews
from approvals.confirmation import Confirmation
from approvals.models import ApprovalRequest, Decision, Receipt, Sighting
from approvals.people.sightings import note_sightings, seen_row
from checkpoints.core.status import Status
from checkpoints.models import PendingWrite, Run, TaskResult
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, Fact, Gate, Send, Show
from orchestrator.engine.errors import (
    ConfirmationRequired,
    InvalidValue,
    NotAReviewer,
    NotConsidered,
)
from tests.support import call_graphs, cast, run_actions
from tests.support.authority_graphs import leave, paying, payments, signed
from tests.support.small_graphs import advanced, slice_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def paid() -> Iterator[list[int]]:
    with payments() as amounts:
        yield amounts


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def ravi(people: cast.People) -> User:
    return run_actions.reviewer(people.second_reviewer)


def renewal(run: Run) -> ApprovalRequest:
    """The newest request in which people are asked again."""
    newest = ApprovalRequest.objects.filter(run=run, kind="authority").last()
    assert newest is not None
    return newest


def decide(run: Run, by: User, verdict: str, **options: Any) -> Receipt:
    """Decide what people are asked again."""
    row = PendingWrite.objects.filter(run=run, channel="$authority").last()
    assert row is not None
    item = {"write": str(row.write), "hash": row.hash, "verdict": verdict, **options}
    return reviews.sign(run.id, [item], by=by)


def test_people_are_asked_again_what_they_had_applied(
    paid: list[int], rita: User
) -> None:
    gate = Gate(
        reviewers=["group:claims"],
        title="Pay {total}?",
        facts=[Fact("Total", "proposal.total")],
    )
    run = signed(paying(gate=gate), rita)
    leave(rita)
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert run.at_node == "pay"
    request = renewal(run)
    assert (request.task, request.status) == ("pay:1:0", "open")
    assert read_value(request, "title") == "Pay 7?"
    assert read_value(request, "facts") == [{"label": "Total", "value": 7}]
    assert read_value(request, "why") == (
        "What was approved may not be acted on any more: "
        "rita's signature does not count any more: not a reviewer of review"
    )
    row = PendingWrite.objects.get(run=run, channel="$authority")
    assert row.label == "What review approved"
    assert read_value(row, "value") == {
        "gate": "review",
        "writes": [
            {"channel": "letter", "value": "Dear"},
            {"channel": "total", "value": 7},
        ],
    }
    first = ApprovalRequest.objects.get(run=run, node="review")
    opened = run_actions.event_payloads(run, "request_opened")[1]
    assert opened["renews"] == str(first.id)
    assert request.policy["reviewers"] == first.policy["reviewers"]
    assert verify_run(run.id) == []


def test_once_it_is_signed_again_the_node_acts_and_nothing_is_applied_twice(
    paid: list[int], rita: User, ravi: User
) -> None:
    run = signed(paying(), rita)
    before = run_actions.state(run)
    leave(rita)
    run = runs.advance(run.id)
    with pytest.raises(NotAReviewer):
        decide(run, rita, "approve")
    decide(run, ravi, "approve")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert paid == [7]
    assert run_actions.state(run) == {**before, "notes": ["paid 7"]}
    assert TaskResult.objects.filter(run=run).count() == 1
    assert verify_run(run.id) == []


def test_what_was_signed_again_can_be_lost_again(
    paid: list[int], rita: User, ravi: User, people: cast.People
) -> None:
    run = signed(paying(), rita)
    leave(rita)
    run = runs.advance(run.id)
    decide(run, ravi, "approve")
    leave(ravi)
    run_actions.reviewer(rita)
    run = runs.advance(run.id)
    assert (run.status, paid) == (Status.PAUSED, [])
    assert renewal(run).ordinal == 1
    assert "ravi's signature" in read_value(renewal(run), "why")
    assert verify_run(run.id) == []
    decide(run, rita, "approve")
    run = runs.advance(run.id)
    assert (run.status, paid) == (Status.COMPLETED, [7])
    assert verify_run(run.id) == []


def test_what_is_rejected_is_not_done_and_its_edge_is_taken(
    paid: list[int], rita: User, ravi: User
) -> None:
    run = signed(paying(), rita)
    leave(rita)
    run = runs.advance(run.id)
    decide(run, ravi, "reject", reason="She left in a quarrel.")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert paid == []
    assert run_actions.state(run)["notes"] == ["refused"]
    assert not TaskResult.objects.filter(run=run).exists()
    assert verify_run(run.id) == []


def test_nobody_edits_what_was_applied(paid: list[int], rita: User, ravi: User) -> None:
    run = signed(paying(), rita)
    leave(rita)
    run = runs.advance(run.id)
    with pytest.raises(InvalidValue, match="cannot be edited"):
        decide(run, ravi, "edit", value={"gate": "review", "writes": []})
    assert Decision.objects.filter(run=run.id).count() == 2


def test_a_recheck_keeps_a_node_from_acting_until_it_holds_again(
    paid: list[int], rita: User
) -> None:
    answers: list[Any] = ["the account is closed", False, True]
    gate = Gate(
        reviewers=["group:claims"], recheck=lambda state, proposal: answers.pop(0)
    )
    run = runs.advance(signed(paying(gate=gate), rita).id)
    assert "recheck of review: the account is closed" in read_value(renewal(run), "why")
    decide(run, rita, "approve")
    run = runs.advance(run.id)
    assert (run.status, paid) == (Status.PAUSED, [])
    decide(run, rita, "approve")
    run = runs.advance(run.id)
    assert (run.status, paid) == (Status.COMPLETED, [7])


def test_what_needed_nobody_is_asked_about_when_its_recheck_fails(
    paid: list[int], rita: User
) -> None:
    answers = [False, True]
    gate = Gate(
        reviewers=["group:claims"],
        needs_approval=lambda state, proposal: False,
        recheck=lambda state, proposal: answers.pop(0),
    )
    run = advanced(paying(gate=gate))
    assert run.status == Status.PAUSED
    decide(run, rita, "approve")
    run = runs.advance(run.id)
    assert (run.status, paid) == (Status.COMPLETED, [7])
    assert verify_run(run.id) == []


def test_each_task_of_a_fan_out_is_asked_about_by_itself(
    paid: list[int], rita: User, ravi: User
) -> None:
    flow = paying()
    flow.edges[:] = [edge for edge in flow.edges if edge.source != "wait"]
    flow.nodes[:] = [node for node in flow.nodes if node.name != "wait"]
    flow.node("wait", sends="pay")(lambda state, ctx: [Send("pay", n) for n in (1, 2)])
    run = signed(flow, rita)
    leave(rita)
    run = runs.advance(run.id)
    requests = ApprovalRequest.objects.filter(run=run, kind="authority")
    assert [request.task for request in requests] == ["pay:1:0", "pay:1:1"]
    first, second = PendingWrite.objects.filter(run=run, channel="$authority")
    items = [
        {"write": str(first.write), "hash": first.hash, "verdict": "approve"},
        {"write": str(second.write), "hash": second.hash, "verdict": "reject"},
    ]
    reviews.sign(run.id, items, by=ravi)
    run = runs.advance(run.id)
    assert (run.status, paid) == (Status.COMPLETED, [7])
    assert verify_run(run.id) == []


def test_a_fork_of_a_run_that_waits_judges_its_authority_anew(
    paid: list[int], rita: User, ravi: User, people: cast.People
) -> None:
    run = signed(paying(), rita)
    leave(rita)
    run = runs.advance(run.id)
    free = runs.fork(str(run.head), by=people.steward)
    waiting = runs.advance(runs.fork(str(run.head), by=people.steward).id)
    assert waiting.status == Status.PAUSED
    decide(waiting, ravi, "approve")
    assert runs.advance(waiting.id).status == Status.COMPLETED
    assert paid == [7]
    run_actions.reviewer(rita)
    assert not ApprovalRequest.objects.filter(run=free).exists()
    free = runs.advance(free.id)
    assert paid == [7, 7]
    assert verify_run(free.id) == []
    assert verify_run(waiting.id) == []


def test_a_fork_before_the_node_acts_asks_again_for_itself(
    paid: list[int], rita: User, ravi: User, people: cast.People
) -> None:
    run = signed(paying(), rita)
    leave(rita)
    run = runs.advance(run.id)
    decide(run, ravi, "approve")
    turns = iter([False])
    run = slice_of(run, draining=lambda: next(turns, True))
    assert paid == []
    fork = runs.advance(runs.fork(str(run.head), by=people.steward).id)
    assert (fork.status, paid) == (Status.PAUSED, [])
    assert renewal(fork).status == "open"
    assert runs.advance(run.id).status == Status.COMPLETED
    assert paid == [7]
    assert verify_run(fork.id) == []


def test_a_call_acts_on_the_authority_of_its_own_gate(rita: User, ravi: User) -> None:
    flow = call_graphs.paying(node={"authority": "pay"})
    with call_graphs.calls() as calls:
        run = advanced(flow)
        run_actions.sign(run, rita, [("edit", {"payee": "ada", "amount": "12"})])
        leave(rita)
        run = runs.advance(run.id)
        assert (run.status, calls) == (Status.PAUSED, [])
        assert verify_run(run.id) == []
        decide(run, ravi, "approve")
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED
        assert [call[0].amount for call in calls] == [Decimal(12)]
    assert verify_run(run.id) == []


def test_a_call_that_needed_nobody_is_asked_about_when_it_lost_its_authority(
    rita: User,
) -> None:
    answers = [False, True]
    gate = call_graphs.call_gate(
        needs_approval=lambda state, proposal: False,
        recheck=lambda state, proposal: answers.pop(0),
    )
    flow = call_graphs.paying(node={"authority": "pay"}, gate=gate)
    with call_graphs.calls() as calls:
        run = advanced(flow)
        assert (run.status, calls) == (Status.PAUSED, [])
        assert run_actions.request(run).kind == "call"
        run_actions.sign(run, rita, ["approve"])
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED
        assert len(calls) == 1
    assert verify_run(run.id) == []


def test_siblings_go_on_while_people_are_asked_again(
    paid: list[int], rita: User, ravi: User
) -> None:
    flow = paying()
    flow.node("beside")(lambda state, ctx: {"notes": ["beside"]})
    flow.edge("wait", "beside")
    flow.edge("beside", END)
    run = signed(flow, rita)
    leave(rita)
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert run_actions.state(run)["notes"] == ["beside"]
    decide(run, ravi, "approve")
    run = runs.advance(run.id)
    assert run_actions.state(run)["notes"] == ["beside", "paid 7"]


def test_people_are_asked_beside_a_task_that_failed(
    paid: list[int], rita: User, ravi: User
) -> None:
    failing = [True]

    def fails(state: Any, ctx: Any) -> None:
        if failing.pop():
            raise LookupError("gone")

    flow = paying()
    flow.node("beside")(fails)
    flow.edge("wait", "beside")
    flow.edge("beside", END)
    run = signed(flow, rita)
    leave(rita)
    run = runs.advance(run.id)
    assert run.status == Status.FAILED
    decide(run, ravi, "approve")
    failing.append(False)
    run = runs.resume(run.id, by=ravi, reason="it is back")
    run = runs.advance(run.id)
    assert (run.status, paid) == (Status.COMPLETED, [7])
    assert verify_run(run.id) == []


def test_a_run_is_replayed_whose_people_were_asked_again(
    paid: list[int], rita: User, ravi: User, people: cast.People
) -> None:
    run = signed(paying(), rita)
    leave(rita)
    run = runs.advance(run.id)
    decide(run, ravi, "approve")
    run = runs.advance(run.id)
    first = str(run.checkpoints.order_by("seq")[0].id)
    replay = runs.advance(runs.replay(first, by=people.steward).id)
    assert replay.status == Status.COMPLETED
    assert run_actions.state(replay) == run_actions.state(run)
    assert paid == [7]


def test_a_run_is_replayed_whose_people_rejected_what_they_were_asked_again(
    paid: list[int], rita: User, ravi: User, people: cast.People
) -> None:
    run = signed(paying(), rita)
    leave(rita)
    run = runs.advance(run.id)
    decide(run, ravi, "reject", reason="no more")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["refused"]
    request_count = ApprovalRequest.objects.count()
    first = str(run.checkpoints.order_by("seq")[0].id)
    replay = runs.advance(runs.replay(first, by=people.steward).id)
    assert replay.status == Status.COMPLETED
    # It goes the way that the rejection took, and asks nobody.
    assert run_actions.state(replay) == run_actions.state(run)
    assert paid == []
    assert ApprovalRequest.objects.count() == request_count
    assert verify_run(replay.id) == []


def test_who_had_to_look_before_a_signature_has_to_look_again(
    paid: list[int], rita: User, ravi: User
) -> None:
    gate = Gate(reviewers=["group:claims"], considered=timedelta(seconds=10), quorum=2)
    run = advanced(paying(gate=gate))
    request = ApprovalRequest.objects.get(run=run)
    items = []
    seen = []
    for row in PendingWrite.objects.filter(run=run):
        items.append({"write": str(row.write), "hash": row.hash, "verdict": "approve"})
        seen.append(seen_row(request, row, opened=False))
    for person in (rita, ravi):
        note_sightings(person, seen)
        Sighting.objects.update(at=F("at") - timedelta(seconds=10))
        reviews.sign(run.id, items, by=person)
    leave(rita)
    run = runs.advance(run.id)
    assert (run.status, paid) == (Status.PAUSED, [])
    assert renewal(run).policy["considered"] == 10
    with pytest.raises(NotConsidered):
        decide(run, ravi, "approve")


def test_who_had_to_confirm_a_signature_has_to_confirm_it_again(
    paid: list[int], rita: User, ravi: User
) -> None:
    gate = Gate(
        reviewers=["group:claims"],
        confirm="password",
        confirm_above=5,
        writes={"letter": Show(money="amount")},
        quorum=2,
    )
    run = advanced(paying(gate=gate))
    items = []
    for row in PendingWrite.objects.filter(run=run):
        items.append({"write": str(row.write), "hash": row.hash, "verdict": "approve"})
    for person in (rita, ravi):
        confirmed = Confirmation(person.pk, "password")
        reviews.sign(run.id, items, by=person, confirmation=confirmed)
    leave(rita)
    run = runs.advance(run.id)
    assert (run.status, paid) == (Status.PAUSED, [])
    policy = renewal(run).policy
    assert (policy["confirm"], policy["quorum"]) == ("password", 2)
    assert "confirm_above" not in policy
    with pytest.raises(ConfirmationRequired):
        decide(run, ravi, "approve")


def test_the_pages_say_that_it_is_asked_again_and_why(
    paid: list[int], rita: User, ravi: User, client: Client
) -> None:
    run = signed(paying(), rita)
    leave(rita)
    run = runs.advance(run.id)
    client.force_login(ravi)
    review = _text(client, f"/reviews/{run.key}/")
    assert "rita's signature does not count any more: not a reviewer" in review
    assert "Asked again before pay runs: it acts on this, which was" in review
    assert "It was applied before, so it can be approved or rejected" in review
    assert "It is written into the run" not in review
    assert "pay does not run" in review
    assert "asked again before it runs" in _text(client, "/reviews/")
    receipt = decide(run, ravi, "approve")
    assert "What review approved" in _text(client, f"/receipts/{receipt.id}/")


def _text(client: Client, address: str) -> str:
    """Return what a page says."""
    answer = client.get(address, follow=True)
    assert answer.status_code == 200
    text = re.sub(r"<[^>]+>", " ", html.unescape(answer.content.decode()))
    return re.sub(r"\s+", " ", text)


def test_a_renewal_has_no_deadline_whatever_the_terms_of_its_gate_say(
    paid: list[int], rita: User, ravi: User
) -> None:
    def terms(asked: Any) -> dict[str, Any]:
        return {
            "reviewers": ["group:claims"],
            "deadline": timedelta(minutes=5),
            "reject_quorum": 2,
        }

    run = signed(paying(gate=Gate(terms=terms)), rita)
    leave(rita)
    run = runs.advance(run.id)
    request = renewal(run)
    assert (request.deadline, request.policy["reject_quorum"]) == (None, 2)
    assert request.policy["reviewers"] == ["group:claims"]
    decide(run, ravi, "approve")
    run = runs.advance(run.id)
    assert (run.status, paid) == (Status.COMPLETED, [7])
    assert verify_run(run.id) == []
