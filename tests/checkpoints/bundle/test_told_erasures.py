"""A run of which values were erased leaves as a bundle, verifies, and comes in again
with records and tombstones.
"""

import io
from pathlib import Path
from typing import Any

import pytest

from checkpoints import bundle, retention, timeline
from checkpoints.core.tombstone import is_tombstone
from checkpoints.erasure import request
from checkpoints.models import ErasedRow, ErasureRecord, Run, RunKey, TaskResult
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import Erased, InvalidBundle, KeyConflict, WrongStatus
from tests.support import bundles, cast, erasures, secret_claim
from tests.support.bundles import KEY, exported, forgotten, lines_of, loaded, written
from tests.support.forging import rewrite, tamper

pytestmark = pytest.mark.django_db(transaction=True)
PATHS = [None, ["payout.memo", "input.person"]]


@pytest.fixture
def make(people: cast.People, configure: Any) -> Any:
    """Make a whole story, encrypted or not, of which these paths, or all, were erased."""

    def made(paths: list[str] | None, *, encrypted: bool) -> Run:
        trusted = {"TRUSTED_KEYS": {"another": bundles.PUBLIC.hex()}}
        configure(
            BUNDLE_KEY="07" * 32,
            **trusted,
            **(secret_claim.keys() if encrypted else {}),
        )
        secret_claim.registered(encrypted=encrypted)
        run = erasures.whole_story(people)
        retention.erase(run.id, paths, reason="asked", by=people.steward)
        return Run.objects.get(id=run.id)

    return made


def gone(run: Run) -> None:
    """The run is not here any more, nor what was known of its erasures."""
    forgotten(run)
    ErasedRow.objects.filter(run=run.id).delete()
    ErasureRecord.objects.filter(run=run.id).delete()
    RunKey.objects.all().delete()


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("paths", PATHS)
def test_it_comes_in_with_its_tombstones_and_its_record_and_verifies(
    make: Any,
    people: cast.People,
    tmp_path: Path,
    paths: list[str] | None,
    encrypted: bool,
) -> None:
    run = make(paths, encrypted=encrypted)
    was = ErasureRecord.objects.get(run=run.id)
    states = states_of(run)
    data = exported(run)
    assert bundle.verify(io.BytesIO(data), bundle.public_key()).ok
    gone(run)
    imported = loaded(data, by=people.steward)
    assert verify_run(imported.id) == []
    assert states_of(imported) == states
    now = ErasureRecord.objects.get(run=run.id)
    same = (
        "id",
        "at",
        "ended_at",
        "by_name",
        "by",
        "reason",
        "paths",
        "inherited",
        "kept_files",
    )
    assert [getattr(now, name) for name in same] == [
        getattr(was, name) for name in same
    ]
    assert imported.erasure == was.id
    assert now.origin_rows_hash == was.rows_hash
    assert 0 < now.rows == ErasedRow.objects.filter(record=now).count()
    with pytest.raises(Erased):
        runs.fork(f"{imported.key}:at-1", by=people.starter)
    # And once more, from here.
    again = exported(imported)
    gone(imported)
    assert verify_run(loaded(again).id) == []


def states_of(run: Run) -> list[Any]:
    return [timeline.state_at(row.id) for row in timeline.list_checkpoints(run.id)]


def test_values_that_were_left_are_erased_after_the_import(
    make: Any, people: cast.People
) -> None:
    run = make(["payout.memo"], encrypted=False)
    data = exported(run)
    gone(run)
    imported = loaded(data)
    retention.erase(imported.id, by=people.steward)
    assert verify_run(imported.id) == []
    assert erasures.marks_in(erasures.everything()) <= {"memory"}
    assert is_tombstone(read_value(Run.objects.get(id=run.id), "input"))


def test_what_comes_back_into_an_imported_run_is_named(
    make: Any, people: cast.People
) -> None:
    run = make(None, encrypted=False)
    data = exported(run)
    gone(run)
    imported = loaded(data)
    row = TaskResult.objects.filter(run=imported.id).exclude(output=b"").first()
    tamper(row, output=pack_json({"writes": [{"channel": "letter", "value": "Ada"}]}))
    assert verify_run(imported.id)
    rewrite(row, output=row.output)
    record = ErasureRecord.objects.get()
    ErasedRow.objects.filter(record=record).order_by("id").first().delete()
    assert any("lists other rows" in fault.reason for fault in verify_run(imported.id))


def test_a_bundle_whose_erasures_do_not_fit_is_refused_and_changes_nothing(
    make: Any,
) -> None:
    run = make(["payout.memo"], encrypted=False)
    bodies = lines_of(exported(run))
    [record] = bodies[0]["erasures"]
    gone(run)
    for forged in (
        [],
        [{**record, "run": record["id"]}],
        [{**record, "rows_hash": "0" * 64}],
        [{**record, "ended_at": None}],
        [{**record, "reason": "x\x00"}],
        [{key: value for key, value in record.items() if key != "by_name"}],
        [record, record],
    ):
        with pytest.raises((InvalidBundle, KeyConflict)):
            loaded(written([{**bodies[0], "erasures": forged}, *bodies[1:]], KEY))
        assert not Run.objects.exists()
        assert not ErasureRecord.objects.exists()
    assert loaded(written(bodies, KEY)).imported


def test_a_bundle_from_before_an_erasure_brings_nothing_back(
    people: cast.People,
) -> None:
    secret_claim.registered(encrypted=False)
    run = erasures.whole_story(people)
    data = exported(run)
    retention.erase(run.id, by=people.steward)
    forgotten(run)
    with pytest.raises(KeyConflict, match="were erased here"):
        loaded(data)
    assert not Run.objects.exists()
    assert ErasureRecord.objects.filter(run=run.id).exists()


def test_a_run_whose_erasure_goes_on_is_exported_when_that_has_ended(
    people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret_claim.registered(encrypted=False)
    run = erasures.whole_story(people)
    retention.begin_erasure(run.id, by=people.steward)
    with pytest.raises(WrongStatus, match="being erased"):
        exported(run)
    request.work_on(ErasureRecord.objects.get(run=run.id))
    assert exported(run)
