"""Where a policy asks for it, a run is in a signed bundle before anything of it goes; else nothing goes."""

from pathlib import Path
from typing import Any

import pytest

from checkpoints import bundle, retention, timeline
from checkpoints.models import AuditLine, Checkpoint, Run, RunEvent
from orchestrator import runs
from orchestrator.engine.errors import InvalidValue
from tests.support.histories import faults, policy, pruned, seqs
from tests.support.large_states import large
from tests.support.small_graphs import started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    return runs.advance(started(large("short", "abcd", snapshot=1000)).id)


def test_a_stretch_and_a_whole_run_are_archived_before_they_go(run: Run, tmp_path: Path, configure: Any) -> None:
    configure(ARCHIVE_FOLDER=str(tmp_path), BUNDLE_KEY="07" * 32)
    pruned(policy("short", keep_last=2, archive=True))
    [file] = tmp_path.iterdir()
    assert timeline.payload_of(RunEvent.objects.get(run=run, type="history_removed"))["bundle"] == file.name
    assert bundle.verify(file, bundle.public_key()).ok
    assert (seqs(run), faults()) == ([3, 4], [])
    pruned(policy("short", keep_last=None, remove_runs_after_days={"completed": 0}, archive=True))
    named = AuditLine.objects.get(kind="run_removed").facts["bundle"]
    assert bundle.verify(tmp_path / named, bundle.public_key()).ok
    assert named != file.name


def test_without_a_folder_or_a_place_in_it_nothing_goes(run: Run, tmp_path: Path, configure: Any) -> None:
    rule = policy("short", keep_last=1, archive=True)
    with pytest.raises(InvalidValue, match="archives"):
        retention.prune(rule, by=None)
    configure(ARCHIVE_FOLDER=str(tmp_path / "none"))
    with pytest.raises(InvalidValue, match="archives"):
        retention.prune(rule, by=None)
    configure(ARCHIVE_FOLDER=str(tmp_path), BUNDLE_KEY="07" * 32)
    (tmp_path / f"{run.id}-{run.event_seq}.bundle").mkdir()
    job = pruned(rule)
    assert (job.progress["place"]["skipped"], Checkpoint.objects.filter(run=run).count()) == (1, 5)
