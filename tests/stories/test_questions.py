"""Questions that nodes ask people, from the node that asks to the one that reads the
answer.
"""

import io
from typing import Annotated, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from pydantic import BaseModel

from approvals.models import ApprovalRequest, Decision, Receipt
from checkpoints import bundle
from checkpoints.core.status import Status
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import AuditLine, PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Append, Gate, Graph, Send
from orchestrator.engine.errors import InvalidValue, NotAReviewer
from tests.support import cast, run_actions
from tests.support.bundle_reader import first_bad_line
from tests.support.bundles import exported, lines_of, written
from tests.support.deadlines import HOUR, let_come
from tests.support.question_graphs import asking
from tests.support.review_forms import form_of
from tests.support.run_actions import pending, sign, sign_open, state
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import Order, advanced
from tests.support.versioned_graphs import deployed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def ravi(people: cast.People) -> User:
    return run_actions.reviewer(people.second_reviewer)


def ask_only(state: Any, ctx: Any) -> None:
    ctx.ask("total", "How much?")


class Claim(BaseModel):
    covered: bool | None = None


def asking_whether(schema: Any = None) -> Graph:
    """A graph that asks whether the claim is covered: yes, no, or not set unless the
    schema refuses that.
    """
    flow = Graph("whether", input=Order, state=Claim)
    gate = Gate(reviewers=["group:claims"])

    @flow.node("ask", effect="human", gate=gate)
    def ask(state: Any, ctx: Any) -> None:
        ctx.ask("covered", "Is it covered?", schema)

    flow.edge(START, "ask")
    flow.edge("ask", END)
    return flow


def shown_ask(row: PendingWrite) -> Any:
    return read_value(row, "shown")["ask"]


def test_an_answer_is_decided_with_what_the_node_proposed_and_read_by_a_later_node(
    rita: User,
) -> None:
    run = advanced(asking())
    letter, total = pending(run)
    assert (letter.channel, total.channel) == ("letter", "total")
    assert (total.label, shown_ask(total)["answered"]) == ("How much?", False)
    assert run_actions.request(run).policy["asks"] == [1]
    sign(run, rita, ["approve", ("edit", 7)])
    assert shown_ask(pending(run)[1])["answered"]
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == ["total 7"]
    answered = Decision.objects.get(run=run.id, channel="total")
    assert (answered.verdict, read_value(answered, "final_value")) == ("edit", 7)
    assert verify_run(run.id) == []


def test_what_nobody_answered_is_refused_by_name_where_it_is_approved(
    rita: User,
) -> None:
    run = advanced(asking())
    with pytest.raises(InvalidValue, match="nobody has answered it yet") as caught:
        sign(run, rita, ["approve", "approve"])
    assert caught.value.facts["write"] == str(pending(run)[1].write)
    assert not Decision.objects.filter(run=run.id).exists()


def test_declining_is_a_rejection(rita: User) -> None:
    run = advanced(asking(fn=ask_only))
    sign(run, rita, ["reject"])
    assert state(runs.advance(run.id))["notes"] == ["declined"]
    assert verify_run(run.id) == []


def test_all_or_nothing_a_declined_question_takes_the_proposals_with_it(
    rita: User,
) -> None:
    run = advanced(asking(all_or_nothing=True))
    sign(run, rita, [None, "reject"])
    run = runs.advance(run.id)
    assert (state(run)["letter"], state(run)["notes"]) == ("", ["declined"])
    assert verify_run(run.id) == []


def test_under_four_eyes_one_answers_and_another_approves(
    rita: User, ravi: User
) -> None:
    run = advanced(asking(fn=ask_only, four_eyes=True))
    sign(run, rita, [("edit", 7)])
    with pytest.raises(NotAReviewer):
        sign(run, rita, ["approve"])
    assert run_actions.request(run).status == "open"
    sign(run, ravi, ["approve"])
    assert state(runs.advance(run.id))["notes"] == ["total 7"]
    assert verify_run(run.id) == []


def test_an_answer_counts_as_one_signature_of_its_quorum(
    rita: User, ravi: User
) -> None:
    run = advanced(asking(fn=ask_only, quorum=2))
    sign(run, rita, [("edit", 7)])
    assert runs.advance(run.id).status == Status.PAUSED
    sign(run, ravi, [("edit", 8)])
    assert runs.advance(run.id).status == Status.PAUSED
    sign(run, rita, ["approve"])
    assert state(runs.advance(run.id))["notes"] == ["total 8"]
    assert verify_run(run.id) == []


@pytest.mark.parametrize("answers_before", [False, True])
def test_at_a_deadline_that_approves_a_question_is_rejected(
    rita: User, answers_before: bool
) -> None:
    gate = {"deadline": HOUR, "on_deadline": "approve", "quorum": 2}
    run = advanced(asking(**gate))
    if answers_before:
        sign(run, rita, [None, ("edit", 7)])
    let_come(run)
    run = runs.advance(run.id)
    assert (state(run)["letter"], state(run)["total"]) == ("Dear", 0)
    assert run_actions.request(run).outcome == "partial"
    assert verify_run(run.id) == []


def test_a_question_whose_deadline_failed_the_run_is_asked_again_as_one(
    rita: User,
) -> None:
    run = advanced(asking(fn=ask_only, deadline=HOUR, on_deadline="fail"))
    let_come(run)
    run = runs.advance(run.id)
    assert run.status == Status.FAILED
    run = runs.advance(runs.resume(run.id).id)
    [row] = pending(run)
    assert (row.revision, shown_ask(row)["answered"], row.label) == (
        2,
        False,
        "How much?",
    )
    with pytest.raises(InvalidValue, match="nobody has answered"):
        sign(run, rita, ["approve"])
    sign(run, rita, [("edit", 7)])
    assert state(runs.advance(run.id))["notes"] == ["total 7"]
    assert verify_run(run.id) == []


def test_a_question_comes_back_where_what_an_answer_would_replace_has_moved(
    rita: User,
) -> None:
    flow = asking(fn=ask_only, quorum=2)
    gate = Gate(reviewers=["group:claims"])
    flow.node("other", effect="human", gate=gate)(lambda state, ctx: {"total": 3})
    flow.edge(START, "other")
    flow.edge("other", END)
    run = advanced(flow)
    sign(run, rita, [("edit", 7), None])
    sign(run, rita, [None, "approve"])
    run = runs.advance(run.id)
    row = pending(run)[0]
    # It keeps its answer, and its signatures are asked for anew.
    assert (row.revision, row.reason, read_value(row, "value")) == (3, "rebase", 7)
    assert shown_ask(row)["answered"]
    assert verify_run(run.id) == []


def test_each_task_of_a_fan_out_asks_by_itself_and_an_empty_one_nobody(
    rita: User,
) -> None:
    flow = asking("asking_many", fn=ask_only)
    flow.edges[:] = [edge for edge in flow.edges if edge.source != START]
    flow.node("split", sends="ask")(
        lambda state, ctx: [Send("ask", n) for n in range(2)]
    )
    flow.edge(START, "split")
    run = advanced(flow)
    assert ApprovalRequest.objects.filter(run=run).count() == 2
    sign(run, rita, [("edit", 4), "reject"])
    run = runs.advance(run.id)
    assert state(run)["notes"] == ["total 4"]
    assert verify_run(run.id) == []


def test_a_loop_asks_at_each_visit(rita: User) -> None:
    flow = asking("asking_again", fn=ask_only)
    flow.edges[:] = [edge for edge in flow.edges if edge.source != "after"]
    flow.branch(
        "after",
        lambda state: "again" if state.total < 5 else "over",
        {"again": "ask", "over": END},
    )
    run = advanced(flow)
    sign(run, rita, [("edit", 1)])
    run = runs.advance(run.id)
    assert shown_ask(pending(run)[1]) == {"schema": None, "answered": False}
    sign(run, rita, [None, ("edit", 5)])
    run = runs.advance(run.id)
    assert state(run)["notes"] == ["total 1", "total 5"]
    assert verify_run(run.id) == []


def test_a_question_beside_a_task_that_failed_is_kept(rita: User) -> None:
    tries: list[int] = []

    def fails_once(state: Any, ctx: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")

    flow = asking("asking_beside", fn=ask_only)
    flow.node("fails")(fails_once)
    flow.edge(START, "fails")
    flow.edge("fails", END)
    run = advanced(flow)
    assert run.status == Status.FAILED
    sign(run, rita, [("edit", 7)])
    run = runs.advance(runs.resume(run.id).id)
    assert state(run)["notes"] == ["total 7"]
    assert verify_run(run.id) == []


def test_a_fork_asks_again_and_an_answer_that_comes_with_it_counts(
    rita: User,
) -> None:
    run = advanced(asking(fn=ask_only))
    sign(run, rita, [("edit", 7)])
    run = runs.advance(run.id)
    fork = runs.advance(runs.fork(f"{run.key}:at-1", by=rita).id)
    [row] = pending(fork)
    assert (row.revision, shown_ask(row)["answered"]) == (1, False)
    assert fork.status == Status.PAUSED
    answered = runs.fork(f"{run.key}:at-1", answers={"ask": {"total": 9}}, by=rita)
    assert state(runs.advance(answered.id))["notes"] == ["total 9"]
    for each_run in (run, fork, answered):
        assert verify_run(each_run.id) == []


@pytest.mark.parametrize("answers_before", [False, True])
def test_a_question_goes_onto_a_new_version_and_is_answered_there(
    rita: User, answers_before: bool
) -> None:
    run = advanced(asking(fn=ask_only, settings={"version": "1"}, quorum=2))
    if answers_before:
        sign(run, rita, [("edit", 7)])
    newer = asking(fn=ask_only, settings={"version": "2"}, quorum=2)

    @newer.migration(from_version="1")
    def with_a_note(state: Any) -> None:
        state["scratch"]["notes"] = ["migrated"]

    deployed(newer)
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    run = runs.advance(run.id)
    assert (run.version, run.status) == ("2", Status.PAUSED), stored_error(run)
    ravi = run_actions.reviewer(User.objects.create_user("ravi"))
    sign(run, ravi, [("edit", 8)])
    sign(run, rita, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED, stored_error(run)
    assert (run.version, state(run)["notes"]) == ("2", ["migrated", "total 8"])
    assert verify_run(run.id) == []


def test_a_rewind_asks_again(rita: User) -> None:
    run = advanced(asking(fn=ask_only))
    sign(run, rita, [("edit", 7)])
    run = runs.advance(run.id)
    run = runs.advance(runs.rewind(run.id, f"{run.key}:at-1", by=rita).id)
    assert run.status == Status.PAUSED
    with pytest.raises(InvalidValue, match="nobody has answered"):
        sign_open(run, rita, "approve")
    assert verify_run(run.id) == []


def test_a_replay_takes_the_answer_that_was_given(rita: User) -> None:
    run = advanced(asking())
    sign(run, rita, ["approve", ("edit", 7)])
    run = runs.advance(run.id)
    replay = runs.advance(runs.replay(f"{run.key}:initial", by=rita).id)
    assert (replay.status, state(replay)["notes"]) == (Status.COMPLETED, ["total 7"])
    assert not ApprovalRequest.objects.filter(run=replay).exists()


def test_a_bundle_with_a_question_verifies_offline(rita: User, configure: Any) -> None:
    configure(BUNDLE_KEY=bytes(range(32)))
    run = advanced(asking())
    sign(run, rita, ["approve", ("edit", 7)])
    data = exported(runs.advance(run.id))
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = key.public_key().public_bytes_raw()
    assert bundle.verify(io.BytesIO(data), public) == (True, 0, "")
    assert first_bad_line(data, public) == 0

    # Its house says that the question itself was approved.
    bodies = lines_of(data)
    [decision] = [
        body["row"]
        for body in bodies
        if body["kind"] == "decision" and body["row"]["channel"] == "total"
    ]
    decision |= {"verdict": "approve", "revision": 1, "final_value": "null"}
    forged = written(bodies, key)
    verdict = bundle.verify(io.BytesIO(forged), public)
    assert "it approves what nobody has answered" in verdict.reason
    assert first_bad_line(forged, public) == verdict.bad_line


def test_in_an_encrypted_graph_the_answer_is_read_with_its_key_alone(
    rita: User, configure: Any
) -> None:
    configure(**ONE_KEY)
    run = advanced(asking(fn=ask_only, settings={"encrypted": True}))
    sign(run, rita, [("edit", 7)])
    run = runs.advance(run.id)
    assert state(run)["notes"] == ["total 7"]
    assert verify_run(run.id) == []


class Possible(BaseModel):
    total: int | None = None
    letter: str = ""
    notes: Annotated[list[str], Append] = []


def test_no_automatic_policy_approves_what_nobody_has_answered(rita: User) -> None:
    flow = asking("asking_possibly", auto=lambda state, proposal: True)
    flow.state = Possible
    run = advanced(flow)
    assert run.status == Status.PAUSED
    assert run_actions.request(run).status == "open"
    assert verify_run(run.id) == []
    sign(run, rita, [None, ("edit", None)])
    run = runs.advance(run.id)
    assert (run.status, state(run)["notes"]) == (Status.COMPLETED, ["total None"])
    assert verify_run(run.id) == []


def test_a_review_asks_for_an_answer_in_a_form_and_offers_no_approval(
    client: Client, rita: User
) -> None:
    client.force_login(rita)

    def ask(state: Any, ctx: Any) -> None:
        ctx.ask("total", "How much?", {"type": "integer", "maximum": 9})

    run = advanced(asking(fn=ask))
    page = client.get(reverse("review", args=[run.id]))
    text = page.content.decode()
    assert "Not answered yet." in text
    assert 'value="approve"' not in text
    (slip,) = page.context["page"].slips
    assert slip.control.kind == "whole"
    posted = form_of(page) | {f"v-{slip.write}": "edit", f"e-{slip.write}": "12"}
    refused = client.post(reverse("sign", args=[run.id]), posted)
    assert "is greater than the maximum of 9" in refused.content.decode()
    posted |= {f"e-{slip.write}": "8"}
    answer = client.post(reverse("sign", args=[run.id]), posted)
    assert answer.status_code == 302, answer.content
    assert client.get(answer.url).status_code == 200
    run = runs.advance(run.id)
    assert state(run)["notes"] == ["total 8"]
    assert (
        "Answered by" in client.get(reverse("review", args=[run.id])).content.decode()
    )
    assert Receipt.objects.count() == 1
    assert verify_run(run.id) == []


@pytest.mark.parametrize("schema", [None, {"type": "boolean"}])
def test_a_question_of_yes_or_no_has_no_answer_until_somebody_chooses(
    client: Client, rita: User, schema: Any
) -> None:
    client.force_login(rita)
    run = advanced(asking_whether(schema))
    page = client.get(reverse("review", args=[run.id]))
    (slip,) = page.context["page"].slips
    assert (slip.control.kind, slip.control.value) == ("yes_no", None)
    # A browser sends nothing of radio buttons of which none is chosen.
    posted = form_of(page) | {f"v-{slip.write}": "edit"}
    del posted[f"e-{slip.write}"]
    refused = client.post(reverse("sign", args=[run.id]), posted)
    assert "This is needed." in refused.content.decode()
    assert not Decision.objects.exists()
    posted[f"e-{slip.write}"] = "false"
    assert client.post(reverse("sign", args=[run.id]), posted).status_code == 302
    answered = Decision.objects.get()
    assert read_value(answered, "final_value") is False


def test_receipt_and_audit_name_an_answer_and_no_proposal(
    client: Client, people: cast.People, rita: User
) -> None:
    run = advanced(asking(fn=ask_only))
    sign(run, rita, [("edit", 7)])
    client.force_login(rita)
    receipt = client.get(reverse("receipt", args=[Receipt.objects.get().id]))
    assert [line.word for line in receipt.context["lines"]] == ["Answered"]
    client.force_login(people.auditor)
    line = AuditLine.objects.get(kind="signed")
    page = client.get(reverse("audit_line", args=[line.id]))
    ((change,),) = [shown.changes for shown in page.context["decisions"]]
    assert "Proposed" not in page.content.decode()
    assert change.shown.parts


def test_the_interface_says_that_a_write_has_no_answer(
    client: Client, rita: User
) -> None:
    client.force_login(rita)
    run = advanced(asking())
    request = run_actions.request(run)
    writes = client.get(f"/api/v1/requests/{request.id}/").json()["writes"]
    assert [write["unanswered"] for write in writes] == [False, True]
    assert writes[1]["shown"]["ask"] == {"schema": None, "answered": False}
    assert writes[1]["value"] is None


def test_a_run_shows_what_nobody_has_answered(
    client: Client, people: cast.People
) -> None:
    client.force_login(people.steward)
    run = advanced(asking(fn=ask_only))
    head = Run.objects.get(id=run.id).head
    answer = client.get(f"/api/v1/checkpoints/{head}/").json()
    assert answer["pending_writes"][0]["unanswered"] is True
    page = client.get(reverse("run", args=[run.id]) + "?tab=writes")
    assert page.status_code == 200


def test_two_runs_side_by_side_say_which_question_was_declined(
    client: Client, people: cast.People, rita: User
) -> None:
    run = advanced(asking(fn=ask_only))
    sign(run, rita, [("edit", 7)])
    run = runs.advance(run.id)
    fork = runs.advance(runs.fork(f"{run.key}:at-0", by=rita).id)
    sign(fork, rita, ["reject"])
    runs.advance(fork.id)
    client.force_login(people.steward)
    query = {"a": run.id, "b": fork.id, "tab": "writes"}
    page = client.get(reverse("compare"), query).context["page"]
    (row,) = page["pairs"][0]["rows"]
    assert row["a"].text == "Total: 7 7"
    assert row["b"].text == "How much? (not answered) not there"
