"""The sweep: what no row has pointed to for a day goes, and nothing else, also while
commits are in flight.
"""

import json
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import InMemoryStorage
from django.db import connection

from checkpoints import payloads
from checkpoints.core.ids import uuid7
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, Job, Run
from checkpoints.payloads import FilePayloads, orphans
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.execution import loop
from orchestrator.jobs import kinds
from tests.crash.abort import Points
from tests.support.payload_runs import chain, columns, kept_files, notes
from tests.support.processes import ROOT, environment
from tests.support.small_graphs import advanced, started

pytestmark = pytest.mark.django_db(transaction=True)
TOMORROW = timedelta(days=1, minutes=1)


def aged(folder: Path, by: timedelta) -> None:
    """Make every file as if it had been written so long ago."""
    then = time.time() - by.total_seconds()
    for path in kept_files(folder):
        os.utime(path, (then, then))


def swept(now: datetime | None = None) -> int:
    """Return how many payloads a sweep deletes."""
    last: dict[str, int] = {}
    for step in orphans.delete_orphans(now=now):
        last[step.backend] = step.deleted
    return sum(last.values())


def _name(column: str = "change") -> str:
    return payloads.name_of(uuid7(), uuid7(), column)


def test_bytes_without_a_row_go_after_a_day_and_not_before(cellar: Path) -> None:
    payloads.backend("cellar").put(_name(), b"nobody's")
    assert swept() == 0
    assert swept(datetime.now(UTC) + timedelta(hours=23)) == 0
    assert swept(datetime.now(UTC) + TOMORROW) == 1
    assert kept_files(cellar) == []


def test_bytes_that_a_row_points_to_stay_however_old_they_are(cellar: Path) -> None:
    run = advanced(chain("old", "a", "b"))
    aged(cellar, timedelta(days=4000))
    assert swept() == 0
    assert notes(run) == ["a", "b"]


def test_a_column_that_its_row_does_not_have_goes_and_its_other_one_stays(
    cellar: Path,
) -> None:
    run = advanced(chain("half", "a", snapshot=1))
    Checkpoint.objects.filter(id=run.head).update(snapshot=b"")
    aged(cellar, TOMORROW)
    assert swept() == 1
    assert len(kept_files(cellar)) == columns(run)


def test_bytes_of_a_row_that_is_in_another_backend_now_go(cellar: Path) -> None:
    run = advanced(chain("moved_rows", "a"))
    Checkpoint.objects.filter(run=run).update(backend="database")
    aged(cellar, TOMORROW)
    there = len(kept_files(cellar))
    assert swept() == there > 0


def test_bytes_of_a_row_stay_where_two_backends_of_the_settings_keep_them_in_one_place(
    configure: Any, tmp_path: Path
) -> None:
    files = {"backend": "files", "options": {"location": str(tmp_path)}}
    guarded = {"backend": "sealed", "options": {"of": files}}
    configure(PAYLOADS={"plain": files, "guarded": guarded})
    ran = [
        advanced(chain(f"in_{name}", "a", payloads=name))
        for name in ("plain", "guarded")
    ]
    aged(tmp_path, TOMORROW)
    assert swept() == 0
    assert [notes(run) for run in ran] == [["a"], ["a"]]


def test_names_that_are_not_ours_are_left_alone(cellar: Path) -> None:
    backend = payloads.backend("cellar")
    others = [
        f"{uuid7()}/notes",
        "letters/2026",
        f"{uuid7()}/{uuid7()}/invoice",
        f"{uuid7()}/{uuid7()}",
    ]
    for name in others:
        backend.put(name, b"somebody's")
    assert swept(datetime.now(UTC) + TOMORROW) == 0
    assert set(backend.names(before=datetime.now(UTC) + TOMORROW)) == set(others)


def test_what_a_damaged_record_may_point_to_stays(cellar: Path) -> None:
    run = advanced(chain("damaged", "a"))
    Checkpoint.objects.filter(id=run.head).update(change=b"??", snapshot=b"??")
    aged(cellar, TOMORROW)
    assert swept() == 0


def test_what_a_killed_write_left_behind_goes_beside_the_payload_that_took_its_place(
    cellar: Path,
) -> None:
    run = advanced(chain("left", "a"))
    path = kept_files(cellar)[0]
    path.with_name(path.name.replace(".payload", ".new-0a1b.payload")).write_bytes(
        b"half"
    )
    aged(cellar, TOMORROW)
    assert swept() == 1
    assert len(kept_files(cellar)) == columns(run)


def test_after_a_crash_between_the_two_phases_the_run_goes_on_and_the_sweep_cleans_up(
    cellar: Path,
) -> None:
    """Every statement of the commit of the second superstep, and the commit itself, is
    a place to die.
    """
    tried = 0
    for at in range(40):
        run = started(chain("killed", "a", "b"))
        _aborted(run, at)
        orphans = _unpointed(cellar)
        tried += bool(orphans)
        Run.objects.filter(id=run.id, status=Status.RUNNING).update(
            lease_until="2000-01-01T00:00Z"
        )
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED
        assert notes(run) == ["a", "b"]
        aged(cellar, TOMORROW)
        assert swept() == len(orphans)
        assert _unpointed(cellar) == set()
        assert notes(run) == ["a", "b"]
    assert tried >= 2


def _aborted(run: Run, at: int) -> None:
    claim = leases.claim_one(run.id)
    assert claim is not None
    with Points(at).life():
        loop.run_slice(claim.id, claim.epoch)


def _unpointed(folder: Path) -> set[str]:
    """Files of checkpoints that have no row."""
    known = {str(id) for id in Checkpoint.objects.values_list("id", flat=True)}
    return {
        path.name
        for path in kept_files(folder)
        if path.name.partition(".")[0] not in known
    }


def test_a_sweep_never_takes_what_a_commit_in_flight_has_put(cellar: Path) -> None:
    """Runs commit in threads while the sweep goes round and round, with an eye for what
    is a second old.
    """
    chain_of = chain("busy", *(f"n{n}" for n in range(8)))
    todo = [started(chain_of) for _ in range(4)]
    done = threading.Event()

    def work(run: Run) -> None:
        try:
            runs.advance(run.id)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(run,)) for run in todo]
    sweeping = threading.Thread(target=_sweep_until, args=(done,))
    for thread in [sweeping, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    sweeping.join()
    for run in todo:
        run.refresh_from_db()
        assert run.status == Status.COMPLETED
        assert len(notes(run)) == 8
    assert len(kept_files(cellar)) == sum(columns(run) for run in todo)


def _sweep_until(done: threading.Event) -> None:
    try:
        while not done.is_set():
            swept()
    finally:
        connection.close()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "BATCH", 3)


def test_a_sweep_that_was_cut_off_goes_on_behind_what_it_has_left(
    cellar: Path, small_batches: None
) -> None:
    run = advanced(chain("cut", *"abcd"))
    for _ in range(10):
        payloads.backend("cellar").put(_name(), b"nobody's")
    later = datetime.now(UTC) + TOMORROW
    left: dict[str, int] = {}
    slices = 0
    while True:
        step = next(orphans.delete_orphans(now=later, done=left), None)
        if step is None:
            break
        left[step.backend] = step.remaining
        slices += 1
    assert slices == -(-(10 + columns(run)) // 3)
    assert left == {"cellar": columns(run)}
    assert len(kept_files(cellar)) == columns(run)


def test_the_sweep_is_a_standing_job(cellar: Path) -> None:
    payloads.backend("cellar").put(_name(), b"nobody's")
    aged(cellar, TOMORROW)
    kinds.ensure_standing()
    job = Job.objects.get(kind="sweep_payloads")
    Job.objects.filter(id=job.id).update(due_at="2000-01-01T00:00Z")
    kinds.advance(job.id)
    assert kept_files(cellar) == []
    assert Job.objects.get(id=job.id).status == "queued"  # for tomorrow


def test_a_sweep_of_a_storage_that_is_no_folder_does_the_same(settings: Any) -> None:
    settings.COUNTERSIGN = {
        "PAYLOADS": {
            "cloud": {"backend": "tests.checkpoints.payloads.test_orphans.cloud"}
        }
    }
    run = advanced(chain("cloudy", "a", payloads="cloud"))
    payloads.backend("cloud").put(_name(), b"nobody's")
    assert swept() == 0
    assert swept(datetime.now(UTC) + TOMORROW) == 1
    assert notes(run) == ["a"]


def cloud() -> FilePayloads:
    """A backend over a storage in memory, as the settings name it."""
    return FilePayloads(InMemoryStorage())


_KILLED = """
import os, signal, sys
from uuid import UUID
import django
django.setup()
from checkpoints.db import fenced_transaction
from checkpoints.queue import leases
from orchestrator.execution import loop

prepare = fenced_transaction.prepare

def killed(fence, rows, **more):
    if any(one.model.__name__ == "Checkpoint" for one in rows):
        os.kill(os.getpid(), signal.SIGKILL)
    return prepare(fence, rows, **more)

fenced_transaction.prepare = killed
claim = leases.claim_one(UUID(sys.argv[1]))
loop.run_slice(claim.id, claim.epoch)
"""


def test_a_process_that_is_really_killed_between_the_two_phases_leaves_bytes_that_nobody_sees(
    cellar: Path, configure: Any
) -> None:
    configure(DEFAULT_PAYLOADS="cellar")
    run = runs.start("c_linear", {})
    places = {"cellar": {"backend": "files", "options": {"location": str(cellar)}}}
    died = subprocess.run(
        [sys.executable, "-c", _KILLED, str(run.id)],
        env=environment(COUNTERSIGN_PAYLOADS=json.dumps(places)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode == -9, died.stderr
    orphans = _unpointed(cellar)
    assert len(orphans) >= 1
    assert [row.superstep for row in Checkpoint.objects.filter(run=run)] == [0]
    Run.objects.filter(id=run.id).update(lease_until="2000-01-01T00:00Z")
    assert runs.advance(run.id).status == Status.COMPLETED
    aged(cellar, TOMORROW)
    assert swept() == len(orphans)
    assert _unpointed(cellar) == set()
    assert len(notes(run)) == 3
