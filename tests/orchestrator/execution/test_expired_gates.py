"""A gate whose deadline lets the run fail: beside what else goes on in the run, and what
the failed run keeps.
"""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from approvals import deadlines, reviews
from approvals.gates.expired_requests import expired_requests
from approvals.gates.request_state import why_of
from approvals.models import ApprovalRequest
from checkpoints.core.status import Status
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.models import Run
from checkpoints.queue import leases
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Fact, Gate, Graph, Show, Task, Write
from orchestrator.engine.errors import AlreadyDecided
from orchestrator.engine.graphs.gate import present
from orchestrator.execution import commit, expired_gates, loop
from orchestrator.execution.heartbeat import Heartbeat
from tests.support import cast, run_actions
from tests.support.deadlines import HOUR, gated, let_come, paused_run
from tests.support.forging import remove, rewrite
from tests.support.question_graphs import asking
from tests.support.run_actions import event_payloads, pending, sign, state
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import Notes, Order, advanced, graph, held
from tests.support.statements import counted
from tests.support.versioned_graphs import deployed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(people: cast.People) -> Run:
    """A run at two gates; the deadline of the first lets it fail."""
    flow = graph("beside-a-deadline")

    def proposing(name: str, gate: Gate) -> None:
        @flow.node(name, effect="human", gate=gate)
        def propose(state: Any, ctx: Any) -> dict[str, Any]:
            return {"notes": [name]}

        flow.edge(START, name)
        flow.edge(name, END)

    group = ["group:claims"]
    proposing("hurried", Gate(reviewers=group, deadline=HOUR, on_deadline="fail"))
    proposing("patient", Gate(reviewers=group))
    return advanced(flow)


def test_what_people_decide_elsewhere_in_the_failed_run_is_kept(
    run: Run, people: cast.People
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    let_come(run)
    run = runs.advance(run.id)
    assert (run.status, run.error_code) == ("failed", "deadline_passed")
    [failed] = event_payloads(run, "run_failed")
    assert "the gate of hurried before its deadline" in failed["message"]

    mine = ["approve" if row.node == "patient" else None for row in pending(run)]
    sign(run, rita, mine)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    assert run.status == "paused"
    assert state(run)["notes"] == ["patient"]
    requests = ApprovalRequest.objects.filter(run=run, status="open")
    assert [(row.node, row.ordinal) for row in requests] == [("hurried", 1)]
    assert verify_run(run.id) == []


def test_a_deadline_that_comes_in_a_failed_run_is_asked_about_at_its_resume(
    run: Run, people: cast.People
) -> None:
    Run.objects.filter(id=run.id).update(status="failed")
    let_come(run)
    request = ApprovalRequest.objects.get(run=run, node="hurried")
    assert deadlines.meet_deadline(run.id, request.id)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    # It has failed once, and does not fail for the same deadline again.
    assert run.status == "paused"
    assert ApprovalRequest.objects.filter(run=run, node="hurried").count() == 2


def test_a_request_that_only_claims_to_have_expired_leaves_the_run_tampered(
    run: Run, people: cast.People
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    mine = ["reject" if row.node == "hurried" else None for row in pending(run)]
    sign(run, rita, mine)
    forged = ApprovalRequest.objects.filter(run=run, node="hurried")
    # A rejection would vanish, and the same writes be asked about anew.
    forged.update(status="expired", outcome="again")
    Run.objects.filter(id=run.id).update(status="queued")
    run = runs.advance(run.id)
    assert run.status == "tampered"
    assert forged.count() == 1


def test_a_gate_that_a_deployment_made_easier_asks_anew_by_its_old_rules(
    people: cast.People,
) -> None:
    strict: dict[str, Any] = {"four_eyes": True, "considered": HOUR}
    run = paused_run("easier", on_deadline="fail", quorum=2, **strict)
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    deployed(gated("easier", on_deadline="fail", quorum=1))
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    request = ApprovalRequest.objects.get(run=run, status="open")
    assert (request.policy["quorum"], request.policy["four_eyes"]) == (2, True)
    assert request.policy["considered"] == 3600
    assert request.quorum == 2
    assert verify_run(run.id) == []


@pytest.mark.parametrize(
    "tiers",
    [
        [],
        [(HOUR / 2, "escalate", "group:interns")],
        [(HOUR / 60, "escalate", "group:leads")],
    ],
    ids=["none", "others", "sooner"],
)
def test_who_is_asked_anew_later_is_whom_the_request_named_whatever_was_deployed(
    people: cast.People, tiers: list[Any]
) -> None:
    declared = [(HOUR / 2, "escalate", "group:leads")]
    run = paused_run("tiered", on_deadline="fail", tiers=declared)
    let_come(run)
    run = runs.advance(run.id)
    deployed(gated("tiered", on_deadline="fail", tiers=tiers))
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    request = ApprovalRequest.objects.get(run=run, status="open")
    expected = {"after": 1800, "act": "escalate", "to": ["group:leads"]}
    assert request.policy["tiers"] == [expected]
    assert verify_run(run.id) == []


@pytest.mark.parametrize("claim", ["again", ""])
def test_what_a_request_says_came_of_it_decides_nothing(
    people: cast.People, claim: str
) -> None:
    run = paused_run("claims", on_deadline="fail")
    let_come(run)
    requests = ApprovalRequest.objects.filter(run=run)
    assert deadlines.meet_deadline(run.id, requests.get().id)
    # No seal covers this column: whoever may write to the database sets it.
    requests.update(outcome=claim)
    run = runs.advance(run.id)
    assert (run.status, run.error_code) == ("failed", "deadline_passed")
    runs.resume(run.id, by=people.steward)
    requests.update(outcome=claim)
    run = runs.advance(run.id)
    assert run.status == "paused"
    assert requests.count() == 2


@pytest.mark.parametrize("claim", ["applied", "expired", "removed"])
def test_a_request_opened_anew_that_is_gone_leaves_the_run_tampered(
    people: cast.People, claim: str
) -> None:
    run = paused_run("asked-twice", on_deadline="fail")
    let_come(run)
    runs.advance(run.id)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    second = ApprovalRequest.objects.filter(run=run, ordinal=1)
    if claim == "removed":
        # What hangs on the row goes first.
        for relation in ApprovalRequest._meta.related_objects:
            for row in relation.related_model.objects.filter(request=second.get()):
                remove(row)
        remove(second.get())
    else:
        second.update(status=claim)
    Run.objects.filter(id=run.id).update(status="queued")
    run = runs.advance(run.id)
    assert run.status == "tampered"


def _beside_a_reader(reads: Any) -> Graph:
    """A gate that lets the run fail, and another node of the same superstep."""
    flow = graph("beside-a-reader")
    gate = Gate(reviewers=["group:claims"], deadline=HOUR, on_deadline="fail")

    @flow.node(effect="human", gate=gate)
    def hurried(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "Dear Marta"}

    flow.node("reader", effect="read")(reads)
    for name in ("hurried", "reader"):
        flow.edge(START, name)
        flow.edge(name, END)
    return flow


def test_in_a_superstep_that_failed_the_gate_asks_anew_at_once(
    people: cast.People,
) -> None:
    broken = [True]

    def reads(state: Any, ctx: Any) -> dict[str, Any]:
        if broken:
            raise RuntimeError("no answer")
        return {"notes": ["read"]}

    run = advanced(_beside_a_reader(reads))
    assert run.error_code == "node_failed"
    let_come(run)
    requests = ApprovalRequest.objects.filter(run=run)
    assert deadlines.meet_deadline(run.id, requests.get().id)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    # People need not wait until the other node is repaired.
    assert run.error_code == "node_failed"
    assert [row.status for row in requests.order_by("ordinal")] == ["expired", "open"]
    broken.clear()
    rita = run_actions.reviewer(people.reviewer)
    sign(run, rita, ["approve"])
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert (state(run)["letter"], state(run)["notes"]) == ("Dear Marta", ["read"])
    assert verify_run(run.id) == []


def test_what_had_begun_is_listed_before_the_run_fails(people: cast.People) -> None:
    flow = graph("begun-beside")
    gate = Gate(reviewers=["group:claims"], deadline=HOUR, on_deadline="fail")

    @flow.node(effect="human", gate=gate)
    def hurried(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "Dear Marta"}

    @flow.node(effect="human", gate=Gate(reviewers=["group:claims"]))
    def ask(state: Any, ctx: Any) -> dict[str, Any]:
        return {"total": 4}

    @flow.node(effect="external", idempotent=True)
    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": ["paid"]}

    for name in ("hurried", "ask"):
        flow.edge(START, name)
    flow.edge("hurried", END)
    flow.edge("ask", "pay", when=("approved", "partial"))
    flow.edge("pay", END)
    run = advanced(flow)
    rita = run_actions.reviewer(people.reviewer)
    sign(run, rita, ["approve" if row.node == "ask" else None for row in pending(run)])
    _die_before(run, "pay")
    let_come(run)
    request = ApprovalRequest.objects.get(run=run, node="hurried")
    assert deadlines.meet_deadline(run.id, request.id)
    run = runs.advance(run.id)
    # A run that paused here would wait for ever: nothing wakes it any more.
    assert (run.status, run.error_code) == ("failed", "deadline_passed")
    assert state(run)["notes"] == ["paid"]
    assert verify_run(run.id) == []


def _die_before(run: Run, node: str) -> None:
    """Let a worker apply what people signed, begin this node, and die."""
    lease = held(run)
    session = loop._open_session(lease)
    assert session is not None
    assert session.has_settled_gate()
    assert commit.commit_settlement(session, Heartbeat(session.lease))
    journal.write_intents(
        lease, [Intent(Task(node, 1, 0), 1, "external", "h" * 64, 10.0)]
    )
    leases.give_back(lease.id, lease.epoch)


def test_a_run_whose_open_attempt_may_not_go_on_rests(people: cast.People) -> None:
    run = paused_run("stopped-at", on_deadline="fail")
    let_come(run)
    request = ApprovalRequest.objects.get(run=run)
    assert deadlines.meet_deadline(run.id, request.id)
    lease = held(run)
    session = loop._open_session(lease)
    assert session is not None
    session.open_requests()
    assert session.has_expired
    # Something has begun, and may not go on without a yes.
    session.entries = {Task("propose", 1, 0): object()}  # type: ignore[dict-item]
    assert not commit.commit_rest(session)
    assert Run.objects.get(id=run.id).status == "paused"


def test_a_gate_whose_deadline_a_deployment_removed_gives_as_much_time_as_before(
    people: cast.People,
) -> None:
    run = paused_run("endless", on_deadline="fail")
    let_come(run)
    request = ApprovalRequest.objects.get(run=run)
    rewrite(request, opened_at=request.deadline - 3 * HOUR)
    runs.advance(run.id)
    deployed(gated("endless", deadline=None))
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    request = ApprovalRequest.objects.get(run=run, status="open")
    assert request.policy["on_deadline"] == "fail"
    assert abs(request.deadline - request.opened_at - 3 * HOUR) < HOUR / 60
    assert verify_run(run.id) == []


def test_a_gate_that_is_gone_asks_by_its_old_title_and_gives_as_much_time() -> None:
    title = "Send this {odd} letter?"
    run = paused_run("unguarded", on_deadline="fail", title=title)
    request = ApprovalRequest.objects.get(run=run)
    session = SimpleNamespace(graph=SimpleNamespace(nodes={}))
    gate = expired_gates._gate_of(session, request)  # type: ignore[arg-type]
    assert gate.on_deadline == "fail"
    assert gate.deadline == request.deadline - request.opened_at
    shown = present(gate, node="propose", input={}, state={}, writes=[])
    assert shown["title"] == read_value(request, "title") == title


def test_who_is_asked_anew_reads_who_had_rejected_what_and_why(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run = paused_run("refused", on_deadline="fail", reject_quorum=2)
    letter = pending(run)[0]
    item = {"write": str(letter.write), "hash": letter.hash, "verdict": "reject"}
    reviews.sign(run.id, [{**item, "reason": "too dear"}], by=rita)
    let_come(run)
    runs.advance(run.id)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    request = ApprovalRequest.objects.get(run=run, status="open")
    why = why_of(request)
    assert why.startswith("rita had rejected letter at ")
    assert why.endswith(", before the deadline: too dear")
    assert verify_run(run.id) == []


def test_who_resumes_a_run_before_it_has_failed_forgives_no_deadline(
    people: cast.People,
) -> None:
    run = paused_run("overtaken", on_deadline="fail")
    let_come(run)
    request = ApprovalRequest.objects.get(run=run)
    assert deadlines.meet_deadline(run.id, request.id)
    # Its version is nowhere any more, so that a steward may resume it while it waits
    # for the worker who would let it fail.
    deployed(gated("overtaken", on_deadline="fail", four_eyes=True))
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    assert (run.status, run.error_code) == ("failed", "deadline_passed")
    assert ApprovalRequest.objects.filter(run=run).count() == 1
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    assert run.status == "paused"
    assert verify_run(run.id) == []


def _hurried_by(count: int) -> Graph:
    """Return a graph of this many parallel gates whose deadlines fail the run."""
    flow = graph(f"hurried-by-{count}")
    gate = Gate(reviewers=["group:claims"], deadline=HOUR, on_deadline="fail")
    for number in range(count):
        name = f"propose_{number}"
        node = flow.node(name, effect="human", gate=gate)
        node(lambda state, ctx: {"notes": [ctx.task.node]})
        flow.edge(START, name)
        flow.edge(name, END)
    return flow


def test_many_requests_that_expired_are_read_in_as_many_statements_as_two() -> None:
    numbers: list[int] = []
    for count in (2, 6):
        run = advanced(_hurried_by(count))
        let_come(run)
        for asked in ApprovalRequest.objects.filter(run=run):
            assert deadlines.meet_deadline(run.id, asked.id)
        lease = held(run)
        tasks = [Task(f"propose_{number}", 1, 0) for number in range(count)]
        with counted() as statements:
            expired = expired_requests(lease, tasks, [])
        assert len(expired) == count
        assert not any(request.asks_again for request in expired)
        numbers.append(len(statements))
    assert numbers == [2, 2]


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_patch_whose_gate_is_gone_is_asked_about_with_the_facts_of_its_request(
    people: cast.People,
    monkeypatch: pytest.MonkeyPatch,
    configure: Any,
    encrypted: bool,
) -> None:
    configure(**ONE_KEY)
    flow = Graph("facts-of-old", input=Order, state=Notes, encrypted=encrypted)
    gate = Gate(
        reviewers=["group:claims"],
        deadline=HOUR,
        on_deadline="fail",
        title="A letter at {state.total}",
        facts=[Fact("Total", "state.total")],
        writes={"letter": Show(label="Letter {value}", reason_required=True)},
    )
    flow.node("propose", effect="human", gate=gate)(lambda state, ctx: {"letter": "Hi"})
    flow.edge(START, "propose")
    flow.edge("propose", END)
    run = advanced(flow)
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    [first] = pending(run)
    runs.resume(run.id, by=people.steward)
    monkeypatch.setattr(expired_gates, "_declared_gate", lambda session, request: None)
    run = runs.advance(run.id)
    assert run.status == "paused"
    again = ApprovalRequest.objects.get(run=run, status="open")
    assert read_value(again, "title") == "A letter at 0"
    assert read_value(again, "facts") == [{"label": "Total", "value": 0}]
    [row] = pending(run)
    assert row.revision == 2
    assert read_value(row, "shown") == read_value(first, "shown")
    assert row.label == first.label == ("letter" if encrypted else "Letter Hi")
    assert verify_run(run.id) == []


@pytest.mark.parametrize(
    ("verdict", "letter"),
    [("reject", ""), ("approve", "Dear Marta"), (("edit", "Dear Ada"), "Dear Ada")],
)
def test_what_was_settled_before_the_deadline_keeps_its_verdict(
    people: cast.People, verdict: Any, letter: str
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run = paused_run("settled-in-part", on_deadline="fail", title="Send {letter}?")
    sign(run, rita, [verdict, None])
    settled = pending(run)[0]
    # It may pass again and again.
    for _ in range(2):
        let_come(run)
        run = runs.advance(run.id)
        assert run.error_code == "deadline_passed"
        runs.resume(run.id, by=people.steward)
        run = runs.advance(run.id)
        assert run.status == "paused"
    request = ApprovalRequest.objects.get(run=run, status="open")
    assert request.policy["kept"] == [0]
    assert why_of(request) == ""
    assert pending(run)[0].revision == settled.revision
    ravi = run_actions.reviewer(people.second_reviewer)
    with pytest.raises(AlreadyDecided) as late:
        sign(run, ravi, ["approve", None])
    assert late.value.facts["by"] == ["rita"]
    assert verify_run(run.id) == []

    sign(run, ravi, [None, "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert (state(run)["letter"], state(run)["total"]) == (letter, 4)
    assert verify_run(run.id) == []


def _of_three_writes() -> Graph:
    flow = graph("settled-in-parts")
    gate = Gate(
        reviewers=["group:claims"],
        quorum=2,
        four_eyes=True,
        deadline=HOUR,
        on_deadline="fail",
    )

    @flow.node(effect="human", gate=gate)
    def propose(state: Any, ctx: Any) -> list[Write]:
        return [Write("letter", "Dear"), Write("total", 4), Write("notes", ["sent"])]

    flow.edge(START, "propose")
    flow.edge("propose", END)
    return flow


def test_only_decisions_on_the_repeated_request_count_after_its_deadline(
    people: cast.People,
) -> None:
    signers = [people.reviewer, people.second_reviewer]
    rita, ravi = map(run_actions.reviewer, signers)
    run = advanced(_of_three_writes())
    sign(run, rita, ["approve", ("edit", 5), None])
    sign(run, ravi, ["approve", None, None])
    run = _asked_again(run, people)
    # The edit is gone, so that its author may sign what the node proposed.
    for person in (rita, ravi):
        sign(run, person, [None, "approve", None])
    run = _asked_again(run, people)
    request = ApprovalRequest.objects.get(run=run, status="open")
    assert request.policy["kept"] == [0, 1]
    assert request.policy["kept_from"] == [0, 1]
    assert verify_run(run.id) == []

    for person in (rita, ravi):
        sign(run, person, [None, None, "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert (state(run)["total"], state(run)["notes"]) == (4, ["sent"])
    assert verify_run(run.id) == []


def _asked_again(run: Run, people: cast.People) -> Run:
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    runs.resume(run.id, by=people.steward)
    return runs.advance(run.id)


def test_what_was_settled_is_asked_again_where_what_it_replaces_has_changed(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    flow = graph("moved-while-closed")
    hurried = Gate(reviewers=["group:claims"], deadline=HOUR, on_deadline="fail")

    @flow.node(effect="human", gate=hurried)
    def propose(state: Any, ctx: Any) -> list[Write]:
        return [Write("letter", "Dear Marta"), Write("total", 4)]

    @flow.node(effect="human", gate=Gate(reviewers=["group:claims"]))
    def replace(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "Dear Ada"}

    for name in ("propose", "replace"):
        flow.edge(START, name)
        flow.edge(name, END)
    run = advanced(flow)
    sign(run, rita, ["approve", None, None])
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    sign(run, rita, [None, None, "approve"])
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    assert state(run)["letter"] == "Dear Ada"
    request = ApprovalRequest.objects.get(run=run, status="open")
    assert "kept" not in request.policy
    sign(run, rita, ["approve", "approve", None])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert state(run)["letter"] == "Dear Marta"
    assert verify_run(run.id) == []


def test_a_long_prompt_stays_whole_where_an_encrypted_graph_asks_anew(
    people: cast.People, configure: Any
) -> None:
    configure(**ONE_KEY)
    prompt = "How much? " + "Mind the contract. " * 30
    flow = asking(
        fn=lambda state, ctx: ctx.ask("total", prompt),
        settings={"encrypted": True},
        deadline=HOUR,
        on_deadline="fail",
    )
    run = advanced(flow)
    let_come(run)
    assert runs.advance(run.id).status == Status.FAILED
    runs.advance(runs.resume(run.id).id)
    [row] = pending(run)
    assert row.revision == 2
    sealed_rows.verify_rows([row], sealed_rows.protection_of(run))
    assert read_value(row, "shown")["label"] == prompt
    assert verify_run(run.id) == []


def test_terms_that_a_deployment_made_easier_ask_anew_by_their_old_rules(
    people: cast.People,
) -> None:
    asked_at_first: dict[str, Any] = {
        "quorum": 2,
        "four_eyes": True,
        "deadline": timezone.now() + HOUR,
        "on_deadline": "fail",
        "facts": [Fact("Sum", "proposal.total")],
    }

    def terms_of(asked: Any) -> dict[str, Any]:
        return asked_at_first

    run = paused_run("easier-terms", deadline=None, terms=terms_of)
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    # The same name, so no difference can be seen.
    asked_at_first.update(quorum=1, four_eyes=False, deadline=timezone.now() - HOUR)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    request = ApprovalRequest.objects.get(run=run, status="open")
    assert (request.policy["quorum"], request.policy["four_eyes"]) == (2, True)
    assert request.policy["on_deadline"] == "fail"
    assert read_value(request, "facts") == [{"label": "Sum", "value": 4}]
    assert request.deadline is not None
    # A moment that has passed would let it fail again at once.
    assert request.deadline >= request.opened_at + timedelta(seconds=59)
    assert verify_run(run.id) == []
