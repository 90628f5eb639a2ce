"""A run that was removed as a whole comes back from the bundle that holds its log to
the end, and from no other.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from checkpoints import anchors
from checkpoints.models import AuditLine, Run
from checkpoints.verification import verify_run
from checkpoints.verification.audit import audit
from orchestrator import runs
from orchestrator.engine.errors import KeyConflict
from tests.support.bundles import (
    KEY,
    PUBLIC,
    exported,
    forgotten,
    hashed_anew,
    lines_of,
    loaded,
    written,
)
from tests.support.forging import tamper
from tests.support.histories import long_run, policy, pruned
from tests.support.large_states import large
from tests.support.small_graphs import started
from tests.support.table_contents import contents

pytestmark = pytest.mark.django_db(transaction=True)


def _anchor() -> None:
    list(anchors.anchor_heads(None))  # type: ignore[arg-type]  # it asks nothing of its lease


@pytest.fixture
def removed(tmp_path: Path, configure: Any) -> tuple[Run, bytes, bytes]:
    """A run of which a stretch was archived and removed, then all of it: the bundle
    before each.
    """
    configure(
        ARCHIVE_FOLDER=str(tmp_path),
        BUNDLE_KEY="07" * 32,
        TRUSTED_KEYS={"north": PUBLIC.hex()},
    )
    run = runs.advance(started(large("short", "abcd", snapshot=1000)).id)
    pruned(policy("short", keep_last=2, archive=True))
    [earlier] = tmp_path.iterdir()
    _anchor()
    pruned(
        policy(
            "short",
            keep_last=None,
            remove_runs_after_days={"completed": 0},
            archive=True,
        )
    )
    _anchor()
    last = tmp_path / AuditLine.objects.get(kind="run_removed").facts["bundle"]
    assert not Run.objects.exists()
    return run, earlier.read_bytes(), last.read_bytes()


def _faults() -> list[str]:
    reasons = [
        fault.reason for run in Run.objects.all() for fault in verify_run(run.id)
    ]
    return reasons + [fault.reason for fault in audit() if fault is not None]


def test_the_archive_that_its_removal_names_restores_a_run_and_everything_verifies(
    removed: tuple[Run, bytes, bytes],
) -> None:
    run, _, last = removed
    assert loaded(last).id == run.id
    _anchor()
    assert _faults() == []


def test_an_earlier_bundle_of_a_removed_run_is_a_conflict_and_the_refusal_names_the_right_one(
    removed: tuple[Run, bytes, bytes],
) -> None:
    run, earlier, last = removed
    before = contents()
    named = AuditLine.objects.get(kind="run_removed").facts
    with pytest.raises(KeyConflict, match=named["bundle"]) as refused:
        loaded(earlier)
    assert f"line {named['event_seq']}" in refused.value.message
    assert contents() == before
    assert AuditLine.objects.get(kind="refused_import").facts["code"] == "key_conflict"
    _anchor()
    assert _faults() == []
    assert loaded(last).id == run.id


@pytest.mark.parametrize("nodes", ["a", "abcd", "abcdefgh"])
def test_a_house_that_claims_the_id_of_a_removed_run_is_refused(
    removed: tuple[Run, bytes, bytes], nodes: str
) -> None:
    run, _, _ = removed
    theirs = long_run("theirs", nodes)
    bodies = json.loads(
        json.dumps(lines_of(exported(theirs))).replace(str(theirs.id), str(run.id))
    )
    forgotten(theirs)
    before = contents()
    with pytest.raises(KeyConflict, match="was removed here"):
        loaded(written(hashed_anew(bodies), KEY))
    assert contents() == before


def test_a_line_of_the_audit_log_that_is_not_as_it_was_sealed_says_nothing(
    removed: tuple[Run, bytes, bytes],
) -> None:
    run, _, last = removed
    line = AuditLine.objects.get(kind="run_removed")
    tamper(line, facts={**line.facts, "event_seq": 99})
    assert loaded(last).id == run.id
    assert any("does not verify" in fault for fault in _faults())
