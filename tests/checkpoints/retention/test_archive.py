"""Where a policy asks for it, a run is in a signed bundle before anything of it goes;
else nothing goes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from checkpoints import bundle, retention, timeline
from checkpoints.bundle import exporter
from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run
from checkpoints.models import AuditLine, Checkpoint, Run, RunEvent
from orchestrator import runs
from orchestrator.engine.errors import InvalidValue
from tests.support.histories import faults, policy, pruned, seqs
from tests.support.large_states import large
from tests.support.small_graphs import slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    return runs.advance(started(large("short", "abcd", snapshot=1000)).id)


def test_a_stretch_and_a_whole_run_are_archived_before_they_go(
    run: Run, tmp_path: Path, configure: Any
) -> None:
    configure(ARCHIVE_FOLDER=str(tmp_path), BUNDLE_KEY="07" * 32)
    pruned(policy("short", keep_last=2, archive=True))
    [file] = tmp_path.iterdir()
    assert (
        timeline.payload_of(RunEvent.objects.get(run=run, type="history_removed"))[
            "bundle"
        ]
        == file.name
    )
    assert bundle.verify(file, bundle.public_key()).ok
    assert seqs(run) == [3, 4]
    assert faults() == []
    pruned(
        policy(
            "short",
            keep_last=None,
            remove_runs_after_days={"completed": 0},
            archive=True,
        )
    )
    named = AuditLine.objects.get(kind="run_removed").facts["bundle"]
    assert bundle.verify(tmp_path / named, bundle.public_key()).ok
    assert named != file.name


def test_without_a_folder_or_a_place_in_it_nothing_goes(
    run: Run, tmp_path: Path, configure: Any
) -> None:
    rule = policy("short", keep_last=1, archive=True)
    with pytest.raises(InvalidValue, match="archives"):
        retention.prune(rule, by=None)
    configure(ARCHIVE_FOLDER=str(tmp_path / "none"))
    with pytest.raises(InvalidValue, match="archives"):
        retention.prune(rule, by=None)
    configure(ARCHIVE_FOLDER=str(tmp_path), BUNDLE_KEY="07" * 32)
    (tmp_path / f"{run.id}-{run.event_seq}.bundle").mkdir()
    job = pruned(rule)
    assert job.progress["place"]["skipped"] == 1
    assert Checkpoint.objects.filter(run=run).count() == 5


def test_what_a_run_does_behind_its_bundle_stays(
    tmp_path: Path, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(ARCHIVE_FOLDER=str(tmp_path), BUNDLE_KEY="07" * 32, SLICE_SECONDS=1e-9)
    run = started(large("goes_on", "abcdef", snapshot=1000))
    for _ in range(3):
        run = slice_of(run)
    export = bundle.export
    head = run.head_seq

    def goes_on(*args: Any, **kwargs: Any) -> Any:
        exported = export(*args, **kwargs)
        for _ in range(3):
            slice_of(run)
        return exported

    monkeypatch.setattr(bundle, "export", goes_on)
    pruned(policy("goes_on", keep_last=1, archive=True))
    run.refresh_from_db()
    assert run.head_seq == head + 3
    assert seqs(run) == list(range(head, run.head_seq + 1))
    assert faults() == []


def test_a_run_that_changed_behind_its_bundle_is_not_removed(
    run: Run, tmp_path: Path, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(ARCHIVE_FOLDER=str(tmp_path), BUNDLE_KEY="07" * 32)
    export = bundle.export

    def changed(*args: Any, **kwargs: Any) -> Any:
        exported = export(*args, **kwargs)
        with transaction.atomic():
            facts = [
                NewEvent(
                    "checkpoint_kept", {"checkpoint": str(run.head), "superstep": 0}
                )
            ]
            locked_run.append_locked(
                locked_run.lock_run(run.id), facts, at=timezone.now()
            )
        return exported

    monkeypatch.setattr(bundle, "export", changed)
    job = pruned(
        policy(
            "short",
            keep_last=None,
            remove_runs_after_days={"completed": 0},
            archive=True,
        )
    )
    assert job.progress["place"]["skipped"] == 1
    assert len(seqs(run)) == 5


def test_a_bundle_of_a_run_that_was_erased_before_it_lay_in_the_folder_does_not_stay(
    run: Run, tmp_path: Path, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(ARCHIVE_FOLDER=str(tmp_path), BUNDLE_KEY="07" * 32)
    written_whole = exporter.written_whole

    @contextmanager
    def late(file: Any) -> Iterator[Any]:
        with written_whole(file) as out:
            yield out
            retention.erase(run.id)

    monkeypatch.setattr(exporter, "written_whole", late)
    job = pruned(policy("short", keep_last=1, archive=True))
    assert job.progress["place"]["skipped"] == 1
    assert len(seqs(run)) == 5
    assert list(tmp_path.iterdir()) == []
