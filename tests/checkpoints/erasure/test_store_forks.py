"""Forks that a store made and nobody has resumed: they have the values too, are named,
and go if that is asked.
"""

from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints import retention
from checkpoints.core.ids import uuid7
from checkpoints.erasure import plan, store_forks
from checkpoints.ledger import checkpoint_rows
from checkpoints.models import Checkpoint, ErasureRecord, Job, Run
from checkpoints.store import CheckpointStore
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import Erased, UnknownThing, WrongStatus
from orchestrator.jobs import kinds
from tests.support import cast, erasures, secret_claim
from tests.support.secret_claim import marked

pytestmark = pytest.mark.django_db(transaction=True)
PERSON = {"person": marked("input"), "branch": "b"}


@pytest.fixture
def store() -> CheckpointStore:
    return CheckpointStore()


@pytest.fixture
def run(people: cast.People) -> Run:
    """A run with a person's name that was cancelled before it began."""
    secret_claim.registered(encrypted=False)
    return runs.cancel(
        runs.start("secret_claim", PERSON, by=people.starter).id, by=people.starter
    )


def heir(fork: Any, *, erased: bool) -> dict[str, Any]:
    return {"run": str(fork.run), "key": "", "how": "store fork", "erased": erased}


def rows_of(fork: Any) -> int:
    return Checkpoint.objects.filter(run=fork.run).count()


def test_a_fork_without_a_run_is_named_and_stays_where_only_the_run_is_erased(
    run: Run, store: CheckpointStore, people: cast.People
) -> None:
    fork = store.fork(run.head or "")
    assert retention.plan_erasure(run.id).json()["inherited"] == [
        heir(fork, erased=False)
    ]
    record = retention.erase(run.id, by=people.steward)
    assert record.inherited == [heir(fork, erased=False)]
    assert store.get(fork.id).state["input"] == {"number": "7", **PERSON}


@pytest.mark.parametrize("paths", [None, ["input.person"]])
@pytest.mark.parametrize("backend", ["database", "cellar"])
def test_with_forks_it_goes_as_a_whole_with_what_was_saved_and_forked_behind_it(
    run: Run, people: cast.People, cellar: Path, backend: str, paths: list[str] | None
) -> None:
    store = CheckpointStore(backend)
    fork = store.fork(run.head or "", {"scratch": {"letter": marked("letter")}})
    later = store.save(fork.run, {"input": PERSON})
    below = store.fork(later.id)
    last = store.fork(below.id)
    other = store.save(uuid7(), {"input": {"person": "Eve"}})
    want = sorted(
        [heir(each_run, erased=True) for each_run in (fork, below, last)],
        key=lambda entry: str(entry["run"]),
    )
    assert retention.plan_erasure(run.id, paths, forks=True).json()["inherited"] == want
    record = retention.erase(run.id, paths, forks=True, by=people.steward)
    assert record.inherited == want
    assert [rows_of(each_run) for each_run in (fork, below, last)] == [0, 0, 0]
    assert erasures.marks_in(erasures.everything()) == set()
    folders = {path.parent.name for path in cellar.rglob("*.payload")}
    assert folders == ({str(other.run)} if backend == "cellar" else set())
    assert store.get(other.id).state["input"] == {"person": "Eve"}
    assert verify_run(run.id) == []


def test_cut_off_before_the_bytes_of_a_backend_went_the_erasure_goes_on_with_them(
    run: Run, people: cast.People, cellar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = CheckpointStore("cellar").fork(run.head or "")

    def dies(row: Checkpoint) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(checkpoint_rows, "delete_payloads", dies)
        with pytest.raises(KeyboardInterrupt):
            retention.erase(run.id, forks=True, by=people.steward)
    assert rows_of(fork) == 0
    assert list(cellar.rglob("*.payload"))
    Job.objects.update(lease_until="2000-01-01T00:00Z")
    assert kinds.advance(Job.objects.get(kind="erase_run").id).status == "done"
    assert not list(cellar.rglob("*.payload"))


def test_one_that_was_resumed_is_erased_as_any_fork_is_with_those_that_a_store_made_of_it(
    run: Run, store: CheckpointStore, people: cast.People
) -> None:
    forked = store.fork(run.head or "")
    fork = runs.cancel(runs.resume(forked.run, by=people.starter).id, by=people.starter)
    below = store.fork(forked.id)
    of_its_head = store.fork(fork.head or "")
    record = retention.erase(run.id, forks=True, by=people.steward)
    assert {
        (entry["run"], entry["how"], entry["erased"]) for entry in record.inherited
    } == {
        (str(fork.id), "fork", True),
        (str(below.run), "store fork", True),
        (str(of_its_head.run), "store fork", True),
    }
    assert erasures.marks_in(erasures.everything()) == set()
    assert [verify_run(each_run.id) for each_run in (run, fork)] == [[], []]


def test_a_fork_that_is_resumed_before_the_erasure_begins_stops_it(
    run: Run,
    store: CheckpointStore,
    people: cast.People,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork = store.fork(run.head or "")
    planned = plan.plan_erasure

    def then_resumed(*args: Any, **kwargs: Any) -> Any:
        erasure_plan = planned(*args, **kwargs)
        runs.resume(fork.run, by=people.starter)
        return erasure_plan

    with monkeypatch.context() as between:
        between.setattr(plan, "plan_erasure", then_resumed)
        with pytest.raises(WrongStatus, match="was forked just now"):
            retention.erase(run.id, forks=True, by=people.steward)
    assert not ErasureRecord.objects.exists()
    with pytest.raises(WrongStatus, match="can still go on"):
        retention.erase(run.id, forks=True, by=people.steward)


def test_what_a_store_forks_while_an_erasure_goes_on_goes_too_or_is_refused(
    run: Run,
    store: CheckpointStore,
    people: cast.People,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork = store.fork(run.head or "")
    retention.begin_erasure(run.id, forks=True, by=people.steward)
    below = store.fork(fork.id)
    with pytest.raises(Erased):
        store.fork(run.head or "")
    with pytest.raises(Erased):
        runs.resume(fork.run, by=people.starter)
    assert kinds.advance(Job.objects.get(kind="erase_run").id).status == "done"
    assert rows_of(fork) == 0
    assert rows_of(below) == 0
    assert erasures.marks_in(erasures.everything()) == set()
    with pytest.raises(UnknownThing):
        store.fork(fork.id)


def test_a_fork_of_a_run_whose_erasure_begins_after_it_was_read_is_refused(
    run: Run,
    store: CheckpointStore,
    people: cast.People,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from checkpoints.store import rows

    read = rows._document

    def and_erased(*args: Any) -> Any:
        document = read(*args)
        retention.begin_erasure(run.id, by=people.steward)
        return document

    with monkeypatch.context() as between:
        between.setattr(rows, "_document", and_erased)
        with pytest.raises(Erased):
            store.fork(run.head or "")
    assert not Checkpoint.objects.exclude(run=run.id).exists()


def test_forks_are_found_by_an_index(run: Run) -> None:
    with CaptureQueriesContext(connection) as sent:
        store_forks.forks_made_of([run.id])
    [query] = [query["sql"] for query in sent.captured_queries]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET enable_seqscan = off")
        cursor.execute(
            f"EXPLAIN {'QUERY PLAN ' if connection.vendor == 'sqlite' else ''}{query}"
        )
        plan = "\n".join(str(row) for row in cursor.fetchall())
        if connection.vendor == "postgresql":
            cursor.execute("RESET enable_seqscan")
    assert "checkpoint_forked_from" in plan
    assert "SCAN" not in plan.replace("Index Scan", "").replace("Bitmap Heap Scan", "")
