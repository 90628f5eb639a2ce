"""What lists are read by is that of requests and runs, whoever changes these."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from approvals import inbox, list_columns
from approvals.list_columns import SEND_NOTICES, TOGETHER_SECONDS
from approvals.models import (
    ApprovalRequest,
    Notice,
    RequestReviewer,
    RequestSigner,
    RequestViewer,
)
from approvals.webhooks import verbs as webhooks
from checkpoints import retention
from checkpoints.core.status import CLOSED_TO_DECISIONS, ENDS, STOPPED, Status
from checkpoints.ledger.pending_writes import StoredBase
from checkpoints.models import ErasureRecord, Job, PendingWrite, Run
from checkpoints.queue import jobs
from checkpoints.verification import LIST_DIFFERS, verify_run
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.jobs.integrity import Verified, Wanted, verify_runs
from tests.support import notices, run_actions, small_graphs
from tests.support.cast import People
from tests.support.decisions import paused_run
from tests.support.rows import a_decision, a_request, a_run, a_write

pytestmark = pytest.mark.django_db
OF_ANOTHER_TABLE = {
    "sqlite": """
        CREATE TRIGGER reviewer_named AFTER INSERT ON auth_group BEGIN SELECT 1; END
    """,
    "postgresql": """
        CREATE TRIGGER reviewer_named BEFORE UPDATE ON auth_group
        FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()
    """,
}


def copied() -> list[Any]:
    rows = list_columns.with_copied(RequestReviewer.objects.all())
    return [row.is_copied for row in rows]


@pytest.mark.parametrize("status", list(Status))
def test_a_request_waits_as_long_as_its_run_is_open_to_decisions(status: str) -> None:
    run = a_run(status="paused")
    a_request(run, "user:rita", "group:claims")
    for changed_to in (status, "paused", status):
        Run.objects.filter(id=run.id).update(status=changed_to)
        waits = set(RequestReviewer.objects.values_list("waits", flat=True))
        assert waits == {changed_to not in CLOSED_TO_DECISIONS}
    assert copied() == [True, True]


@pytest.mark.parametrize("status", list(Status))
def test_a_run_stands_once_with_each_principal_by_graph_and_status(status: str) -> None:
    run = a_run(status="paused", graph="pays")
    a_request(run, "user:rita", "group:claims")
    a_request(run, "user:rita", status="applied")
    Run.objects.filter(id=run.id).update(status=status)
    a_request(run, "group:claims", "user:ravi")

    rows = RequestReviewer.objects.filter(run_status__isnull=False)
    listed = rows.values_list("principal", "run_graph", "run_status")
    assert sorted(listed) == [
        ("group:claims", "pays", status),
        ("user:ravi", "pays", status),
        ("user:rita", "pays", status),
    ]
    assert set(copied()) == {True}


def test_a_run_that_stands_twice_or_never_in_a_list_is_seen_and_mended() -> None:
    run = a_run()
    a_request(run, "user:rita")
    a_request(run, "user:rita")
    rows = RequestReviewer.objects.all()
    for graph, status in (("", None), (run.graph, run.status), ("other", run.status)):
        rows.update(run_graph=graph, run_status=status)
        assert copied() == [False, False]
        list_columns.install_triggers()
        assert copied() == [True, True]


@pytest.mark.parametrize("status", ["settled", "applied", "withdrawn", "expired"])
def test_a_request_waits_as_long_as_it_is_open(status: str) -> None:
    a_request(a_run(), "user:rita")
    ApprovalRequest.objects.update(status=status)
    assert RequestReviewer.objects.get().waits is False
    Run.objects.update(decisions=4, status="tampered")
    Run.objects.update(status="paused")
    assert RequestReviewer.objects.get().waits is False
    ApprovalRequest.objects.update(status="open")
    assert RequestReviewer.objects.get().waits is True
    assert copied() == [True]


def test_a_person_who_decided_stands_once_with_each_request(people: People) -> None:
    request = a_request(a_run(), "user:rita")
    for seq in (1, 2):
        write = a_write(
            request, seq, channel="payout", value=1, base=StoredBase("", {}, bound=True)
        )
        a_decision(write, request, by=people.reviewer, verdict="approve", seq=seq)
    signer = RequestSigner.objects.get()
    assert (signer.by, signer.request, signer.is_open) == (
        people.reviewer,
        request,
        True,
    )
    ApprovalRequest.objects.update(status="applied")
    assert RequestSigner.objects.get().is_open is False
    assert list(inbox.signed_by(people.reviewer, is_open=False)) == [request]


def test_a_request_stands_in_the_lists_of_who_is_named_in_its_run_and_of_who_started_it(
    people: People,
) -> None:
    run = a_run(started_by=people.nobody)
    first = a_request(run, "user:rita")
    second = a_request(run, "user:rita", "group:claims")
    third = a_request(run)
    starter = f"starter:{people.nobody.pk}"
    expected = {
        (request.id, principal)
        for request in (first, second, third)
        for principal in ("user:rita", "group:claims", starter)
    }
    assert set(_viewers()) == expected
    assert len(_viewers()) == len(expected)

    moment = first.opened_at + timedelta(hours=1)
    ApprovalRequest.objects.filter(id=first.id).update(opened_at=moment)
    moments = RequestViewer.objects.filter(request=first).values_list("opened_at")
    assert set(moments) == {(moment,)}


def test_a_request_of_a_gate_stands_in_these_lists(people: People) -> None:
    run = paused_run()
    request = ApprovalRequest.objects.get(run=run)
    for principal in request.policy["reviewers"]:
        assert (request.id, principal) in _viewers()


def _viewers() -> list[tuple[Any, str]]:
    return list(RequestViewer.objects.values_list("request", "principal"))


@pytest.mark.django_db(transaction=True)
def test_the_next_migrate_lists_requests_that_were_opened_without_triggers(
    people: People,
) -> None:
    list_columns.remove_triggers()
    try:
        run = a_run(started_by=people.nobody)
        request = a_request(run, "user:rita")
        assert _viewers() == []
    finally:
        call_command("migrate", verbosity=0)
    principals = ("user:rita", f"starter:{people.nobody.pk}")
    assert set(_viewers()) == {(request.id, name) for name in principals}


def test_a_request_that_is_hidden_from_inboxes_is_a_fault(people: People) -> None:
    run = paused_run()
    assert verify_run(run.id) == []
    RequestReviewer.objects.filter(run=run.id).update(waits=False)
    (fault,) = verify_run(run.id)
    assert "inboxes may lack it" in str(fault)
    # The run itself is as it was written, and goes on.
    list(verify_runs(Wanted(runs=(str(run.id),), mark=True), Verified(), by=None))
    run.refresh_from_db()
    assert run.status == Status.PAUSED
    call_command("migrate", verbosity=0)
    assert verify_run(run.id) == []


@pytest.mark.parametrize("change", ["lost", "added", "of another time"])
def test_a_list_of_all_requests_that_differs_is_a_fault_and_is_mended(
    people: People, change: str
) -> None:
    run = paused_run()
    rows = sorted(_viewers())
    listed = RequestViewer.objects.filter(request__run=run.id)
    if change == "lost":
        listed[0].delete()
    elif change == "added":
        RequestViewer.objects.create(
            request_id=listed[0].request_id,
            principal="user:mallory",
            graph=listed[0].graph,
            opened_at=listed[0].opened_at,
        )
    else:
        listed.update(opened_at=timezone.now() + timedelta(days=1))
    (fault,) = verify_run(run.id)
    assert fault.code == LIST_DIFFERS
    # The run itself is as it was written, and goes on.
    list(verify_runs(Wanted(runs=(str(run.id),), mark=True), Verified(), by=None))
    run.refresh_from_db()
    assert run.status == Status.PAUSED
    call_command("migrate", verbosity=0)
    assert verify_run(run.id) == []
    assert sorted(_viewers()) == rows


def test_a_list_by_the_run_that_lost_a_request_is_a_fault_and_is_mended() -> None:
    run = a_run()
    for number in range(list_columns.MOST_SINGLY + 2):
        request = a_request(run, f"user:u{number}")
    principal = list_columns.run_principal(run.id)
    by_run = RequestViewer.objects.filter(principal=principal)
    assert by_run.count() == list_columns.MOST_SINGLY + 2
    assert list_columns.differing_viewers(run, [request]) == set()
    by_run.filter(request=request).delete()
    assert list_columns.differing_viewers(run, [request]) == {request.id}
    list_columns.install_triggers()
    assert list_columns.differing_viewers(run, [request]) == set()


def test_rows_that_are_as_they_should_be_are_not_written_anew(people: People) -> None:
    run = a_run(started_by=people.nobody, graph="pays")
    first = a_request(run, "user:rita", "group:claims")
    a_request(run, "user:rita", status="applied")
    a_request(a_run(), "user:rita")
    base = StoredBase("", {}, bound=True)
    write = a_write(first, 1, channel="payout", value=1, base=base)
    a_decision(write, first, by=people.reviewer, verdict="approve", seq=1)
    assert [_changed_rows(text) for text in list_columns.COPIES] == [0] * len(
        list_columns.COPIES
    )
    RequestReviewer.objects.filter(request=first).update(waits=False)
    changed = [_changed_rows(text) for text in list_columns.COPIES]
    assert sum(changed) == 2


def _changed_rows(statement: str) -> int:
    """Execute a statement of the copies. Returns how many rows it has written."""
    with connection.cursor() as cursor:
        cursor.execute(statement.format(**list_columns._names()))
        return cursor.rowcount


def test_on_postgresql_lists_can_be_read_while_the_copies_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("on SQLite a migration removes the triggers itself")
    # A trigger of another text is missing, as after a change of the version.
    monkeypatch.setattr(list_columns, "MOST_SINGLY", 3)
    assert list_columns.missing_triggers() == ["reviewer_named"]
    list_columns.install_triggers()
    assert list_columns.missing_triggers() == []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relation::regclass::text FROM pg_locks "
            "WHERE pid = pg_backend_pid() AND mode = 'AccessExclusiveLock' "
            "AND relation::regclass::text ~ '^(approvals|checkpoints)_'"
        )
        assert cursor.fetchall() == []


def test_who_hides_a_request_and_drops_the_trigger_is_found_too(
    people: People,
) -> None:
    run = paused_run()
    list_columns.remove_triggers()
    try:
        RequestReviewer.objects.filter(run=run.id).update(waits=False)
        (fault,) = verify_run(run.id)
        assert fault.code == LIST_DIFFERS
    finally:
        call_command("migrate", verbosity=0)
    assert inbox.count_waiting(run_actions.reviewer(people.reviewer)) == 1


def test_a_decision_changes_the_marks_of_its_own_request_only(people: People) -> None:
    run = a_run(status="paused")
    request = a_request(run, "user:rita")
    other = a_request(run, "user:rita", node="other")
    write = a_write(
        request, 1, channel="payout", value=1, base=StoredBase("", {}, bound=True)
    )
    a_decision(write, request, by=people.reviewer, verdict="approve", seq=1)
    Run.objects.filter(id=run.id).update(decisions=1)
    changes = RequestReviewer.objects.values_list("request", "changes")
    assert dict(changes) == {request.id: 1, other.id: 0}


@pytest.mark.parametrize("vendor", ["sqlite", "postgresql"])
def test_a_trigger_of_that_name_on_another_table_is_not_the_one(vendor: str) -> None:
    if connection.vendor != vendor:
        pytest.skip(f"this is about {vendor}")
    list_columns.remove_triggers()
    try:
        with connection.cursor() as cursor:
            cursor.execute(OF_ANOTHER_TABLE[vendor])
        assert "reviewer_named" in list_columns.missing_triggers()
    finally:
        with connection.cursor() as cursor:
            on_table = " ON auth_group" if vendor == "postgresql" else ""
            cursor.execute(f"DROP TRIGGER reviewer_named{on_table}")
        call_command("migrate", verbosity=0)
    assert list_columns.missing_triggers() == []


@pytest.mark.django_db(transaction=True)
def test_a_missing_trigger_is_reported_and_the_next_migrate_makes_up_for_it(
    people: People,
) -> None:
    list_columns.remove_triggers()
    try:
        run = paused_run()
        reviewer = run_actions.reviewer(people.reviewer)
        # It is shown all the same, and later than it should be.
        assert inbox.count_waiting(reviewer) == 1
        run_actions.sign(run, reviewer, ["approve"])
        assert {fault.code for fault in verify_run(run.id)} == {LIST_DIFFERS}
        warnings = list_columns.check_triggers(
            list(apps.get_app_configs()), databases=["default"]
        )
        assert [warning.id for warning in warnings] == ["approvals.W002"] * len(
            list_columns.TRIGGERS
        )
    finally:
        call_command("migrate", verbosity=0)
    assert list_columns.missing_triggers() == []
    assert set(copied()) == {True}
    assert RequestSigner.objects.get().by == people.reviewer
    assert verify_run(run.id) == []


def test_each_change_of_a_request_is_noted_in_its_transaction() -> None:
    request = a_request(a_run(), "user:rita", "group:claims")
    for status, outcome in (
        ("settled", "approved"),
        ("open", ""),
        ("expired", ""),
        ("withdrawn", ""),
        ("applied", "approved"),
    ):
        rows = ApprovalRequest.objects.filter(id=request.id)
        rows.update(status=status, outcome=outcome)
        rows.update(status=status, outcome=outcome)
    assert notices.events() == [
        ("request.opened", ""),
        ("request.settled", "approved"),
        ("request.came_back", ""),
        ("request.expired", ""),
        ("request.withdrawn", ""),
    ]
    assert set(Notice.objects.values_list("run", "request")) == {
        (request.run_id, request.id)
    }


def test_what_is_rolled_back_is_noted_by_nobody() -> None:
    with transaction.atomic():
        a_request(a_run(), "user:rita")
        transaction.set_rollback(True)
    assert notices.events() == []


def test_the_end_of_a_run_is_noted_where_people_had_decided() -> None:
    run = a_run(status="running")
    Run.objects.update(status="completed")
    assert notices.events() == []
    Run.objects.update(status="running")
    a_request(run, "user:rita", status="applied")
    for status in Status:
        Run.objects.filter(id=run.id).update(status=status)
        Run.objects.filter(id=run.id).update(status=status)
    noted = [outcome for _, outcome in notices.events()]
    assert noted == [status for status in Status if status in ENDS | STOPPED]


def test_a_value_that_moves_under_a_signature_is_noted_once_for_its_request(
    people: People,
) -> None:
    request = a_request(a_run(), "user:rita")
    base = StoredBase("", {}, bound=True)
    first = a_write(request, 1, channel="payout", value=1, base=base)
    second = a_write(request, 2, channel="letter", value=1, base=base)
    unsigned = a_write(request, 3, channel="total", value=1, base=base)
    _rebase(unsigned)
    assert notices.events() == [("request.opened", "")]
    for seq, write in enumerate((first, second), 1):
        a_decision(write, request, by=people.reviewer, verdict="approve", seq=seq)
        _rebase(write)
    assert notices.events() == [("request.opened", ""), ("request.came_back", "")]


def _rebase(write: PendingWrite) -> None:
    write.pk = None
    write.revision += 1
    write.reason = "rebase"
    write.save(force_insert=True)


@pytest.mark.django_db(transaction=True)
def test_a_notice_wakes_the_job_that_sends_unless_it_is_paused_or_failing() -> None:
    later = timezone.now() + timedelta(minutes=1)
    job = jobs.add_job(SEND_NOTICES, name=SEND_NOTICES)
    rows = Job.objects.filter(id=job)
    for unchanged in (
        {"due_at": later, "attempts": 2},
        {"due_at": jobs.PAUSED},
        {"due_at": later, "status": "running"},
    ):
        rows.update(**{"attempts": 0, "status": "queued", **unchanged})
        a_request(a_run(), "user:rita")
        assert rows.get().due_at == unchanged["due_at"]
    rows.update(due_at=later, attempts=0, status="queued")
    a_request(a_run(), "user:rita")
    due_at = rows.get().due_at
    assert due_at <= timezone.now() + timedelta(seconds=TOGETHER_SECONDS)
    # Others that follow are passed on in the same turn, and do not put it off.
    a_request(a_run(), "user:rita")
    assert rows.get().due_at == due_at


@pytest.mark.django_db(transaction=True)
def test_a_run_that_ends_without_a_decision_wakes_no_job() -> None:
    later = timezone.now() + timedelta(minutes=1)
    job = jobs.add_job(SEND_NOTICES, name=SEND_NOTICES)
    Job.objects.filter(id=job).update(due_at=later)
    run = a_run()
    Run.objects.filter(id=run.id).update(status="failed")
    assert Job.objects.get(id=job).due_at == later


def test_whether_a_notice_of_a_request_waits_is_found_by_an_index() -> None:
    rows = Notice.objects.filter(
        passed_on_at=None, request=uuid4(), event="request.came_back"
    )
    with transaction.atomic(), connection.cursor() as cursor:
        # The table is empty, and an empty one is read whole.
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan = off")
        plan = rows.order_by().explain()
    assert "notice_waiting_of_request" in plan


@pytest.mark.django_db(transaction=True)
def test_nobody_waits_for_a_transaction_that_has_woken_the_job() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    later = timezone.now() + timedelta(minutes=1)
    job = jobs.add_job(SEND_NOTICES, name=SEND_NOTICES)
    Job.objects.filter(id=job).update(due_at=later)

    def open_another() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '5s'")
        a_request(a_run(), "user:rita")
        connection.close()

    with transaction.atomic():
        a_request(a_run(), "user:rita")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(open_another).result(timeout=60)
    assert len(notices.events()) == 2


def test_a_request_costs_no_statement_more_however_many_reviewers_it_names() -> None:
    run = a_run()
    with CaptureQueriesContext(connection) as captured:
        a_request(run, *(f"user:{number}" for number in range(50)))
    assert not [q for q in captured if "approvals_notice" in q["sql"]]
    assert Notice.objects.count() == 1


def _wanting(*events: str, graphs: tuple[str, ...] = ()) -> None:
    webhooks.add_webhook(
        "https://hooks.example.org/", events=events, graphs=graphs, by=None
    )


def test_each_end_and_stop_of_a_run_is_noted_for_a_webhook_that_wants_it() -> None:
    _wanting()
    run = a_run(status="running")
    for status in Status:
        Run.objects.filter(id=run.id).update(status=status)
        Run.objects.filter(id=run.id).update(status=status)
    noted = [event for event, _ in notices.events()]
    assert noted == list(list_columns.RUN_EVENTS)
    assert [event for event, outcome in notices.events() if event[4:] != outcome] == []
    assert set(Notice.objects.values_list("run", flat=True)) == {run.id}


@pytest.mark.parametrize(
    ("events", "graphs", "is_noted"),
    [
        (["run.failed"], [], True),
        (["request.opened", "run.failed"], ["claim_payout", "other"], True),
        (["run.completed"], [], False),
        ([], ["other"], False),
        ([], ["claim"], False),
    ],
)
def test_without_a_webhook_that_wants_it_no_notice_of_a_run_is_written(
    events: list[str], graphs: list[str], is_noted: bool
) -> None:
    _wanting(*events, graphs=tuple(graphs))
    run = a_run(status="running")
    with CaptureQueriesContext(connection) as captured:
        Run.objects.filter(id=run.id).update(status="failed")
    assert notices.events() == [("run.failed", "failed")] * is_noted
    assert len(captured) == 1


@pytest.mark.skipif(connection.vendor != "sqlite", reason="elsewhere a column is JSON")
@pytest.mark.parametrize("column", ["events", "graphs"])
def test_a_run_ends_whatever_was_written_into_the_row_of_a_webhook(column: str) -> None:
    _wanting("run.failed")
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA ignore_check_constraints = ON")
        cursor.execute(f"UPDATE approvals_webhook SET {column} = '[broken'")  # noqa: S608
        cursor.execute("PRAGMA ignore_check_constraints = OFF")
    run = a_run(status="running")
    Run.objects.filter(id=run.id).update(status="failed")
    run.refresh_from_db()
    assert run.status == "failed"
    assert notices.events() == [("run.failed", "failed")]


def test_a_graph_of_any_name_is_noted() -> None:
    name = 'zahlung-„ä"\\'
    _wanting("run.failed", graphs=(name,))
    run = a_run(status="running", graph=name)
    Run.objects.filter(id=run.id).update(status="failed")
    assert notices.events() == [("run.failed", "failed")]


def test_the_end_of_a_run_that_is_rolled_back_is_noted_by_nobody() -> None:
    _wanting()
    run = a_run(status="running")
    with transaction.atomic():
        Run.objects.filter(id=run.id).update(status="completed")
        assert notices.events() == [("run.completed", "completed")]
        transaction.set_rollback(True)
    assert notices.events() == []


def test_a_run_that_came_in_as_a_bundle_is_noted_for_no_webhook() -> None:
    _wanting()
    run = a_run(status="running", imported=True)
    Run.objects.filter(id=run.id).update(status="completed")
    assert notices.events() == []


@pytest.mark.django_db(transaction=True)
def test_a_replay_has_no_outside_that_hears_of_its_end() -> None:
    flow = small_graphs.graph("replayed_for_nobody")

    @flow.node()
    def note(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": ["a"]}

    flow.edge(START, "note")
    flow.edge("note", END)
    _wanting()
    run = small_graphs.advanced(flow)
    assert notices.events() == [("run.completed", "completed")]
    replayed = runs.advance(runs.replay(f"{run.key}:initial").id)
    assert replayed.status == Status.COMPLETED
    assert len(notices.events()) == 1


@pytest.mark.django_db(transaction=True)
def test_an_erasure_is_noted_when_it_has_ended() -> None:
    flow = small_graphs.graph("erased_for_webhooks")

    @flow.node()
    def note(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "to Ada"}

    flow.edge(START, "note")
    flow.edge("note", END)
    _wanting("values.erased", graphs=("erased_for_webhooks",))
    run = small_graphs.advanced(flow)
    record = ErasureRecord.objects.create(run=run.id, at=run.created_at)
    assert notices.events() == []
    with transaction.atomic():
        ErasureRecord.objects.filter(id=record.id).update(ended_at=timezone.now())
        assert notices.events() == [("values.erased", "")]
        transaction.set_rollback(True)
    ErasureRecord.objects.filter(id=record.id).delete()
    retention.erase(run.id, ["letter"], by=None)
    assert notices.events() == [("values.erased", "")]
    assert Notice.objects.get().run == run.id
