"""What signs by itself only after a window, in which people may decide first."""

import io
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import transaction
from django.test import Client as Browser
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from approvals import reviews
from approvals.answers.windows import KIND, put_off_windows
from approvals.deadlines import GRACE
from approvals.exported_receipt import export_receipt
from approvals.models import Decision
from approvals.views.inbox import time_of
from checkpoints import bundle
from checkpoints.bundle.envelope import sealed_envelope
from checkpoints.bundle.receipt_verifier import (
    PAYLOAD_TYPE,
    UNKNOWN_WINDOW,
    verify_receipt,
)
from checkpoints.bundle.verifier import verify
from checkpoints.models import Job, PendingWrite, Run
from checkpoints.queue import notify
from checkpoints.queue.leases import Lease
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Retry
from orchestrator.engine.errors import InvalidGraph
from orchestrator.jobs.kinds import advance
from orchestrator.runs import restoration
from tests.support import cast, run_actions
from tests.support.api_people import Client
from tests.support.bundle_reader import first_bad_line
from tests.support.bundles import exported, lines_of, written
from tests.support.deadlines import gated
from tests.support.dsse import opened
from tests.support.forging import rewrite
from tests.support.run_actions import pending, sign, sign_open
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import advanced, graph, registered
from tests.support.standing_policies import permitting, policy_of, uses, waiting
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)
EARLY = "a policy signed it before its window was over"
FORGER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
FORGER_PUBLIC = FORGER.public_key().public_bytes_raw()


@pytest.fixture
def rita(people: cast.People) -> Any:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def reto(people: cast.People) -> Any:
    return run_actions.reviewer(people.steward)


def always(state: Any, proposal: Any) -> bool:
    return True


def asking_run(name: str = "windowed", **gate: Any) -> Run:
    options = {"deadline": None, "auto": always, "auto_after": HOUR, **gate}
    return advanced(gated(name, **options))


def let_pass(run: Run) -> None:
    """Move the beginning of the run's windows, and their jobs, to two hours ago."""
    past = timezone.now() - 2 * HOUR
    for row in pending(run):
        rewrite(row, staged_at=past)
    Job.objects.filter(run=run.id, kind=KIND).update(due_at=past)


def work_off(run: Run) -> Run:
    """Let the jobs of the run's windows work as far as they are due, and the run."""
    for job in list(Job.objects.filter(run=run.id, kind=KIND)):
        advance(job.id)
    run.refresh_from_db()
    return runs.advance(run.id) if run.status == "queued" else run


def verdicts(run: Run) -> list[tuple[str, str]]:
    rows = Decision.objects.filter(run=run.id).order_by("event_seq")
    return [(row.signer_name, row.verdict) for row in rows]


def test_it_signs_only_after_its_window(rita: Any) -> None:
    run = asking_run()
    assert run.status == "paused"
    assert verdicts(run) == []
    job = Job.objects.get(run=run.id, kind=KIND)
    [first, _] = pending(run)
    assert job.due_at == first.staged_at + HOUR
    assert work_off(run).status == "paused"
    assert Job.objects.filter(run=run.id, kind=KIND).count() == 1
    let_pass(run)
    run = work_off(run)
    assert run.status == "completed"
    assert {verdict for _, verdict in verdicts(run)} == {"approve"}
    assert verify_run(run.id) == []


def test_the_page_says_when(rita: Any) -> None:
    run = asking_run()
    browser = Browser()
    browser.force_login(rita)
    page = browser.get(reverse("review", args=[run.id])).content.decode()
    assert "May sign by itself at" in strip_tags(page)


def named_ends(run: Run, user: Any) -> tuple[str, list[str | None]]:
    """Return what the page of a run's review says, and the ends of windows that the API
    names.
    """
    browser = Browser()
    browser.force_login(user)
    page = browser.get(reverse("review", args=[run.id])).content.decode()
    path = f"requests/{run_actions.request(run).id}/"
    writes = Client(user).get(path).json()["writes"]
    return strip_tags(page), [write["window_end"] for write in writes]


def test_page_and_api_name_the_end_to_which_a_window_was_put_off(rita: Any) -> None:
    run = asking_run()
    page, ends = named_ends(run, rita)
    first_ends = [row.staged_at + HOUR for row in pending(run)]
    assert [datetime.fromisoformat(end or "") for end in ends] == first_ends

    later = timezone.now() + 5 * HOUR
    with transaction.atomic():
        put_off_windows(run.id, earliest=later)
    page, ends = named_ends(run, rita)
    assert f"May sign by itself at {time_of(later)} unless" in page
    assert [datetime.fromisoformat(end or "") for end in ends] == [later, later]

    # Of what a person has decided no window ends any more.
    sign(run, rita, ["approve", None])
    assert named_ends(run, rita)[1][1:] == ends[1:]


@pytest.mark.parametrize("verdict", ["approve", "reject", ("edit", "Dear Sir")])
def test_whatever_a_person_decides_in_it_prevents_that(rita: Any, verdict: Any) -> None:
    run = asking_run(quorum=2, reject_quorum=2)
    sign(run, rita, [verdict, None])
    runs.advance(run.id)
    let_pass(run)
    work_off(run)
    rows = Decision.objects.filter(run=run.id, position=0).order_by("event_seq")
    assert [row.verdict for row in rows][-1] == "no_auto"
    assert "a person has decided this" in str(read_value(rows.last(), "reason"))
    # What nobody has decided beside it is signed.
    assert Decision.objects.filter(run=run.id, position=1, verdict="approve").exists()
    assert verify_run(run.id) == []


def test_receipt_and_bundle_verify_offline_only_after_the_window(
    rita: Any, configure: Any
) -> None:
    configure(**ONE_KEY)
    run = asking_run()
    let_pass(run)
    run = work_off(run)
    assert run.status == "completed"
    decision = Decision.objects.filter(run=run.id, verdict="approve")[0]
    file = export_receipt(decision.id)
    assert "window" not in verify_receipt(file, bundle.public_key()).reason
    data = exported(run)
    assert verify(io.BytesIO(data), bundle.public_key()) == (True, 0, "")

    # A house that says that it signed a second too early.
    early = (pending(run)[0].staged_at + HOUR - timedelta(seconds=1)).isoformat()
    content = opened(file, PAYLOAD_TYPE, bundle.public_key())
    content["decision"]["at"] = early
    verdict = verify_receipt(
        sealed_envelope(PAYLOAD_TYPE, content), bundle.public_key()
    )
    assert (verdict.ok, verdict.reason) == (False, EARLY)
    # An older receipt does not say when the revision was staged.
    del content["write"]["signed"]["staged_at"]
    verdict = verify_receipt(
        sealed_envelope(PAYLOAD_TYPE, content), bundle.public_key()
    )
    assert verdict.ok
    assert UNKNOWN_WINDOW in verdict.reason

    bodies = lines_of(data)
    [row, *_] = [body["row"] for body in bodies if body["kind"] == "decision"]
    row["at"] = early
    forged = written(bodies, FORGER)
    verdict = verify(io.BytesIO(forged), FORGER_PUBLIC)
    assert (verdict.ok, verdict.reason) == (False, EARLY)
    assert first_bad_line(forged, FORGER_PUBLIC) == verdict.bad_line


def test_people_who_decide_first_leave_nothing_to_sign(rita: Any) -> None:
    run = asking_run()
    sign_open(run, rita, "reject")
    run = runs.advance(run.id)
    assert run.status == "rejected"
    assert work_off(run).status == "rejected"
    assert "approve" not in {verdict for _, verdict in verdicts(run)}


def test_a_standing_policy_waits_too(rita: Any, reto: Any) -> None:
    policy = policy_of(waiting(auto_after=HOUR), rita)
    run = advanced(permitting(auto_after=HOUR))
    assert (run.status, uses([policy])) == ("paused", [0])
    let_pass(run)
    run = work_off(run)
    assert (run.status, uses([policy])) == ("completed", [1])
    assert verify_run(run.id) == []


def test_a_window_begins_anew_with_what_comes_back(reto: Any) -> None:
    flow = graph("windowed-rebase")
    gate_options: dict[str, Any] = {"reviewers": ["group:claims"]}

    @flow.node(effect="human", gate=Gate(**gate_options, auto=always, auto_after=HOUR))
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"total": 4}

    @flow.node(effect="human", gate=Gate(**gate_options))
    def other(state: Any, ctx: Any) -> dict[str, Any]:
        return {"total": 5}

    flow.edge(START, "propose")
    flow.edge(START, "other")
    flow.edge("propose", END)
    flow.edge("other", END)
    run = advanced(flow)
    [theirs] = PendingWrite.objects.filter(run=run.id, node="other")
    let_pass(run)
    item = {"write": str(theirs.write), "verdict": "approve"}
    newest = [row for row in pending(run) if row.node == "other"]
    reviews.sign(run.id, [{**item, "hash": newest[0].hash}], by=reto)
    Job.objects.filter(run=run.id, kind=KIND).delete()
    run = runs.advance(run.id)
    [row] = [row for row in pending(run) if row.node == "propose"]
    assert row.revision == 2
    job = Job.objects.get(run=run.id, kind=KIND)
    assert job.due_at == row.staged_at + HOUR
    assert Decision.objects.filter(run=run.id, task=row.task).count() == 0


def test_a_verification_finds_what_was_signed_before(rita: Any) -> None:
    run = asking_run(quorum=2)
    let_pass(run)
    run = work_off(run)
    for row in pending(run):
        rewrite(row, staged_at=timezone.now())
    faults = verify_run(run.id)
    assert any("before its window was over" in fault.reason for fault in faults)


def test_a_verification_finds_what_was_signed_before_on_an_earlier_revision(
    rita: Any,
) -> None:
    run = asking_run(quorum=2)
    let_pass(run)
    run = work_off(run)
    first, *others = pending(run)
    sign(run, rita, [("edit", read_value(first, "value")), *[None for _ in others]])
    assert pending(run)[0].revision == 2
    rewrite(first, staged_at=timezone.now())
    faults = verify_run(run.id)
    assert any("before its window was over" in fault.reason for fault in faults)


@pytest.mark.parametrize(
    "options",
    [
        {"auto": None},
        {"auto_after": 60},
        {"auto_after": timedelta(0)},
        {"auto_after": timedelta(milliseconds=500)},
        {"auto_after": HOUR, "deadline": HOUR},
    ],
)
def test_a_window_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    arguments = {"auto": always, "auto_after": HOUR, "deadline": None, **options}
    with pytest.raises(InvalidGraph, match="auto_after"):
        registered(gated("wrong-window", **arguments))


def beside_a_retry() -> Any:
    """ask, whose gate has a window, beside fetch, which fails and is tried again in two
    hours.
    """
    flow = graph("windowed-beside-a-retry")
    gate = Gate(reviewers=["group:claims"], auto=always, auto_after=HOUR)
    flow.node("ask", effect="human", gate=gate)(lambda state, ctx: {"letter": "Dear"})

    @flow.node(retry=Retry(attempts=3, backoff=7200.0, jitter=0.0))
    def fetch(state: Any, ctx: Any) -> None:
        raise ConnectionError("not now")

    for node in ("ask", "fetch"):
        flow.edge(START, node)
        flow.edge(node, END)
    return flow


def test_it_ends_while_the_run_waits_for_a_later_retry() -> None:
    run = advanced(beside_a_retry())
    assert run.status == "waiting"
    job = Job.objects.get(run=run.id, kind=KIND)
    [row] = pending(run)
    assert job.due_at == row.staged_at + HOUR
    let_pass(run)
    run = work_off(run)
    assert {verdict for _, verdict in verdicts(run)} == {"approve"}
    assert run.status == "waiting"


def test_a_run_that_waits_again_keeps_its_job() -> None:
    run = advanced(beside_a_retry())
    with transaction.atomic():
        notify.wake(run.id)
    run = runs.advance(run.id)
    assert run.status == "waiting"
    assert Job.objects.filter(run=run.id, kind=KIND, status="queued").count() == 1


def test_people_have_time_after_a_restore(rita: Any) -> None:
    run = asking_run(deadline=3 * HOUR)
    past = timezone.now() - 2 * HOUR
    for row in pending(run):
        rewrite(row, staged_at=past)
    restoration.end_leases()
    restoration.stop_runs(by=rita)
    Run.objects.filter(id=run.id, status="paused").update(status="queued", due_at=None)
    run.refresh_from_db()
    if run.status != "queued":
        runs.resume(run.id)
    run = runs.advance(run.id)
    assert verdicts(run) == []
    job = Job.objects.get(run=run.id, kind=KIND, status="queued")
    assert job.due_at > timezone.now() + GRACE - timedelta(minutes=1)
    let_pass(run)
    assert work_off(run).status == "completed"


@pytest.mark.parametrize("status", ["incompatible", "tampered"])
def test_people_have_time_after_a_stop_that_let_nobody_decide(status: str) -> None:
    run = asking_run()
    let_pass(run)
    # As a worker leaves a run that it cannot continue.
    Run.objects.filter(id=run.id).update(status=status)
    runs.resume(run.id)
    run = runs.advance(run.id)
    assert (run.status, verdicts(run)) == ("paused", [])
    let_pass(run)
    assert work_off(run).status == "completed"


def test_a_window_begins_by_the_clock_of_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Lease.now
    ahead = timedelta(hours=5)
    monkeypatch.setattr(Lease, "now", lambda lease: real(lease) + ahead)
    run = asking_run()
    # A worker whose clock is behind begins no window before the database's moment.
    for row in pending(run):
        assert row.staged_at > timezone.now() + ahead - timedelta(minutes=1)


def test_a_version_without_the_policy_says_so_at_the_end(rita: Any) -> None:
    run = asking_run("windowed-then-not")
    flow = gated("windowed-then-not", deadline=None)
    registered(flow)
    let_pass(run)
    run = work_off(run)
    assert {verdict for _, verdict in verdicts(run)} == {"no_auto"}
    assert run.status == "paused"


def test_supersteps_beside_an_open_window_cost_no_statement_of_their_own() -> None:
    costs: dict[str, int] = {}
    for name, gate in (("without", {}), ("with", {"auto": always, "auto_after": HOUR})):
        flow = graph(f"pure-{name}-a-window")
        asks = Gate(reviewers=["group:claims"], **gate)
        flow.node("ask", effect="human", gate=asks)(lambda state, ctx: {"total": 1})
        flow.node("turn")(lambda state, ctx: {"notes": ["once"]})
        flow.edge(START, "ask")
        flow.edge("ask", END)
        flow.edge(START, "turn")
        flow.branch(
            "turn", lambda state: len(state.notes) < 100, {True: "turn", False: END}
        )
        with counted() as sent:
            assert advanced(flow).status == "paused"
        costs[name] = len(sent)
    # The looks at the jobs, and the one that is added, do not grow with the supersteps.
    assert costs["with"] <= costs["without"] + 20
