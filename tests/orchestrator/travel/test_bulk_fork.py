"""Forking many runs with one patch: each once, whatever happens to the job, and what is
refused stands beside it.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from checkpoints.db.rows import new_row
from checkpoints.models import AuditLine, Job, Run, RunLine
from checkpoints.queue import jobs
from checkpoints.retention import standing_jobs
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, registry
from orchestrator.engine.errors import (
    InvalidValue,
    PayloadsUnavailable,
    PayloadTooLarge,
    TamperedRow,
    UnknownThing,
)
from orchestrator.jobs import integrity, kinds
from orchestrator.models import BulkFork, BulkForkResult
from orchestrator.travel import bulk_fork
from orchestrator.travel import verbs as travel
from tests.support import run_actions
from tests.support.cast import People
from tests.support.paid_claims import paid
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import graph, registered

pytestmark = pytest.mark.django_db(transaction=True)

PATCH = {"scratch": {"letter": "mended"}}


@pytest.fixture(autouse=True)
def breaking_graph() -> None:
    """first, then second, which fails until the letter is mended."""
    flow = graph("breaking")

    def second(state: Any, ctx: Any) -> dict[str, Any]:
        if state.letter != "mended":
            raise RuntimeError("no letter")
        return {"notes": ["second"]}

    flow.node("first")(lambda state, ctx: {"notes": ["first"]})
    flow.node("second")(second)
    flow.edge(START, "first")
    flow.edge("first", "second")
    flow.edge("second", END)
    registered(flow)


def failed(count: int) -> list[Run]:
    made = [
        runs.advance(runs.start("breaking", {}, key=f"B-{n}").id) for n in range(count)
    ]
    assert {run.status for run in made} <= {"failed"}
    return made


def forks() -> list[Run]:
    return list(
        Run.objects.exclude(origin_checkpoint=None).order_by("created_at", "id")
    )


def test_each_failed_run_of_a_graph_is_forked_from_its_last_good_checkpoint(
    people: People,
) -> None:
    before = failed(3)
    ended = runs.advance(runs.start("breaking", {}, key="other").id)
    runs.cancel(ended.id)
    job = runs.fork_many(
        graph="breaking",
        patch=PATCH,
        reason="the letter was missing",
        by=people.starter,
    )
    assert job.kind == "fork_runs"
    assert job.status == "queued"
    assert forks() == []
    done = kinds.advance(job.id)
    assert done.status == "done"
    assert done.progress["done"] == 3
    assert done.progress["total"] == 3
    copies = forks()
    origins = {timeline.run_id for timeline in _departures(copies)}
    assert origins == {run.id for run in before}
    assert {runs.advance(run.id).status for run in copies} == {"completed"}
    assert [run_actions.state(run)["notes"] for run in copies] == [
        ["first", "second"]
    ] * 3
    assert {run.started_by for run in copies} == {people.starter}
    assert [list(verify_run(run.id)) for run in copies] == [[]] * 3
    assert bulk_fork.counts_of(BulkFork.objects.get()) == {
        "total": 3,
        "forked": 3,
        "refused": 0,
        "waiting": 0,
    }
    line = AuditLine.objects.get(kind="runs_forked")
    assert line.actor == people.starter
    assert line.facts == {"bulk": str(job.id), "forked": 3, "refused": 0}


def _departures(forks: list[Run]) -> list[Any]:
    from checkpoints import timeline

    points = [timeline.get_checkpoint(run.origin_checkpoint or "") for run in forks]
    for point in points:
        assert point.committed
        assert point.kept
        assert point.source == "superstep"
    return points


def test_a_job_that_is_killed_and_taken_again_forks_each_run_once(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed(5)
    monkeypatch.setattr(bulk_fork, "BATCH", 2)
    monkeypatch.setattr(bulk_fork, "COLLECTED", 2)
    job = runs.fork_many(graph="breaking", patch=PATCH, by=people.starter)
    calls = []

    def dying(*args: Any, **options: Any) -> Run:
        fork = travel_fork(*args, **options)
        calls.append(fork)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fork

    travel_fork = travel.fork
    monkeypatch.setattr(travel, "fork", dying)
    epoch = jobs.claim_one(job.id)
    assert epoch is not None
    with pytest.raises(KeyboardInterrupt):
        kinds.run_job(job.id, epoch)
    assert len(forks()) == 2, "the third fork went with its transaction"
    Job.objects.update(lease_until=None, status="queued")
    assert kinds.advance(job.id).status == "done"
    assert len(forks()) == 5
    assert BulkForkResult.objects.values("fork").distinct().count() == 5
    assert RunLine.objects.values("departure_run").distinct().count() == 5


def test_a_job_that_forgot_its_place_makes_no_fork_of_a_fork(people: People) -> None:
    failed(2)
    job = runs.fork_many(graph="breaking", by=people.starter)
    kinds.advance(job.id)
    assert {runs.advance(run.id).status for run in forks()} == {"failed"}, (
        "without a patch they fail again"
    )
    Job.objects.update(status="queued", progress={}, ended_at=None)
    assert kinds.advance(job.id).progress["total"] == 2
    assert len(forks()) == 2


def test_what_is_refused_of_one_run_is_written_beside_it_and_the_others_are_forked(
    people: People,
) -> None:
    good, bad = failed(2)
    patch = {"scratch": [{"op": "test", "path": "/notes/0", "value": "first"}]}
    RunLine.objects.all().delete()
    # there nothing is noted yet, so the test of the patch fails
    point = f"{bad.key}:initial"
    job = runs.fork_many([f"{good.key}:step-1", point], patch=patch, by=people.starter)
    kinds.advance(job.id)
    assert len(forks()) == 1
    rows = {row.origin: row for row in BulkForkResult.objects.all()}
    assert rows[good.id].code == ""
    assert rows[good.id].fork == forks()[0].id
    assert rows[bad.id].code == "invalid_value"
    assert rows[bad.id].fork is None


def test_a_backend_that_does_not_answer_makes_the_job_wait_and_not_refuse(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed(1)
    job = runs.fork_many(graph="breaking", by=people.starter)

    def away(*args: Any, **options: Any) -> Run:
        raise PayloadsUnavailable("it does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(travel, "fork", away)
        assert kinds.advance(job.id).error_code == "payloads_unavailable"
    assert not BulkForkResult.objects.exclude(at=None).exists()
    Job.objects.update(due_at=job.created_at)
    assert kinds.advance(job.id).status == "done"
    assert len(forks()) == 1


def test_secrets_that_nobody_has_yet_make_the_job_wait_and_not_refuse(
    people: People, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    failed(1)
    job = runs.fork_many(graph="breaking", by=people.starter)
    with monkeypatch.context() as lacking:
        lacking.setattr(registry.current("breaking").graph, "secrets", ["bank_token"])
        assert kinds.advance(job.id).error_code == "missing_secrets"
    assert not BulkForkResult.objects.exclude(at=None).exists()
    Job.objects.update(due_at=job.created_at)
    assert kinds.advance(job.id).status == "done"
    assert len(forks()) == 1


def test_a_dry_run_counts_the_plans_of_one_kind_and_writes_nothing(
    people: People,
) -> None:
    failed(3)
    paid_run = paid("paying_claim", people)
    before = (Run.objects.count(), Job.objects.count(), BulkFork.objects.count())
    summary = runs.fork_many(graph="breaking", patch=PATCH, dry_run=True).to_json()
    (kind,) = summary["kinds"]
    assert summary["total"] == 3
    assert summary["examined"] == 3
    assert summary["others"] == 0
    assert kind["count"] == 3
    assert len(kind["examples"]) == 3
    assert kind["plan"]["patched"] == ["letter"]
    assert [run["node"] for run in kind["plan"]["runs"]] == ["second"]
    assert (
        runs.fork_many(graph="breaking", dry_run=True, most=2).to_json()["examined"]
        == 2
    )
    points = [f"{paid_run.key}:step-1", "B-0:step-1"]
    mixed = runs.fork_many(points, dry_run=True)
    assert [kind.plan["needs_yes"] for kind in mixed.kinds.values()] == [["pay"], []]
    assert "Stops before pay" in mixed.to_text()
    wrong = runs.fork_many(
        graph="breaking", patch={"scratch": {"nowhere": 1}}, dry_run=True
    )
    (refusal,) = wrong.refusals.values()
    assert refusal.count == 3
    assert refusal.code == "invalid_value"
    assert before == (
        Run.objects.count(),
        Job.objects.count(),
        BulkFork.objects.count(),
    )


def test_what_nobody_can_fork_is_refused_before_a_job_is_made(
    people: People, settings: Any
) -> None:
    (run,) = failed(1)
    refused: list[tuple[type[Exception], dict[str, Any]]] = [
        (InvalidValue, {}),
        (InvalidValue, {"graph": ""}),
        (InvalidValue, {"checkpoint_ids": [run.head], "graph": "breaking"}),
        (InvalidValue, {"checkpoint_ids": [f"{run.key}:initial", f"{run.key}:step-1"]}),
        (InvalidValue, {"graph": "breaking", "status": "broken"}),
        (InvalidValue, {"graph": "breaking", "patch": {"input": {}}}),
        (InvalidValue, {"graph": "breaking", "patch": []}),
        (InvalidValue, {"graph": "breaking", "allow_effects": "pay"}),
        (InvalidValue, {"graph": "breaking", "reason": 5}),
        (UnknownThing, {"checkpoint_ids": [uuid4()]}),
        (
            PayloadTooLarge,
            {"graph": "breaking", "patch": {"scratch": {"letter": "x" * 5_000_000}}},
        ),
    ]
    for kind, choice in refused:
        with pytest.raises(kind):
            runs.fork_many(by=people.starter, **choice)
    assert not Job.objects.exists()


def test_what_is_wanted_is_sealed_and_encrypted_where_there_is_a_key(
    people: People, settings: Any
) -> None:
    failed(1)
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, **ONE_KEY}
    job = runs.fork_many(graph="breaking", patch=PATCH, by=people.starter)
    bulk = BulkFork.objects.get()
    assert b"mended" not in bytes(bulk.wanted)
    BulkFork.objects.update(by=people.steward)
    epoch = jobs.claim_one(job.id)
    assert epoch is not None
    kinds.run_job(job.id, epoch)
    assert Job.objects.get().error_code == TamperedRow.code_of_class
    assert forks() == []


def test_the_runs_of_a_graph_are_found_by_an_index_and_one_without_a_checkpoint_is_refused(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = {"graph": "breaking", "version": "1", "fingerprint": "f"}
    made = [
        new_row(
            Run,
            key=f"R-{n}",
            status="completed" if n % 300 else "failed",
            created_at=at,
            **shared,
        )
        for n in range(2000)
        for at in [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n // 2)]
    ]
    Run.objects.bulk_create(made, batch_size=500)
    with connection.cursor() as cursor:
        cursor.execute(
            "VACUUM FULL ANALYZE" if connection.vendor == "postgresql" else "ANALYZE"
        )
    by_index = ("run_by_status", "run_by_graph_and_status")
    explained = (
        bulk_fork.WantedForks("breaking").origins()[: bulk_fork.COLLECTED].explain()
    )
    assert any(name in explained for name in by_index)
    monkeypatch.setattr(bulk_fork, "COLLECTED", 2)
    assert runs.fork_many(graph="breaking", dry_run=True).to_json()["examined"] == 7
    job = runs.fork_many(graph="breaking", by=people.starter)
    kinds.advance(job.id)
    assert bulk_fork.counts_of(BulkFork.objects.get()) == {
        "total": 7,
        "forked": 0,
        "refused": 7,
        "waiting": 0,
    }
    assert {row.code for row in BulkForkResult.objects.all()} == {"unknown_thing"}, (
        "they have no checkpoint"
    )


def test_bulk_forks_go_when_their_jobs_do_and_their_runs_stay(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed(3)
    monkeypatch.setattr(standing_jobs, "BATCH", 2)
    old, new, waiting = (
        runs.fork_many(graph="breaking", patch=PATCH, by=people.steward)
        for _ in range(3)
    )
    for job in (old, new):
        kinds.advance(job.id)
    long_ago = datetime.now(UTC) - timedelta(days=31)
    BulkFork.objects.update(at=long_ago)
    Job.objects.filter(id=old.id).update(ended_at=long_ago)
    made = Run.objects.count()
    assert kinds.advance(jobs.add_job("sweep_bulk_forks")).error_code == ""
    assert {*BulkFork.objects.values_list("id", flat=True)} == {new.id, waiting.id}
    assert not BulkForkResult.objects.filter(bulk=old.id).exists()
    assert BulkForkResult.objects.filter(bulk=new.id).count() == 3
    # A job that was swept before leaves nothing behind either.
    Job.objects.filter(id=new.id).delete()
    kinds.advance(jobs.add_job("sweep_bulk_forks"))
    assert [*BulkFork.objects.values_list("id", flat=True)] == [waiting.id]
    assert Run.objects.count() == made


def test_a_bulk_fork_that_was_changed_is_named_by_the_verification_of_everything(
    people: People,
) -> None:
    failed(1)
    job = runs.fork_many(graph="breaking", patch=PATCH, by=people.steward)
    kinds.advance(job.id)
    result = integrity.Verified()
    assert {
        fault.failed
        for fault in integrity.verify_runs(integrity.Wanted(), result, by=None)
    } == {0}
    BulkFork.objects.update(by=people.starter)
    result = integrity.Verified()
    list(integrity.verify_runs(integrity.Wanted(), result, by=None))
    assert [(fault["table"], fault["code"]) for fault in result.bad] == [
        ("orchestrator_bulkfork", "tampered_row")
    ]
