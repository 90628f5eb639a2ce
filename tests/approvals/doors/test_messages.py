"""What comes of messages at doors."""

from typing import Any

import pytest

from approvals.doors import messages
from approvals.doors import verbs as doors
from approvals.models import ApprovalRequest, Decision, DoorMessage
from checkpoints import retention, timeline
from checkpoints.core.status import Status
from checkpoints.models import AuditLine, Job, Run
from checkpoints.queue import jobs
from orchestrator import runs
from orchestrator.engine import Graph
from orchestrator.engine.errors import UnknownThing, WrongStatus
from orchestrator.jobs import kinds
from tests.support import cast, run_actions
from tests.support.doors import Sender, ask_only, came_of, waiting_run, work_off
from tests.support.question_graphs import ask_total, asking
from tests.support.run_actions import state
from tests.support.small_graphs import advanced, registered
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


def refused(sender: Sender, **message: Any) -> str:
    """Send a message that is refused with 409, and return why."""
    answer = sender.send(**message)
    assert answer.status_code == 409
    reason: str = answer.json()["reason"]
    return reason


def test_an_account_that_is_no_reviewer_signs_nothing_and_leaves_a_line() -> None:
    sender = Sender()
    waiting_run(reviewers=["group:others"])
    assert refused(sender) == "not_a_reviewer"
    assert not Decision.objects.exists()
    assert AuditLine.objects.get(kind="refused_not_a_reviewer").actor_name == "bank"


def test_a_review_in_which_anything_but_one_question_stands_is_not_signed() -> None:
    sender = Sender()
    registered(asking(fn=ask_total))
    runs.advance(runs.start("asking", {}, key="A-1").id)
    assert refused(sender) == "not_a_question"
    assert not Decision.objects.exists()


def test_a_review_of_a_proposal_is_not_signed() -> None:
    sender = Sender()
    registered(asking(fn=lambda state, ctx: {"total": 5}))
    runs.advance(runs.start("asking", {}, key="A-1").id)
    assert refused(sender) == "not_a_question"
    assert not Decision.objects.exists()


def test_an_account_of_a_person_signs_nothing(people: cast.People) -> None:
    sender = Sender()
    waiting_run()
    sender.account.set_password("a person has logged in")
    sender.account.save()
    assert refused(sender) == "no_service_account"
    assert not Decision.objects.exists()


def test_a_question_that_a_person_answered_is_not_answered_again(
    people: cast.People,
) -> None:
    sender = Sender()
    run = waiting_run()
    run_actions.sign(run, run_actions.reviewer(people.reviewer), [("edit", 9)])
    assert refused(sender) == "already_decided"
    run = runs.advance(run.id)
    assert refused(sender, id="msg_2") == "run_ended"
    assert state(run)["total"] == 9


def test_an_answer_that_others_have_to_sign_too_is_not_replaced(
    people: cast.People,
) -> None:
    sender = Sender()
    sender.send("msg_1", paid=1)
    sender.send("msg_2", paid=2)
    run = waiting_run(quorum=2)
    work_off()
    assert came_of("msg_1") == ("delivered", "")
    assert came_of("msg_2") == ("refused", "already_decided")
    rita = run_actions.reviewer(people.reviewer)
    run_actions.sign(run, rita, [("edit", 9)])
    # Rita's value is another question to the bank.
    assert sender.send("msg_3", paid=9).status_code == 200
    run_actions.sign(run, rita, ["approve"])
    assert state(runs.advance(run.id))["total"] == 9


def test_the_oldest_of_several_kept_messages_is_the_answer() -> None:
    sender = Sender()
    sender.send("msg_1", paid=1)
    sender.send("msg_2", paid=2)
    run = waiting_run()
    work_off()
    assert came_of("msg_1") == ("delivered", "")
    assert came_of("msg_2") == ("refused", "already_decided")
    assert state(runs.advance(run.id))["total"] == 1


def test_a_steward_offers_a_refused_message_again_once_that_is_mended(
    people: cast.People,
) -> None:
    sender = Sender()
    run = waiting_run(reviewers=["group:later"])
    refused(sender, paid=8)
    message = DoorMessage.objects.get()
    for person in (people.nobody, people.reviewer, people.auditor):
        with pytest.raises(UnknownThing):
            messages.deliver_again(message.id, by=person)
    assert came_of() == ("refused", "not_a_reviewer")
    run_actions.Group.objects.create(name="later").user_set.add(sender.account)
    messages.deliver_again(message.id, by=people.steward)
    assert came_of() == ("delivered", "")
    line = AuditLine.objects.get(kind="door_message_offered")
    assert (line.actor_name, line.facts["message"]) == ("stella", "msg_1")
    assert state(runs.advance(run.id))["total"] == 8
    with pytest.raises(UnknownThing):
        messages.deliver_again(message.id, by=people.steward)


def test_a_message_that_is_kept_is_refused_while_its_door_is_off() -> None:
    sender = Sender()
    sender.send()
    doors.switch_door(sender.door.id, enabled=False, by=None)
    waiting_run()
    work_off()
    assert came_of() == ("refused", "door_closed")
    doors.switch_door(sender.door.id, enabled=True, by=None)
    messages.deliver_again(DoorMessage.objects.get().id, by=None)
    assert came_of() == ("delivered", "")


def test_after_a_rewind_a_second_message_answers() -> None:
    sender = Sender()
    run = waiting_run()
    start = timeline.list_checkpoints(run.id)[-1]
    sender.send("msg_1", paid=1)
    runs.advance(run.id)
    runs.rewind(run.id, start.id, by=None)
    assert sender.send("msg_1", paid=1).status_code == 200
    # Its first answer lies behind, and the question is not asked again yet.
    assert sender.send("msg_2", paid=2).status_code == 202
    runs.advance(run.id)
    work_off()
    assert came_of("msg_2") == ("delivered", "")
    assert state(runs.advance(run.id))["total"] == 2


def test_earlier_rounds_are_read_without_their_texts() -> None:
    sender = Sender()
    waiting_run()
    ApprovalRequest.objects.update(status="applied")
    with counted() as statements:
        assert refused(sender) == "already_decided"
    assert not [sql for sql in statements if 'request"."facts"' in sql]


def test_a_fork_has_a_key_of_its_own_and_hears_nothing() -> None:
    sender = Sender()
    run = waiting_run()
    start = timeline.list_checkpoints(run.id)[-1]
    fork = runs.advance(runs.fork(start.id, by=None).id)
    sender.send()
    assert ApprovalRequest.objects.get(run=fork).status == "open"
    assert runs.advance(run.id).status == Status.COMPLETED
    assert sender.send("msg_2", key=fork.key, paid=3).status_code == 200


def test_a_body_that_was_changed_in_the_database_is_not_signed() -> None:
    sender = Sender()
    sender.send("msg_1", paid=1)
    sender.send("msg_2", paid=1000, key="B-1")
    other = DoorMessage.objects.get(message_id="msg_2")
    DoorMessage.objects.filter(message_id="msg_1").update(body=other.body)
    waiting_run()
    work_off()
    assert came_of() == ("refused", "tampered_row")
    assert not Decision.objects.exists()


def test_a_message_for_a_run_that_was_changed_in_the_database_is_kept_for_a_steward() -> (
    None
):
    sender = Sender()
    run = waiting_run()
    Run.objects.update(decisions=1)
    assert refused(sender) == "tampered_row"
    assert came_of() == ("refused", "tampered_row")
    Run.objects.update(decisions=0)
    messages.deliver_again(DoorMessage.objects.get().id, by=None)
    assert came_of() == ("delivered", "")
    assert state(runs.advance(run.id))["total"] == 40


def test_a_message_for_a_run_that_is_being_cancelled_is_refused() -> None:
    sender = Sender()
    run = waiting_run()
    Run.objects.filter(id=run.id).update(cancel_at="2026-01-01T00:00Z")
    assert refused(sender) == "run_ended"


def test_an_erasure_drops_what_was_kept_for_the_run() -> None:
    sender = Sender()
    run = waiting_run(reviewers=["group:others"])
    refused(sender)
    assert bytes(DoorMessage.objects.get().body)
    runs.cancel(run.id, by=None)
    runs.advance(run.id)
    retention.erase(run.id, by=None)
    for job in Job.objects.filter(kind="erase_run"):
        kinds.advance(job.id)
    assert came_of() == ("refused", "erased")
    assert bytes(DoorMessage.objects.get().body) == b""
    assert refused(sender, id="msg_2") == "erased"
    assert bytes(DoorMessage.objects.get(message_id="msg_2").body) == b""
    with pytest.raises(WrongStatus):
        messages.deliver_again(DoorMessage.objects.first().id, by=None)  # type: ignore[union-attr]


def test_messages_are_removed_after_a_week() -> None:
    sender = Sender()
    sender.send("msg_1")
    sender.send("msg_2")
    DoorMessage.objects.filter(message_id="msg_1").update(at="2020-01-01T00:00Z")
    kinds.advance(jobs.add_job("sweep_door_messages"))
    assert DoorMessage.objects.get().message_id == "msg_2"


def test_messages_that_were_not_delivered_are_not_removed_silently() -> None:
    sender = Sender()
    waiting_run("B-1")
    sender.send("msg_1", key="B-1")
    sender.send("msg_2", key="A-2")
    sender.send("msg_3", key="A-3")
    DoorMessage.objects.update(at="2020-01-01T00:00Z")
    kinds.advance(jobs.add_job("sweep_door_messages"))
    assert not DoorMessage.objects.exists()
    line = AuditLine.objects.get(kind="door_messages_removed")
    assert (line.graph, line.facts["door"], line.facts["count"]) == (
        "asking",
        "bank",
        2,
    )
    named = {(row["message"], row["key"]) for row in line.facts["first"]}
    assert named == {("msg_2", "A-2"), ("msg_3", "A-3")}


def test_a_message_for_a_run_that_is_removed_at_the_same_moment_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = Sender()
    waiting_run()

    def removed(run_id: Any) -> Run:
        raise UnknownThing("there is no such run")

    monkeypatch.setattr("checkpoints.ledger.locked_run.lock_run", removed)
    assert sender.send().status_code == 202
    work_off()
    assert came_of() == ("kept", "")


def test_a_message_that_is_removed_at_the_same_moment_keeps_no_other_waiting() -> None:
    sender = Sender()
    sender.send("msg_1", paid=1)
    sender.send("msg_2", paid=2)
    Job.objects.all().delete()
    waiting_run()
    DoorMessage.objects.get(message_id="msg_1").delete()
    work_off()
    assert came_of("msg_2") == ("delivered", "")


def test_only_a_request_with_a_question_looks_for_messages() -> None:
    def looks(made: Graph) -> int:
        with counted() as statements:
            advanced(made)
        return sum("approvals_doormessage" in sql for sql in statements)

    assert looks(asking("a", fn=ask_only)) == 1
    assert looks(asking("b", fn=lambda state, ctx: {"total": 5})) == 0
