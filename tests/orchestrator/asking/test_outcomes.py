"""What came of approved items, as whoever acted on them reports it."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import reviews
from approvals.models import Notice
from checkpoints import retention, timeline
from checkpoints.models import RunEvent
from checkpoints.verification import verify_run
from orchestrator import asking, runs
from orchestrator.engine import registry
from orchestrator.engine.errors import (
    AlreadyReported,
    Erased,
    Forbidden,
    InvalidValue,
    StaleProposal,
    TamperedRow,
    UnknownThing,
    WrongStatus,
)
from orchestrator.graphs import approval
from tests.support.approvals import decided, opened, payers, reported
from tests.support.bundles import PUBLIC, foreign, loaded
from tests.support.cast import People
from tests.support.forging import tamper
from tests.support.rows import a_run
from tests.support.run_actions import event_payloads
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def ann(db: Any) -> User:
    registry.replace(approval)
    person = User.objects.create_user("ann")
    payers(person)
    return person


def _said(item: str = "inv-1", result: str = "done", **more: Any) -> dict[str, Any]:
    return {"item": item, "result": result, **more}


def _results(asked: asking.Approval) -> list[str | None]:
    return [item.outcome and item.outcome.result for item in asked.items]


def test_what_came_of_an_approved_item_stands_beside_it_and_in_the_log(
    ann: User,
) -> None:
    asked = decided(opened(reports=True), ann, "approve", "approve")
    assert asked.reports
    assert not asked.is_reported
    said = [_said(), _said("inv-2", "failed", detail="no such account")]
    after = reported(asked.run, said, by=ann)
    assert _results(after) == ["done", "failed"]
    assert after.is_reported
    assert after.items[1].outcome is not None
    assert after.items[1].outcome.detail == "no such account"
    assert after.items[1].outcome.by == "ann"
    assert after.items[1].outcome.hash == asked.items[1].hash
    assert len(event_payloads(asked.run, "outcome_reported")) == 2
    assert verify_run(asked.run.id) == []


def test_the_same_report_again_changes_nothing(ann: User) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    first = reported(asked.run, [_said(detail="paid")])
    again = reported(asked.run, [_said(detail="paid"), _said("inv-2")])
    assert _results(first) == ["done", None]
    assert _results(again) == ["done", "done"]
    assert again.items[0].outcome == first.items[0].outcome
    assert len(event_payloads(asked.run, "outcome_reported")) == 2


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [
        ("done", _said(result="failed"), False),
        ("done", _said(result="unknown"), False),
        ("done", _said(detail="again"), False),
        ("failed", _said(result="failed", detail="still"), False),
        ("unknown", _said(result="unknown", detail="still"), False),
        ("unknown", _said(result="done"), True),
        ("unknown", _said(result="failed"), True),
        ("failed", _said(result="done"), True),
        ("failed", _said(result="unknown"), True),
    ],
)
def test_another_result_follows_what_is_not_done(
    ann: User, first: str, second: dict[str, Any], stands: bool
) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    reported(asked.run, [_said(result=first)])
    if stands:
        after = reported(asked.run, [second])
        assert _results(after)[0] == second["result"]
        return
    with pytest.raises(AlreadyReported) as refused:
        reported(asked.run, [_said("inv-2"), second])
    assert refused.value.facts["item"] == "inv-1"
    assert _results(asking.approval_of(asked.run)) == [first, None]


def test_attempts_without_end_leave_few_lines(ann: User) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    for _ in range(10):
        reported(asked.run, [_said(result="failed")])
        reported(asked.run, [_said(result="unknown")])
    with pytest.raises(AlreadyReported):
        reported(asked.run, [_said(result="failed")])
    assert len(event_payloads(asked.run, "outcome_reported")) == 20
    assert _results(reported(asked.run, [_said()]))[0] == "done"


def test_only_what_is_approved_is_reported(ann: User) -> None:
    asked = opened()
    with pytest.raises(WrongStatus) as refused:
        reported(asked.run, [_said()])
    assert refused.value.facts["item"] == "inv-1"
    asked = decided(asked, ann, "approve", "reject")
    with pytest.raises(WrongStatus) as refused:
        reported(asked.run, [_said(), _said("inv-2")])
    assert refused.value.facts["item"] == "inv-2"
    assert _results(asking.approval_of(asked.run)) == [None, None]


def _with_one_signed(ann: User) -> asking.Approval:
    asked = opened(reports=True)
    item = asked.items[0]
    signed = {"write": str(item.write), "hash": item.hash, "verdict": "approve"}
    reviews.sign(asked.run.id, [signed], by=ann)
    asked = asking.approval_of(runs.advance(asked.run.id))
    assert [item.verdict for item in asked.items] == ["approved", ""]
    return asked


def test_what_is_signed_of_one_item_is_not_reported_while_others_are_open(
    ann: User,
) -> None:
    asked = _with_one_signed(ann)
    with pytest.raises(WrongStatus) as refused:
        reported(asked.run, [_said(result="failed")])
    assert refused.value.facts["item"] == "inv-1"
    assert event_payloads(asked.run, "outcome_reported") == []
    assert not Notice.objects.filter(event="request.outcome_reported").exists()


def test_of_a_question_that_was_taken_back_nothing_is_reported(ann: User) -> None:
    asked = asking.cancel(_with_one_signed(ann).run.id)
    assert asked.state == "cancelled"
    # Nobody waits for what cannot be reported.
    assert asked.is_reported
    with pytest.raises(WrongStatus):
        reported(asked.run, [_said()])
    assert event_payloads(asked.run, "outcome_reported") == []


def test_what_was_acted_on_is_held_against_what_was_signed(ann: User) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    with pytest.raises(StaleProposal):
        reported(asked.run, [_said(hash="0" * 64)])
    after = reported(asked.run, [_said(hash=asked.items[0].hash)])
    assert _results(after)[0] == "done"


@pytest.mark.parametrize(
    ("outcomes", "path"),
    [
        ([], "outcomes"),
        ("done", "outcomes"),
        (["done"], "outcomes[0]"),
        ([{"item": "inv-1"}], "outcomes[0]"),
        ([_said()], "outcomes[0]"),
        ([_said(hash=None)], "outcomes[0].hash"),
        ([_said(colour="red", hash="x")], "outcomes[0]"),
        ([_said(result="paid", hash="x")], "outcomes[0].result"),
        ([_said(detail="x" * 2001, hash="x")], "outcomes[0].detail"),
        ([_said(detail="\x00", hash="x")], "outcomes[0].detail"),
        ([_said(7, hash="x")], "outcomes[0].item"),  # type: ignore[arg-type]
        ([_said(hash="x"), _said(hash="x")], "outcomes[1].item"),
        ([_said("inv-9", hash="x")], "item"),
    ],
)
def test_a_wrong_report_names_its_place(ann: User, outcomes: Any, path: str) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    with pytest.raises(InvalidValue) as refused:
        asking.report(asked.run.id, outcomes)
    assert refused.value.facts["path"] == path
    assert event_payloads(asked.run, "outcome_reported") == []


def test_a_run_of_another_graph_has_no_outcomes_to_report() -> None:
    other = a_run()
    with pytest.raises(UnknownThing):
        asking.report(other.id, [_said(hash="0" * 64)])


def test_what_was_asked_again_is_reported_anew(ann: User) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    reported(asked.run, [_said(result="failed")])
    [*_, first] = timeline.list_checkpoints(asked.run.id)
    runs.rewind(asked.run.id, first.id)
    again = asking.approval_of(runs.advance(asked.run.id))
    assert _results(again) == [None, None]
    with pytest.raises(WrongStatus):
        reported(asked.run, [_said()])
    again = decided(again, ann, "approve", "approve")
    with pytest.raises(StaleProposal):
        asking.report(asked.run.id, [_said(hash=asked.items[0].hash)])
    assert _results(reported(asked.run, [_said()])) == ["done", None]
    assert verify_run(asked.run.id) == []


def test_a_fork_from_behind_the_decision_has_nothing_to_report(ann: User) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    reported(asked.run, [_said()])
    [last, *_] = timeline.list_checkpoints(asked.run.id)
    fork = runs.advance(runs.fork(last.id).id)
    assert fork.status == "completed"
    with pytest.raises(WrongStatus):
        reported(fork, [_said()])


def test_a_bundle_brings_reports_along_and_nobody_adds_to_them(
    ann: User, people: People, configure: Any
) -> None:
    configure(TRUSTED_KEYS={"north": PUBLIC})
    asked = decided(opened(), ann, "approve", "approve")
    reported(asked.run, [_said(result="failed", detail="closed")])
    data = foreign(asked.run)
    imported = loaded(data)
    shown = asking.approval_of(imported)
    assert _results(shown) == ["failed", None]
    assert verify_run(imported.id) == []
    with pytest.raises(WrongStatus):
        reported(imported, [_said("inv-2")])


def test_what_a_report_said_is_erased_with_its_run(ann: User, people: People) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    reported(asked.run, [_said(result="failed", detail="Mrs Miller moved")])
    retention.erase(asked.run.id, by=people.steward)
    [facts] = event_payloads(asked.run, "outcome_reported")
    assert "Miller" not in str(facts)
    assert facts["result"] == "failed"
    with pytest.raises(Erased):
        reported(asked.run, [_said("inv-2")])
    assert verify_run(asked.run.id) == []


def test_a_report_that_was_changed_is_refused_and_named(ann: User) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    reported(asked.run, [_said(result="failed")])
    line = RunEvent.objects.get(run=asked.run.id, type="outcome_reported")
    tamper(line, task=line.task.replace("failed", "done"))
    with pytest.raises(TamperedRow):
        asking.approval_of(asked.run)
    assert verify_run(asked.run.id) != []


def test_a_report_is_not_hidden_by_a_change_to_be_about_another_request(
    ann: User,
) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    reported(asked.run, [_said(result="failed")])
    line = RunEvent.objects.get(run=asked.run.id, type="outcome_reported")
    tamper(line, task=f"{asked.run.id}/{asked.items[0].write}/failed")
    with pytest.raises(TamperedRow):
        reported(asked.run, [_said()])
    assert len(event_payloads(asked.run, "outcome_reported")) == 1


def test_who_approved_hears_of_a_failure_and_of_nothing_that_went_well(
    ann: User,
) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    notices = Notice.objects.filter(event="request.outcome_reported")
    reported(asked.run, [_said()])
    assert not notices.exists()
    reported(asked.run, [_said("inv-2", "unknown")])
    reported(asked.run, [_said("inv-2", "failed")])
    assert [row.outcome for row in notices.order_by("id")] == ["unknown", "failed"]


def test_by_code_too_only_who_asked_and_stewards_report(
    ann: User, people: People, configure: Any
) -> None:
    asked = decided(opened(), ann, "approve", "approve")
    configure(VERBS_ASK_RIGHTS=True)
    for person in (people.nobody, people.starter):
        with pytest.raises(Forbidden):
            reported(asked.run, [_said()], by=person)
    assert _results(reported(asked.run, [_said()]))[0] == "done"
    own = decided(opened(by=people.starter), ann, "approve", "approve")
    reported(own.run, [_said()], by=people.starter)
    after = reported(own.run, [_said("inv-2")], by=people.steward)
    assert _results(after) == ["done", "done"]


def test_a_report_costs_the_same_however_many_items_it_has(ann: User) -> None:
    costs = []
    for count in (2, 40):
        items = [{"id": f"i{number}", "value": number} for number in range(count)]
        asked = decided(opened(items=items), ann, *["approve"] * count)
        said = [_said(item.id, hash=item.hash) for item in asked.items]
        with counted() as statements:
            asking.report(asked.run.id, said, by=ann)
        costs.append(len(statements))
    assert costs[0] == costs[1]
    assert costs[0] < 30


def test_the_settings_encrypt_an_approval_and_what_is_reported_of_it(
    ann: User, configure: Any
) -> None:
    configure(ENCRYPT_APPROVALS=True, ENCRYPTION_KEYS={"e": b"e" * 32})
    asked = decided(opened(), ann, "approve", "approve")
    assert asked.run.encrypted
    assert "invoices" not in asked.run.label
    after = reported(asked.run, [_said(result="failed", detail="closed")])
    assert after.items[0].outcome is not None
    assert after.items[0].outcome.detail == "closed"
    line = RunEvent.objects.get(run=asked.run, type="outcome_reported")
    assert b"closed" not in bytes(line.payload)
    assert verify_run(asked.run.id) == []
    configure(ENCRYPT_APPROVALS=False)
    assert not opened().run.encrypted
