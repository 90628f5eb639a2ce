"""A veto is asked last: what people approved is applied only if it answers False."""

import io
import threading
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags
from pydantic import BaseModel

from approvals.answers import vetoes
from approvals.exported_receipt import export_receipt
from approvals.gates import guarded_channels
from approvals.gates.request_state import load_states
from approvals.models import ApprovalRequest, Decision
from checkpoints import bundle
from checkpoints.bundle.receipt_verifier import verify_receipt
from checkpoints.bundle.verifier import verify
from checkpoints.lines import past
from checkpoints.models import AuditLine, Job, Run
from checkpoints.queue import leases
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Send, Show, registry
from orchestrator.engine.step import reduce
from tests.support import cast, run_actions
from tests.support.bundle_reader import first_bad_line
from tests.support.bundles import exported, forgotten, lines_of, loaded, written
from tests.support.deadlines import gated, let_come, paused_run, work_off
from tests.support.forging import remove, rewrite
from tests.support.run_actions import (
    pending,
    request,
    sign,
    sign_open,
    sources,
    state,
)
from tests.support.small_graphs import advanced, graph, registered

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> Any:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def reto(people: cast.People) -> Any:
    return run_actions.reviewer(people.steward)


class Answers:
    """A veto that gives these answers in turn, the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def veto(self, state: Any, proposal: Any) -> Any:
        self.asked.append(dict(proposal))
        answer = self.answers[0]
        if len(self.answers) > 1:
            self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def vetoed_run(*answers: Any, **gate: Any) -> tuple[Run, Answers]:
    """A run that waits at the gate of two writes, whose veto gives these answers."""
    veto = Answers(*answers)
    options = {"deadline": None, "veto": veto.veto, **gate}
    return paused_run("with-veto", **options), veto


def verdicts(run: Run) -> list[tuple[str, str, int]]:
    rows = Decision.objects.filter(run=run.id).order_by("event_seq")
    return [(row.by_name, row.verdict, row.position) for row in rows]


def reasons(run: Run) -> set[str]:
    rows = Decision.objects.filter(run=run.id, verdict="veto")
    return {read_value(row, "reason") for row in rows}


def standings(run: Run) -> list[tuple[str, int, bool]]:
    [standing] = load_states([request(run)], protection_of(run))
    return [
        (
            standing.standings[row.write].verdict,
            len(standing.standings[row.write].by),
            standing.standings[row.write].vetoed,
        )
        for row in standing.writes
    ]


def test_what_its_veto_lets_pass_is_applied(rita: Any) -> None:
    run, veto = vetoed_run(False)
    sign(run, rita, ["approve", "approve"])
    assert veto.asked == [], "nobody asks it before people have approved"
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert veto.asked == [{"letter": "Dear Marta", "total": 4}]
    assert verdicts(run)[2:] == [("the veto", "no_veto", 0), ("the veto", "no_veto", 1)]
    assert sources(run) == ["input", "superstep", "settlement", "superstep"]
    assert verify_run(run.id) == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("the payee is under embargo", "the payee is under embargo"),
        (True, "its veto Answers.veto said True"),
        (None, "its veto Answers.veto said None"),
        (0, "its veto Answers.veto said int"),
        ("", "its veto Answers.veto said str"),
        (ValueError("no list"), "its veto Answers.veto failed: ValueError: no list"),
    ],
)
def test_anything_but_false_keeps_it_open_with_the_reason(
    rita: Any, answer: Any, reason: str
) -> None:
    run, _ = vetoed_run(answer)
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "paused"
    assert state(run)["letter"] == ""
    assert request(run).status == "open"
    assert request(run).outcome == ""
    assert reasons(run) == {reason}
    assert standings(run) == [("", 1, True), ("", 1, True)], "approvals stay recorded"
    assert verify_run(run.id) == []


def test_a_further_decision_of_anybody_asks_it_again(rita: Any, reto: Any) -> None:
    run, veto = vetoed_run("not yet", "not yet", False)
    sign(run, rita, ["approve", "approve"])
    runs.advance(run.id)
    sign(run, rita, ["approve", "approve"])
    assert runs.advance(run.id).status == "paused"
    sign(run, reto, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert len(veto.asked) == 3
    assert verify_run(run.id) == []


def test_nothing_asks_it_again_by_itself(rita: Any) -> None:
    run, veto = vetoed_run("no", False)
    sign(run, rita, ["approve", "approve"])
    for _ in range(3):
        assert runs.advance(run.id).status == "paused"
    assert len(veto.asked) == 1


def test_a_write_that_is_decided_anew_waits_for_the_other(rita: Any) -> None:
    run, veto = vetoed_run("no", False)
    sign(run, rita, ["approve", "approve"])
    runs.advance(run.id)
    sign(run, rita, ["approve", None])
    assert runs.advance(run.id).status == "paused"
    assert len(veto.asked) == 1
    assert standings(run) == [("approved", 1, False), ("", 1, True)]


def test_an_edit_asks_it_about_the_edited_value(rita: Any) -> None:
    run, veto = vetoed_run("too much", False)
    sign(run, rita, ["approve", "approve"])
    runs.advance(run.id)
    sign(run, rita, ["approve", ("edit", 3)])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert veto.asked[1] == {"letter": "Dear Marta", "total": 3}
    assert state(run)["total"] == 3
    assert verify_run(run.id) == []


def test_a_rejection_needs_no_veto(rita: Any) -> None:
    run, veto = vetoed_run("no")
    sign(run, rita, ["reject", "reject"])
    run = runs.advance(run.id)
    assert run.status == "rejected"
    assert veto.asked == []
    assert verify_run(run.id) == []


def test_it_is_asked_about_what_was_approved_alone(rita: Any) -> None:
    run, veto = vetoed_run(False)
    sign(run, rita, ["approve", "reject"])
    run = runs.advance(run.id)
    assert veto.asked == [{"letter": "Dear Marta"}]
    assert request(run).outcome == "partial"
    assert verdicts(run)[2:] == [("the veto", "no_veto", 0)]
    assert verify_run(run.id) == []


def test_what_it_kept_open_can_be_rejected(rita: Any) -> None:
    run, veto = vetoed_run("no")
    sign(run, rita, ["approve", "approve"])
    runs.advance(run.id)
    sign(run, rita, ["reject", "reject"])
    run = runs.advance(run.id)
    assert run.status == "rejected"
    assert len(veto.asked) == 1
    assert verify_run(run.id) == []


def test_who_rejects_settles_no_approval_of_others(rita: Any, reto: Any) -> None:
    run, _ = vetoed_run("no", False, reject_quorum=2)
    sign(run, rita, ["approve", "approve"])
    runs.advance(run.id)
    sign(run, reto, ["reject", "reject"])
    assert standings(run) == [("", 2, True), ("", 2, True)]
    assert runs.advance(run.id).status == "paused"


def test_under_all_or_nothing_nothing_is_applied(rita: Any) -> None:
    run, _ = vetoed_run("no", False, all_or_nothing=True)
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert state(run)["total"] == 0
    sign(run, rita, ["approve", "reject"])
    assert runs.advance(run.id).status == "rejected"
    assert verify_run(run.id) == []


def test_what_a_deadline_approves_is_vetoed_too_and_then_rejected() -> None:
    run, veto = vetoed_run("no", deadline=timedelta(hours=1), on_deadline="approve")
    let_come(run)
    work_off(run)
    assert request(run).outcome == "approved"
    run = runs.advance(run.id)
    # Its job comes again by itself, and nothing stays open past its deadline.
    assert run.status == "rejected", verdicts(run)
    assert [verdict for _, verdict, position in verdicts(run) if position == 0] == [
        "approve",
        "veto",
        "reject",
    ]
    assert len(veto.asked) == 1
    assert verify_run(run.id) == []


def test_what_a_veto_keeps_open_past_its_deadline_meets_it(rita: Any) -> None:
    run, _ = vetoed_run("no", deadline=timedelta(hours=1))
    sign(run, rita, ["approve", "approve"])
    # It comes while all is settled, and nothing is applied yet.
    past_time = timezone.now() - timedelta(minutes=1)
    rewrite(request(run), deadline=past_time)
    Job.objects.filter(run=run.id).update(due_at=past_time)
    work_off(run)
    run = runs.advance(run.id)
    work_off(run)
    run = runs.advance(run.id)
    assert run.status == "rejected"
    assert not Job.objects.filter(run=run.id, status="queued").exists()
    assert verify_run(run.id) == []


def test_where_nobody_is_needed_it_lets_people_be_asked() -> None:
    run, veto = vetoed_run(
        "under embargo", needs_approval=lambda state, proposal: False
    )
    assert veto.asked == [{"letter": "Dear Marta", "total": 4}]
    assert read_value(request(run), "why") == "under embargo"


def test_a_deployment_adds_no_veto_to_what_is_asked_and_takes_none(rita: Any) -> None:
    run, veto = vetoed_run("no")
    registered(gated("with-veto", deadline=None))
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "paused", run.error_code
    assert "has no veto any more" in str(reasons(run))
    assert veto.asked == []


def test_a_deployment_swaps_no_veto_under_what_is_asked(rita: Any) -> None:
    calls: list[Any] = []

    def lax(state: Any, proposal: Any) -> bool:
        calls.append(proposal)
        return False

    run, veto = vetoed_run("no", False)
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    registered(gated("with-veto", deadline=None, veto=lax))
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "paused", run.error_code
    assert "the gate has another veto now" in str(reasons(run))
    assert (len(veto.asked), calls) == (1, [])

    # The old one lets it pass once a newer version has it again.
    registered(gated("with-veto", deadline=None, veto=veto.veto, four_eyes=True))
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed", run.error_code
    assert (len(veto.asked), calls) == (2, [])
    assert verify_run(run.id) == []


def test_who_is_asked_again_after_a_deadline_is_asked_under_the_same_veto(
    rita: Any, people: cast.People
) -> None:
    options: dict[str, Any] = {"deadline": timedelta(hours=1), "on_deadline": "fail"}
    run, _ = vetoed_run("no", **options)
    let_come(run)
    work_off(run)
    assert runs.advance(run.id).status == "failed"
    registered(gated("with-veto", veto=lambda state, proposal: False, **options))
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    asked_again = ApprovalRequest.objects.get(run=run.id, status="open")
    assert asked_again.policy["veto"] == "Answers.veto"
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "paused", run.error_code
    assert "the gate has another veto now" in str(reasons(run))
    assert verify_run(run.id) == []


def test_one_that_hangs_gives_its_run_back(
    rita: Any, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(LEASE_SECONDS=0.9, NODE_TIMEOUT=0.5)
    given_back = threading.Event()
    give_back = leases.give_back

    def noted(*args: Any, **options: Any) -> None:
        give_back(*args, **options)
        given_back.set()

    monkeypatch.setattr("orchestrator.execution.heartbeat.leases.give_back", noted)
    waits: list[bool] = []

    def hanging(state: Any, proposal: Any) -> bool:
        waits.append(given_back.wait(10))
        return False

    run = paused_run("with-veto", deadline=None, veto=hanging)
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    # What it said too late is not written: it is asked again.
    assert waits == [True, True]
    assert Decision.objects.filter(run=run.id, verdict="no_veto").count() == 2
    assert verify_run(run.id) == []


def _two_guards(veto: Any, of_total: Any = None) -> Graph:
    """Two gates beside each other, each of which guards a channel, with these vetoes."""
    flow = graph("two-guards")

    def proposing(name: str, value: Any, gate: Gate) -> None:
        @flow.node(name, effect="human", gate=gate)
        def propose(state: Any, ctx: Any) -> dict[str, Any]:
            return {name: value}

        flow.edge(START, name)
        flow.edge(name, END)

    guard: dict[str, Any] = {"reviewers": ["group:claims"]}
    proposing(
        "letter", "Dear Marta", Gate(writes={"letter": Show()}, veto=veto, **guard)
    )
    proposing("total", 4, Gate(writes={"total": Show()}, veto=of_total, **guard))
    return flow


def _decided_patch(by: Any, steward: Any, *vetoes: Any, total: str) -> Run:
    """Return a fork whose patch is approved at the gate of the letter, and gets the
    verdict `total` at the other; the gates have these vetoes.
    """
    run = advanced(_two_guards(*vetoes))
    patch = {"scratch": {"letter": "Dear Sir", "total": 9}}
    fork = runs.advance(runs.fork(run.head, patch=patch, by=steward).id)
    verdict_by_channel = {"letter": "approve", "total": total}
    sign(fork, by, [verdict_by_channel[row.channel] for row in pending(fork)])
    return runs.advance(fork.id)


def test_a_patch_that_another_gate_rejects_needs_no_veto(
    rita: Any, people: cast.People
) -> None:
    veto = Answers(False)
    fork = _decided_patch(rita, people.steward, veto.veto, total="reject")
    assert (fork.status, veto.asked) == ("rejected", [])
    assert verify_run(fork.id) == []


def test_nothing_of_a_patch_is_applied_while_one_veto_keeps_it_open(
    rita: Any, people: cast.People
) -> None:
    first = Answers(False)
    second = Answers("no", False)
    vetoes_of_gates = (first.veto, second.veto)
    fork = _decided_patch(rita, people.steward, *vetoes_of_gates, total="approve")
    assert state(fork)["letter"] == ""
    # What the first let pass is asked again, so it is no decision yet.
    answers = Decision.objects.filter(run=fork.id, verdict__in=("veto", "no_veto"))
    assert [(row.channel, row.verdict) for row in answers] == [("total", "veto")]
    assert verify_run(fork.id) == []

    sign_open(fork, rita, "approve")
    fork = runs.advance(fork.id)
    assert (state(fork)["letter"], state(fork)["total"]) == ("Dear Sir", 9)
    assert (len(first.asked), len(second.asked)) == (2, 2)
    assert verify_run(fork.id) == []


def test_a_patch_that_was_applied_without_it_is_named(
    rita: Any, people: cast.People
) -> None:
    veto = Answers(False)
    fork = _decided_patch(rita, people.steward, veto.veto, total="approve")
    assert len(veto.asked) == 1
    assert verify_run(fork.id) == []
    remove(Decision.objects.get(run=fork.id, verdict="no_veto"))
    assert any("veto was not asked" in str(fault) for fault in verify_run(fork.id))


def test_each_of_many_is_asked_once(rita: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def even(state: Any, proposal: Any) -> Any:
        [note] = proposal["notes"]
        calls.append(len(state.notes))
        return False if int(note) % 2 == 0 else "odd"

    flow = graph("many-vetoes")
    gate = Gate(reviewers=["group:claims"], veto=even)

    @flow.node(sends=["propose"])
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("propose", number) for number in range(50)]

    @flow.node(effect="human", gate=gate)
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": [str(ctx.payload)]}

    flow.edge(START, "split")
    flow.edge("propose", END)
    run = advanced(flow)
    sign(run, rita, ["approve"] * 50)

    applied: list[int] = []
    apply_writes = reduce._apply_writes

    def counting(*args: Any) -> Any:
        applied.append(len(args[-1]))
        return apply_writes(*args)

    monkeypatch.setattr(reduce, "_apply_writes", counting)
    run = runs.advance(run.id)
    assert len(state(run)["notes"]) == 25
    # Each sees what those before it have changed.
    assert calls == [(number + 1) // 2 for number in range(50)]
    # Each that passes by itself, and all of them in the end.
    assert applied == [*[1] * 25, 25]
    assert verify_run(run.id) == []


def _two(veto: Any) -> Graph:
    """Two gates beside each other; the second has a veto that looks at the total."""
    flow = graph("two-vetoes")

    def proposing(name: str) -> None:
        @flow.node(
            name, effect="human", gate=Gate(reviewers=["group:claims"], veto=veto)
        )
        def propose(state: Any, ctx: Any) -> dict[str, Any]:
            return {"notes": [name]}

        flow.edge(START, name)
        flow.edge(name, END)

    proposing("first")
    proposing("second")
    return flow


def test_the_second_gate_of_a_settlement_sees_what_the_first_changes(
    rita: Any,
) -> None:
    def only_one(state: Any, proposal: Any) -> Any:
        return "there is a note already" if state.notes else False

    run = advanced(_two(only_one))
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "paused"
    assert state(run)["notes"] == ["first"]
    assert {
        row.node: row.status for row in ApprovalRequest.objects.filter(run=run)
    } == {
        "first": "applied",
        "second": "open",
    }
    assert verify_run(run.id) == []


def test_what_a_veto_read_is_guarded_from_then_on(rita: Any) -> None:
    def reading(state: Any, proposal: Any) -> bool:
        return bool(state.notes)

    run = paused_run("reading-veto", deadline=None, veto=reading)
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    compiled = registry.get("reading-veto")
    guards = guarded_channels.guards_of_each(past(run.id, 1), compiled, ["notes"])
    assert guards == {"notes": ("propose",)}


def test_the_audit_log_has_a_line_for_each_time(rita: Any) -> None:
    run, _ = vetoed_run("no", False)
    sign(run, rita, ["approve", "approve"])
    runs.advance(run.id)
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    lines = AuditLine.objects.filter(run=run.id, kind="veto_asked").order_by("id")
    assert [line.facts["verdicts"] for line in lines] == [{"veto": 2}, {"no_veto": 2}]


def test_a_retried_commit_asks_again_and_writes_one_answer(
    rita: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, veto = vetoed_run(False)
    sign(run, rita, ["approve", "approve"])
    prepare = vetoes.prepare_vetoes
    # Somebody writes to the log between the question and the commit.
    first = [True]

    def with_a_wake(*args: Any, **options: Any) -> Any:
        if first:
            first.clear()
            Run.objects.filter(id=run.id).update(wakes=9)
        return prepare(*args, **options)

    monkeypatch.setattr("orchestrator.execution.commit.prepare_vetoes", with_a_wake)
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert len(veto.asked) == 2
    assert Decision.objects.filter(run=run.id, verdict="no_veto").count() == 2
    assert verify_run(run.id) == []


def test_rejected_by_hand_after_an_edit_keeps_the_record(rita: Any) -> None:
    run, _ = vetoed_run("no")
    sign(run, rita, [("edit", "Dear Sir"), "approve"])
    run = runs.advance(run.id)
    assert {row.position: row.revision for row in pending(run)} == {0: 2, 1: 1}
    rows = Decision.objects.filter(run=run.id, verdict="veto").order_by("position")
    assert [(row.revision, bytes(row.final_value)) for row in rows] == [
        (2, b""),
        (1, b""),
    ]


def test_review_api_and_receipt_show_why_it_is_open(people: cast.People) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run, _ = vetoed_run("the payee is <under> embargo")
    receipt = sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    browser = Client()
    browser.force_login(rita)
    for name, thing in (("review", run.id), ("receipt", receipt.id)):
        page = browser.get(reverse(name, args=[thing])).content.decode()
        text = strip_tags(page)
        assert "the payee is &lt;under&gt; embargo" in text, name
    # Who signed may sign again.
    request_json = browser.get(f"/api/v1/requests/{request(run).id}/").json()
    written = request_json["writes"][0]
    assert written["settled"] == ""
    assert [(each["by"], each["verdict"]) for each in written["verdicts"]] == [
        ("rita", "approve"),
        ("the veto", "veto"),
    ]
    assert written["verdicts"][1]["reason"] == "the payee is <under> embargo"
    sign(run, rita, ["reject", "reject"])
    page = browser.get(reverse("receipt", args=[receipt.id])).content.decode()
    assert "The veto of the gate kept 2 writes open" in page


def test_bundles_and_receipts_with_its_answers_verify(rita: Any) -> None:
    run, _ = vetoed_run("no", False)
    sign(run, rita, ["approve", "approve"])
    runs.advance(run.id)
    sign(run, rita, ["approve", "reject"])
    run = runs.advance(run.id)
    data = exported(run)
    key = bundle.public_key()
    verdict = verify(io.BytesIO(data), key)
    assert verdict.ok, verdict.reason
    for decision in Decision.objects.filter(run=run.id):
        assert verify_receipt(export_receipt(decision.id), key).ok
    forgotten(run)
    imported = loaded(data)
    assert verify_run(imported.id) == []


def test_a_bundle_in_which_what_it_kept_open_was_applied_is_refused(rita: Any) -> None:
    run, _ = vetoed_run("no", False)
    sign(run, rita, ["approve", "approve"])
    runs.advance(run.id)
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    bodies = lines_of(exported(run))
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = key.public_key().public_bytes_raw()
    data = written(bodies, key)
    assert verify(io.BytesIO(data), public) == (True, 0, "")
    assert first_bad_line(data, public) == 0

    # Its house says that the last answer was another.
    rows = [body["row"] for body in bodies if body["kind"] == "decision"]
    answer = [row for row in rows if row["verdict"] == "no_veto"][-1]
    answer.update(verdict="veto", final_value="")
    data = written(bodies, key)
    verdict = verify(io.BytesIO(data), public)
    assert (verdict.ok, verdict.reason) == (
        False,
        "what its veto kept open was applied",
    )
    assert first_bad_line(data, public) == verdict.bad_line


def test_a_request_that_was_applied_without_it_is_named(rita: Any) -> None:
    run, _ = vetoed_run(False)
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    for answer in Decision.objects.filter(run=run.id, verdict="no_veto"):
        remove(answer)
    assert any("veto was not asked" in str(fault) for fault in verify_run(run.id))


def test_a_replay_asks_no_veto(rita: Any, people: cast.People) -> None:
    run, veto = vetoed_run("no", False)
    sign(run, rita, ["approve", "approve"])
    runs.advance(run.id)
    sign(run, rita, ["approve", "approve"])
    run = runs.advance(run.id)
    replayed = runs.advance(runs.replay(run.head, by=people.steward).id)
    assert replayed.status == "completed"
    assert len(veto.asked) == 2


def test_a_call_is_made_only_if_its_veto_lets_it(rita: Any) -> None:
    veto = Answers("closed", False)
    calls: list[int] = []
    flow = graph("vetoed-call")

    class Args(BaseModel):
        total: int

    @flow.node(
        effect="external",
        idempotent=True,
        approve="call",
        prepare=lambda state, ctx: Args(total=7),
        args=Args,
        gate=Gate(reviewers=["group:claims"], veto=veto.veto),
    )
    def pay(state: Any, ctx: Any) -> None:
        calls.append(ctx.args.total)

    flow.edge(START, "pay")
    flow.edge("pay", END)
    run = advanced(flow)
    sign(run, rita, ["approve"])
    run = runs.advance(run.id)
    assert (run.status, calls) == ("paused", [])
    sign(run, rita, ["approve"])
    run = runs.advance(run.id)
    assert (run.status, calls) == ("completed", [7])
    assert verify_run(run.id) == []


def test_nobody_lifts_a_veto_by_a_value_that_they_set_themselves(
    rita: Any, people: cast.People
) -> None:
    def reading(state: Any, proposal: Any) -> Any:
        return False if state.notes else "there is no note"

    run = paused_run("patched-veto", deadline=None, veto=reading)
    fork = runs.fork(run.head, patch={"scratch": {"notes": ["x"]}}, by=people.steward)
    fork = runs.advance(fork.id)
    sign(fork, rita, ["approve"] * len(pending(fork)))
    fork = runs.advance(fork.id)
    assert fork.status == "paused"
    [reason] = reasons(fork)
    assert "its veto lets this pass" in reason
    sign(fork, rita, ["approve", "approve"])
    assert runs.advance(fork.id).status == "completed"
    assert verify_run(fork.id) == []


def test_silence_lifts_no_veto_that_names_an_unsigned_change(
    rita: Any, people: cast.People
) -> None:
    def reading(state: Any, proposal: Any) -> Any:
        return False if state.notes else "there is no note"

    options: dict[str, Any] = {
        "deadline": timedelta(hours=1),
        "on_deadline": "approve",
        "veto": reading,
    }
    run = paused_run("patched-veto", **options)
    fork = runs.fork(run.head, patch={"scratch": {"notes": ["x"]}}, by=people.steward)
    fork = runs.advance(fork.id)
    sign(fork, rita, ["approve", "approve"])
    fork = runs.advance(fork.id)
    assert fork.status == "paused"
    # One of them is signed again by who has read the reason; the deadline approves the
    # other.
    sign(fork, rita, ["approve", None])
    for _ in range(3):
        let_come(fork)
        work_off(fork)
        fork = runs.advance(fork.id)
    assert fork.status == "rejected", verdicts(fork)
    assert state(fork)["letter"] == ""
    assert len(reasons(fork)) == 1
    assert verify_run(fork.id) == []
