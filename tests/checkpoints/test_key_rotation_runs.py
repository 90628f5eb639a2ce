"""Whole encrypted runs through a change of keys: by command, as a job, while work goes
on, wherever bytes are kept.
"""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from checkpoints import key_rotation, payloads
from checkpoints.core.keyring import ENCRYPTED, key_of
from checkpoints.key_rotation import Rotated
from checkpoints.models import AuditLine, Checkpoint, Job, PendingWrite, Run
from checkpoints.queue import jobs as job_queue
from checkpoints.sealing import data_keys
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.jobs import kinds
from tests.support import cast, run_actions
from tests.support import full_installation as full
from tests.support.sealed_tables import ONE_KEY, TWO_KEYS

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def one_key_at_first(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of before they had keys of their own: of those that do, only these are
    wrapped anew.
    """
    monkeypatch.setattr(data_keys, "make_data_key", lambda run: None)
    configure(**ONE_KEY)
    full.encrypted_gated()


@pytest.fixture
def completed(tmp_path: Path, people: cast.People) -> Run:
    return full.a_full_run(tmp_path, people.reviewer, graph="secret")


def _keys(configure: Any, keys: dict[str, Any]) -> None:
    configure(**keys)


def _under(run: Run) -> set[str]:
    """The keys that encrypt the rows of a run."""
    collected = set()
    for model, names in key_rotation.encryptable():
        if model is Run or "run" in {field.name for field in model._meta.fields}:
            rows = (
                model._base_manager.filter(pk=run.id)
                if model is Run
                else model._base_manager.filter(run=run.id)
            )
            kept = [
                bytes(value or b"") for row in rows.values_list(*names) for value in row
            ]
            collected |= {key_of(value) for value in kept if value[:1] == ENCRYPTED}
    return collected


def test_the_command_rotates_a_whole_run_which_verifies_before_and_after(
    completed: Run, configure: Any, capsys: Any
) -> None:
    _keys(configure, TWO_KEYS)
    assert _under(completed) == {"old"}
    assert verify_run(completed.id) == []
    call_command("rotate_keys", "--dry-run", "--json")
    behind = json.loads(capsys.readouterr().out)["behind"]
    assert behind["checkpoints_checkpoint"] == Checkpoint.objects.count()
    call_command("rotate_keys", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts == {"key": "new", "rows": behind, "failed": 0}
    assert _under(completed) == {"new"}
    assert verify_run(completed.id) == []
    call_command("rotate_keys")
    assert capsys.readouterr().out.splitlines()[-1] == "Nothing was behind."


def test_the_rotation_leaves_one_audit_line_with_its_counts(
    completed: Run, configure: Any, people: cast.People
) -> None:
    _keys(configure, TWO_KEYS)
    call_command("rotate_keys", "--by", people.steward.username, verbosity=0)
    line = AuditLine.objects.get(kind="keys_rotated")
    assert line.actor == people.steward
    assert line.facts["key"] == "new"
    assert line.facts["failed"] == 0
    assert line.facts["rows"]["approvals_decision"] == 4


def test_the_command_prints_progress_and_counts_per_table(
    completed: Run, configure: Any, capsys: Any
) -> None:
    _keys(configure, TWO_KEYS)
    total = sum(key_rotation.behind().values())
    call_command("rotate_keys")
    facts = capsys.readouterr().out.splitlines()
    assert facts[0] == f"{total} of {total}"
    assert "approvals_decision: 4" in facts


def test_a_rotation_can_be_left_to_the_workers_and_there_is_only_one_at_a_time(
    completed: Run, configure: Any, capsys: Any
) -> None:
    _keys(configure, TWO_KEYS)
    call_command("rotate_keys", "--job", "--json")
    call_command("rotate_keys", "--job", "--json")
    first, second = (
        json.loads(line)["job"] for line in capsys.readouterr().out.splitlines()
    )
    assert first == second
    job = Job.objects.get(kind="rotate_keys")
    epoch = job_queue.claim_one(job.id)
    assert epoch is not None
    kinds.run_job(job.id, epoch)
    job.refresh_from_db()
    assert job.status == "done"
    assert _under(completed) == {"new"}


def test_a_process_without_the_newest_key_refuses_the_job_and_says_so(
    completed: Run, configure: Any, capsys: Any
) -> None:
    _keys(configure, TWO_KEYS)
    call_command("rotate_keys", "--job")
    _keys(configure, ONE_KEY)
    job = kinds.advance(Job.objects.get(kind="rotate_keys").id)
    assert job.status == "queued"
    assert job.error_code == "wrong_key"
    assert "under the key old, not under new" in job.error
    with pytest.raises(CommandError, match="a rotation to the key new is under way"):
        call_command("rotate_keys")
    assert _under(completed) == {"old"}
    assert AuditLine.objects.filter(kind="keys_rotated").count() == 0


def test_the_command_ends_with_1_where_rows_are_still_written_under_an_older_key(
    completed: Run, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _keys(configure, TWO_KEYS)
    monkeypatch.setattr(key_rotation, "rotate", lambda result: iter(()))
    with pytest.raises(
        CommandError,
        match=r"restart it, and rotate again:\napprovals_approvalrequest: 1",
    ):
        call_command("rotate_keys")


def test_a_job_that_is_stopped_after_each_batch_still_ends(
    completed: Run, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _keys(configure, TWO_KEYS)
    monkeypatch.setattr(key_rotation, "BATCH_ROWS", 2)
    total = sum(key_rotation.behind().values())
    job = job_queue.add_job("rotate_keys", name="rotate_keys", key="new")
    slices = 0
    while epoch := job_queue.claim_one(job):
        kinds.run_job(job, epoch, draining=lambda: True)
        slices += 1
    row = Job.objects.get(id=job)
    assert row.status == "done"
    assert row.progress["done"] == total
    assert row.progress["total"] == total
    assert slices > total / 2 / 2
    assert _under(completed) == {"new"}


def test_the_command_ends_with_1_and_names_rows_that_do_not_open(
    completed: Run, configure: Any, capsys: Any
) -> None:
    row = PendingWrite.objects.filter(run=completed).first()
    assert row is not None
    full.put(row, PendingWrite._meta.get_field("value"), bytes(row.value)[:-1])
    _keys(configure, TWO_KEYS)
    with pytest.raises(
        CommandError,
        match="1 rows do not open and stay as they are:\ncheckpoints_pendingwrite",
    ) as ended:
        call_command("rotate_keys")
    assert ended.value.returncode == 1
    assert verify_run(completed.id)[0].table == "checkpoints_pendingwrite"


def test_a_run_goes_on_while_its_rows_are_encrypted_anew(
    configure: Any, tmp_path: Path, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_rotation, "BATCH_ROWS", 1)
    _keys(configure, TWO_KEYS)
    rita = run_actions.reviewer(people.reviewer)
    rows = []
    for _ in range(4):
        _keys(configure, ONE_KEY)
        run = run_actions.start("secret", tmp_path)
        _keys(configure, TWO_KEYS)
        stop = threading.Event()
        thread = threading.Thread(target=_rotating, args=(stop,))
        thread.start()
        try:
            run_actions.sign(run, rita, ["approve"] * 4)
            rows.append(runs.advance(run.id))
        finally:
            stop.set()
            thread.join()
    call_command("rotate_keys", verbosity=0)
    assert [run.status for run in rows] == ["completed"] * 4
    assert [verify_run(run.id) for run in rows] == [[]] * 4
    assert {key for run in rows for key in _under(run)} == {"new"}


def _rotating(stop: threading.Event) -> None:
    try:
        while not stop.is_set():
            for _ in key_rotation.rotate(Rotated()):
                pass
    finally:
        connection.close()


@pytest.mark.parametrize("kind", ["files", "sealed"])
def test_bytes_that_a_backend_keeps_elsewhere_are_rotated_and_the_old_ones_forgotten(
    kind: str, configure: Any, tmp_path: Path, people: cast.People
) -> None:
    files = {"backend": "files", "options": {"location": str(tmp_path / "payloads")}}
    choice = {"files": files, "sealed": {"backend": "sealed", "options": {"of": files}}}
    places = {"PAYLOADS": {"here": choice[kind]}}
    _keys(configure, {**ONE_KEY, **places})
    full.encrypted_gated(payloads="here")
    run = full.a_full_run(tmp_path, people.reviewer, graph="secret")
    assert (
        Checkpoint.objects.filter(run=run)
        .values_list("backend", flat=True)
        .distinct()
        .get()
        == "here"
    )
    before = sorted((tmp_path / "payloads").rglob("*.payload"))
    _keys(configure, {**TWO_KEYS, **places})
    count = Checkpoint.objects.filter(run=run).count()
    assert key_rotation.behind()["checkpoints_checkpoint"] == count
    result = Rotated()
    for _ in key_rotation.rotate(result):
        pass
    assert result.rows["checkpoints_checkpoint"] == count
    assert key_rotation.behind() == {}
    after = sorted((tmp_path / "payloads").rglob("*.payload"))
    assert len(after) == len(before)
    assert set(after) & set(before) == set()
    assert verify_run(run.id) == []


def test_whoever_reads_while_the_bytes_elsewhere_are_rotated_finds_them(
    configure: Any, tmp_path: Path, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {
        "PAYLOADS": {
            "here": {
                "backend": "files",
                "options": {"location": str(tmp_path / "payloads")},
            }
        }
    }
    _keys(configure, {**ONE_KEY, **places})
    full.encrypted_gated(payloads="here")
    run = run_actions.start("secret", tmp_path)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"] * 4)
    _keys(configure, {**TWO_KEYS, **places})
    _rotated_at_the_next_fetch(monkeypatch)
    assert verify_run(run.id) == []
    _keys(
        configure,
        {"ENCRYPTION_KEYS": {**TWO_KEYS["ENCRYPTION_KEYS"], "third": b"3" * 32}},
    )
    _rotated_at_the_next_fetch(monkeypatch)
    assert runs.advance(run.id).status == "completed"


def _rotated_at_the_next_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotate the keys at the next fetch of bytes, after their row was read."""
    fetch = payloads.get_payload

    def after_a_rotation(*place: Any) -> bytes:
        monkeypatch.setattr(payloads, "get_payload", fetch)
        for _ in key_rotation.rotate(Rotated()):
            pass
        return fetch(*place)

    monkeypatch.setattr(payloads, "get_payload", after_a_rotation)
