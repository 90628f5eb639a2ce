"""What goes by itself: workers that left, memory that is old, sessions, tokens and
answers that ended.
"""

from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from approvals.models import FreshLogin, PasskeyChallenge
from checkpoints import retention, uploads
from checkpoints.models import (
    AuditLine,
    Job,
    LegalHold,
    MemoryTrace,
    RetentionPolicy,
    Run,
    Upload,
    Worker,
)
from checkpoints.queue import jobs
from checkpoints.retention import standing_jobs
from checkpoints.uploads import save_upload
from checkpoints.verification import verify_run
from orchestrator import runs, tokens
from orchestrator.engine.errors import InvalidValue
from orchestrator.jobs import kinds
from orchestrator.models import ApiToken, IdempotencyRecord
from tests.support import cast
from tests.support.claims import registered, with_a_file
from tests.support.memory_graphs import let_memory_age, remember

pytestmark = pytest.mark.django_db(transaction=True)


def ago(**span: float) -> Any:
    return timezone.now() - timedelta(**span)


def swept(kind: str) -> None:
    assert kind in kinds.STANDING
    assert kinds.advance(jobs.add_job(kind)).error == ""


def test_workers_that_left_a_month_ago_go() -> None:
    for days in (1, 31):
        Worker.objects.create(
            host=f"left {days}",
            pid=1,
            started_at=ago(days=99),
            heartbeat_at=ago(days=days),
        )
    swept("sweep_workers")
    assert [worker.host for worker in Worker.objects.all()] == ["left 1"]


def test_an_uploaded_file_goes_when_no_run_names_it_and_it_is_a_week_old(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MEDIA_ROOT = tmp_path
    graph = with_a_file("swept_files", required=True)
    with registered(graph):
        named, unnamed, young, bad = (
            save_upload(BytesIO(b"x"), name=f"{n}.txt", by=None) for n in range(4)
        )
        Upload.objects.exclude(id=young["file"]).update(at=ago(days=8))
        run = runs.cancel(runs.start(graph.name, {"letter": named}).id)
        Path(tmp_path / Upload.objects.get(id=bad["file"]).stored_as).unlink()
        swept("sweep_uploads")
        assert {str(upload.id) for upload in Upload.objects.all()} == {
            named["file"],
            young["file"],
        }
        assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2
        assert verify_run(run.id) == []
        with pytest.raises(InvalidValue, match="no uploaded file"):
            runs.start(graph.name, {"letter": unnamed})
        policy = RetentionPolicy(
            graph=graph.name, keep_last=1, remove_runs_after_days={"cancelled": 0}
        )
        retention.prune(policy, by=None, now=ago(days=-3))
        assert kinds.advance(Job.objects.get(kind="prune_runs").id).error == ""
        assert not Run.objects.exists()
        swept("sweep_uploads")
        assert [str(upload.id) for upload in Upload.objects.all()] == [young["file"]]
        # As a start does whose file was swept since it looked.
        monkeypatch.setattr(uploads, "check_refs", lambda value, by: None)
        with pytest.raises(InvalidValue, match="no uploaded file"):
            runs.start(graph.name, {"letter": unnamed})
        assert not Run.objects.exists()


def test_memory_goes_by_age_where_the_settings_say_so_and_its_runs_verify(
    configure: Any,
) -> None:
    run = remember("key", "content")
    let_memory_age(days=10)
    swept("sweep_memory")
    assert MemoryTrace.objects.filter(deleted=False).count() == 1
    configure(MEMORY_DAYS=9.5)
    swept("sweep_memory")
    assert MemoryTrace.objects.filter(deleted=False).count() == 0
    assert AuditLine.objects.filter(kind="memory_forgotten").count() == 1
    assert verify_run(run.id) == []


def test_memory_that_a_held_run_wrote_stays_until_the_hold_is_released(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [remember(f"key {n}", "content") for n in range(3)]
    before = retention.hold(written[0].id, "a court asked", by=None)
    let_memory_age(days=10)
    configure(MEMORY_DAYS=9.5)
    forget = standing_jobs._forget
    late = list[LegalHold]()

    def held_meanwhile(row: MemoryTrace) -> bool:
        if not late:
            late.append(retention.hold(written[2].id, "another court asked", by=None))
        return forget(row)

    monkeypatch.setattr(standing_jobs, "_forget", held_meanwhile)
    swept("sweep_memory")
    assert set(
        MemoryTrace.objects.filter(deleted=False).values_list("run", flat=True)
    ) == {
        written[0].id,
        written[2].id,
    }
    for hold in (before, *late):
        retention.release_hold(hold.id, by=None)
    swept("sweep_memory")
    assert MemoryTrace.objects.filter(deleted=False).count() == 0


def test_what_is_remembered_anew_while_old_memory_goes_stays(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember("key", "old")
    let_memory_age(days=10)
    configure(MEMORY_DAYS=9.5)
    forget = standing_jobs._forget

    def late(row: MemoryTrace) -> bool:
        remember("key", "new")
        return forget(row)

    monkeypatch.setattr(standing_jobs, "_forget", late)
    swept("sweep_memory")
    assert MemoryTrace.objects.filter(deleted=False).count() == 1
    assert not AuditLine.objects.filter(kind="memory_forgotten").exists()


def test_sessions_tokens_and_answers_that_ended_go_and_the_others_stay(
    people: cast.People,
) -> None:
    for name, columns in {
        "lives": {},
        "revoked": {"revoked_at": ago(days=31)},
        "just revoked": {"revoked_at": ago(days=1)},
        "expired": {"expires_at": ago(days=31)},
        "expires": {"expires_at": ago(days=-1)},
    }.items():
        tokens.make_token(people.starter, name=name)
        ApiToken.objects.filter(name=name).update(**columns)
    for days in (6, 8):
        IdempotencyRecord.objects.create(
            user=people.starter,
            method="POST",
            path="/",
            key=str(days),
            body_hash="",
            created_at=ago(days=days),
        )
        Session.objects.create(
            session_key=str(days), session_data="", expire_date=ago(days=7 - days)
        )
    swept("sweep_access")
    assert set(ApiToken.objects.values_list("name", flat=True)) == {
        "lives",
        "just revoked",
        "expires",
    }
    assert [record.key for record in IdempotencyRecord.objects.all()] == ["6"]
    assert Session.objects.filter(expire_date__lt=timezone.now()).count() == 0


def test_challenges_that_no_passkey_answered_in_time_go(people: cast.People) -> None:
    for minutes in (4, 6):
        PasskeyChallenge.objects.create(
            user=people.reviewer,
            session="a" * 64,
            nonce=str(minutes),
            challenge="b" * 64,
            created_at=ago(minutes=minutes),
        )
    swept("sweep_access")
    assert [row.nonce for row in PasskeyChallenge.objects.all()] == ["4"]


def test_log_ins_that_confirm_an_act_go_after_a_day(people: cast.People) -> None:
    for hours in (23, 25):
        FreshLogin.objects.create(
            user=people.reviewer,
            session="a" * 64,
            nonce=str(hours),
            created_at=ago(minutes=hours * 60),
        )
    swept("sweep_access")
    assert [row.nonce for row in FreshLogin.objects.all()] == ["23"]
