"""A run goes as a whole only where nothing that stays speaks of it; else its row, its
head and what people decided stay, and everything verifies.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.urls import reverse

from approvals.models import Decision
from checkpoints import bundle, retention
from checkpoints.conf import keyring
from checkpoints.core.keyring import DATA_KEY
from checkpoints.models import AuditLine, Checkpoint, Job, Run, RunEvent, RunKey
from checkpoints.queue import jobs
from checkpoints.retention import whole_runs
from checkpoints.retention.rule import rule_of
from checkpoints.retention.stretches import RemovedRows
from checkpoints.verification import audit, verify_run
from orchestrator import runs
from orchestrator.engine.errors import KeyConflict
from orchestrator.jobs import kinds
from tests.support import cast, secret_claim
from tests.support.forging import tamper
from tests.support.histories import faults, loaded, long_run, policy, pruned, seqs
from tests.support.large_states import large
from tests.support.paid_claims import paid
from tests.support.sealed_tables import ONE_KEY
from tests.support.secret_claim import marked
from tests.support.small_graphs import started
from tests.support.statements import counted
from tests.support.stewards import browser_of, text

pytestmark = pytest.mark.django_db(transaction=True)
GONE: dict[str, Any] = {
    "keep_last": None,
    "remove_runs_after_days": {"completed": 0, "failed": 0},
}


def anchored() -> None:
    assert kinds.advance(jobs.add_job("anchor_heads", name="anchor_heads")).error == ""


def rows_of(run: Run) -> dict[str, int]:
    """Return how many rows of any table name a run."""
    collected = {}
    for model in apps.get_models():
        names = {field.name for field in model._meta.concrete_fields}
        if (
            "run" in names
            and model is not AuditLine
            and (n := model._base_manager.filter(run=run.id).count())
        ):
            collected[model.__name__] = n
    return collected


def test_a_run_goes_with_all_that_hangs_on_it_and_the_audit_log_still_verifies(
    people: cast.People,
) -> None:
    run = long_run("short", "abcd")
    other = long_run("short", "abcd")
    retention.hold(other.id, "stays", by=None)
    anchored()
    rule = policy("short", **GONE)
    counts = retention.dry_run(rule)
    assert counts.counts == {"checkpoints": 5, "runs": 1, "kept": 5}
    job = pruned(rule, by=people.steward)
    assert job.progress["done"] == 5
    assert rows_of(run) == {}
    assert Run.objects.filter(id=run.id).exists() is False
    line = AuditLine.objects.get(kind="run_removed")
    assert line.run == run.id
    assert line.actor == people.steward
    assert line.facts["key"] == run.key
    assert list(filter(None, audit())) == []
    assert faults() == []
    assert len(seqs(other)) == 5
    anchored()
    assert list(filter(None, audit())) == []
    tamper(line, actor_name="mallory")
    assert any(
        "is gone, though its head is anchored" in fault.reason
        for fault in audit()
        if fault
    )


def test_a_forked_run_keeps_its_row_its_head_and_the_point_of_the_fork() -> None:
    run = long_run("short", "abcd")
    point = Checkpoint.objects.get(run=run, seq=2)
    fork = runs.advance(runs.fork(point.id).id)
    before = loaded()
    pruned(policy("short", **GONE))
    assert seqs(run) == [2, 4]
    assert Run.objects.filter(id=fork.id).exists() is False
    assert {row: before[row] for row in loaded()} == loaded()
    assert faults() == []
    pruned(policy("short", **GONE))
    assert not Run.objects.exists()


def test_decisions_stay_for_ever_with_the_row_by_which_they_are_verified(
    people: cast.People,
) -> None:
    run = paid("decided", people)
    rows = list(Decision.objects.order_by("id").values())
    pruned(policy("decided", **GONE))
    assert list(Decision.objects.order_by("id").values()) == rows != []
    assert seqs(run) == [run.head_seq]
    assert verify_run(run.id) == []


def test_a_run_that_has_not_ended_for_long_enough_or_is_pinned_stays() -> None:
    run = long_run("short", "abcd")
    assert (
        retention.dry_run(
            policy("short", **{**GONE, "remove_runs_after_days": {"completed": 1}})
        ).counts["runs"]
        == 0
    )
    retention.pin(Checkpoint.objects.get(run=run, seq=1).id, by=None)
    pruned(policy("short", **GONE))
    assert seqs(run) == [1, 4]


def test_the_key_of_a_run_that_went_begins_no_second_journey() -> None:
    started(large("short", "abcd", snapshot=1000))
    named = runs.advance(runs.start("short", {}, key="claim 7").id)
    pruned(policy("short", **GONE))
    assert not Run.objects.filter(id=named.id).exists()
    for again in ({}, {"restart": True}, {"resume_failed": True}):
        with pytest.raises(
            KeyConflict, match="claim 7 belongs to a run that was removed"
        ):
            runs.start("short", {}, key="claim 7", **again)
    other = runs.advance(runs.start("short", {}, key="claim 8").id)
    with pytest.raises(KeyConflict, match="removed"):
        runs.fork(other.head, key="claim 7")
    assert not Run.objects.filter(key="claim 7").exists()


@pytest.mark.parametrize("what", ["a checkpoint", "a line of the log"])
def test_a_run_that_does_not_verify_is_not_removed(what: str) -> None:
    run = long_run("short", "abcd")
    if what == "a checkpoint":
        tamper(Checkpoint.objects.get(run=run, seq=2), took_ms=77)
    else:
        tamper(RunEvent.objects.filter(run=run).order_by("seq")[2], actor="mallory")
    pruned(policy("short", **GONE))
    run.refresh_from_db()
    assert run.status == "tampered"
    assert len(seqs(run)) == 5
    line = AuditLine.objects.get(kind="history_pruned")
    assert line.facts["skipped"] == 1
    assert line.facts["bad"] == [str(run.id)]


@pytest.mark.parametrize(
    "paths", [None, ["input.person"]], ids=["all values", "a path"]
)
def test_a_run_that_is_being_erased_stays_until_its_erasure_has_ended(
    people: cast.People, configure: Any, paths: list[str] | None
) -> None:
    configure(**secret_claim.keys())
    secret_claim.registered(encrypted=True)
    run = runs.cancel(
        runs.start("secret_claim", {"person": marked("input")}, by=people.starter).id
    )
    record = retention.begin_erasure(run.id, paths, by=people.steward)
    rule = policy(
        "secret_claim", keep_last=None, remove_runs_after_days={"cancelled": 0}
    )
    assert pruned(rule).progress["place"]["runs"] == 0
    assert kinds.advance(Job.objects.get(kind="erase_run").id).error == ""
    record.refresh_from_db()
    assert record.ended_at is not None
    assert bytes(record.words) == b""
    assert bytes(RunKey.objects.get(id=run.id).wrapped) == b"" or paths
    assert pruned(rule).progress["place"]["runs"] == 1


@pytest.fixture
def host_table() -> Iterator[Callable[[Run], None]]:
    """A table of another app with a foreign key to runs; gives what adds a row that
    names one.
    """
    with connection.cursor() as cursor:
        kind = "uuid" if connection.vendor == "postgresql" else "char(32)"
        runs_table = f"{Run._meta.db_table} (id) DEFERRABLE INITIALLY DEFERRED"
        cursor.execute(
            f"CREATE TABLE host_note (run_id {kind} NOT NULL REFERENCES {runs_table})"
        )

    def name(run: Run) -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO host_note (run_id) VALUES (%s)", [adapted(run)])

    yield name
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE host_note")


def adapted(run: Run) -> Any:
    return Run._meta.get_field("id").get_db_prep_value(run.id, connection)


def test_a_run_that_a_row_of_another_app_names_stays_is_named_and_the_others_go(
    host_table: Callable[[Run], None], people: cast.People
) -> None:
    made = [long_run("short", "abcd") for _ in range(3)]
    host_table(made[1])
    job = pruned(policy("short", **GONE), by=people.steward)
    assert [Run.objects.filter(id=run.id).exists() for run in made] == [
        False,
        True,
        False,
    ]
    assert len(seqs(made[1])) == 5
    assert faults() == []
    line = AuditLine.objects.get(kind="history_pruned")
    assert line.facts["runs"] == 2
    assert line.facts["skipped"] == 1
    assert line.facts["bad"] == []
    assert (
        line.facts["referred"] == job.progress["place"]["referred"] == [str(made[1].id)]
    )
    assert AuditLine.objects.filter(kind="run_removed").count() == 2
    page = text(
        browser_of(people.steward).get(reverse("admin:clean_up_job", args=[job.id]))
    )
    assert re.search(
        rf"rows of other apps refer to them:\s*<a\s+href=[^>]*{made[1].id}[^>]*>{made[1].key}</a>",
        page,
    )


@pytest.mark.parametrize("archive", [False, True], ids=["gone", "archived"])
def test_the_data_key_of_an_encrypted_run_goes_with_it_unless_its_bundle_needs_it(
    archive: bool, tmp_path: Path, configure: Any, people: cast.People
) -> None:
    configure(ARCHIVE_FOLDER=str(tmp_path), BUNDLE_KEY="07" * 32, **ONE_KEY)
    run = long_run("short", "abcd", encrypted=True)
    other = long_run("short", "abcd", encrypted=True)
    retention.hold(other.id, "stays", by=None)
    pruned(policy("short", **GONE, archive=archive))
    left = {other.id, run.id} if archive else {other.id}
    assert set(RunKey.objects.values_list("id", flat=True)) == left
    assert archive or f"{DATA_KEY}{run.id.hex}" not in keyring().data_keys
    assert faults() == []
    for file in tmp_path.iterdir():
        assert faults(bundle.load(file, by=people.steward)) == []


def test_a_run_goes_in_few_statements_however_long_it_was() -> None:
    taken = []
    for nodes in ("ab", "abcdefgh"):
        run = long_run("short", nodes)
        rule = rule_of(policy("short", **GONE))
        with counted() as sent:
            removed = whole_runs.remove_run(
                rule, run.id, by=None, archived=None, inside=lambda removed: None
            )
        assert removed == RemovedRows(
            len(nodes) + 1, removed.bytes if removed else 0, runs=1
        )
        taken.append(
            [
                query.split()[0]
                for query in sent
                if query.startswith(("SELECT", "INSERT", "UPDATE", "DELETE"))
            ]
        )
    assert taken[0] == taken[1]
    # The lock, the look, the count; the line of the audit log; what relatives need;
    # what hangs on the run, and its row.
    # Of callbacks, which have deliveries, there is a look only, for there are none.
    others = ["DELETE"] * (len(whole_runs.PARTS) - 1)
    assert taken[0] == [
        *["SELECT"] * 3,
        *["INSERT", "SELECT"],
        *others,
        *["SELECT", "DELETE"],
    ]
    assert len(taken[0]) == 20


def test_bytes_that_lie_outside_the_rows_go_with_their_run(
    tmp_path: Path, configure: Any
) -> None:
    folder = tmp_path / "bytes"
    configure(
        PAYLOADS={"files": {"backend": "files", "options": {"location": str(folder)}}}
    )
    long_run("short", "abcd", payloads="files")
    assert [path for path in folder.rglob("*") if path.is_file()]
    pruned(policy("short", **GONE))
    assert not Run.objects.exists()
    assert [path for path in folder.rglob("*") if path.is_file()] == []
