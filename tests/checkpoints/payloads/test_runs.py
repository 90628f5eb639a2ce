"""Runs whose payloads are in files: they go on like others, and what is lost, unknown
or out of reach is named.
"""

from pathlib import Path
from typing import Any

import pytest

from checkpoints import timeline
from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.ledger import reader, run_error
from checkpoints.models import Checkpoint, Run
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.api.problems import status_of
from orchestrator.engine.errors import PayloadLost, SaveFailed, UnknownBackend
from tests.support.payload_backends import Full
from tests.support.payload_runs import chain, columns, kept_files, notes
from tests.support.small_graphs import advanced, registered, slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_run_keeps_its_payloads_in_files_and_only_their_records_in_rows(
    cellar: Path,
) -> None:
    run = advanced(chain("in_files", "a", "b"))
    assert run.status == Status.COMPLETED
    assert run.payloads == "cellar"
    assert notes(run) == ["a", "b"]
    rows = list(Checkpoint.objects.filter(run=run))
    assert {row.backend for row in rows} == {"cellar"}
    assert max(len(bytes(row.change)) for row in rows) < 50
    assert len(kept_files(cellar)) == columns(run)


def test_a_graph_that_says_nothing_follows_the_settings_when_a_run_starts_and_the_run_stays(
    cellar: Path, configure: Any
) -> None:
    flow = chain("follows", "a", "b", payloads=None)
    before = started(flow)
    configure(DEFAULT_PAYLOADS="cellar")
    after = started(flow)
    assert before.payloads == "database"
    assert after.payloads == "cellar"
    assert runs.advance(before.id).payloads == "database"
    assert set(
        Checkpoint.objects.filter(run=before).values_list("backend", flat=True)
    ) == {"database"}
    assert runs.advance(after.id).status == Status.COMPLETED


def test_old_rows_stay_readable_when_a_graph_chooses_another_place(
    cellar: Path,
) -> None:
    old = advanced(chain("moved", "a"))
    new = advanced(chain("moved", "a", payloads="database"))
    assert old.payloads == "cellar"
    assert new.payloads == "database"
    assert old.fingerprint == new.fingerprint
    assert notes(old) == notes(new) == ["a"]


def test_a_run_cannot_start_where_the_settings_do_not_know_its_backend(
    settings: Any,
) -> None:
    flow = chain("homeless", "a")
    registered(flow)
    with pytest.raises(UnknownBackend, match="'cellar'; known: database"):
        runs.start("homeless", {})
    assert not Run.objects.exists()


def test_a_start_that_cannot_be_saved_leaves_nothing(cellar: Path) -> None:
    registered(chain("unborn", "a"))
    Full.left = 0
    with pytest.raises(
        SaveFailed,
        match="payload backend 'cellar' did not keep .*OSError.*No space left",
    ) as refused:
        runs.start("unborn", {})
    assert status_of(type(refused.value)) == 503
    assert not Run.objects.exists()
    assert not Checkpoint.objects.exists()


def test_what_a_backend_keeps_that_the_settings_forgot_is_refused_by_name(
    cellar: Path, settings: Any
) -> None:
    run = advanced(chain("forgotten", "a"))
    settings.COUNTERSIGN = {}
    with pytest.raises(UnknownBackend, match="'cellar'"):
        notes(run)


def test_a_run_whose_backend_the_settings_forgot_stops_by_name_and_goes_on_when_it_is_back(
    cellar: Path, settings: Any
) -> None:
    run = started(chain("waits", "a"))
    settings_before = settings.COUNTERSIGN
    settings.COUNTERSIGN = {}
    run = runs.advance(run.id)
    error = run_error.stored_error(run)
    assert error is not None
    assert run.status == Status.FAILED
    assert error["code"] == "unknown_backend"
    assert "'cellar'" in error["message"]
    assert "Put it back" in error["cure"]
    settings.COUNTERSIGN = settings_before
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED


@pytest.mark.parametrize("harm", ["missing", "cut", "changed"])
def test_a_run_whose_payload_is_not_what_was_saved_is_tampered_and_says_which(
    cellar: Path, harm: str
) -> None:
    run = started(chain("harmed", "a"))
    snapshot = next(path for path in kept_files(cellar) if "snapshot" in path.name)
    if harm == "missing":
        snapshot.unlink()
    else:
        data = snapshot.read_bytes()
        snapshot.write_bytes(data[:-3] if harm == "cut" else data[:-3] + b"xyz")
    run = runs.advance(run.id)
    error = run_error.stored_error(run)
    assert error is not None
    assert run.status == Status.TAMPERED
    assert error["code"] == "payload_lost"
    assert f"{run.id}/{run.head}/snapshot" in error["message"]


@pytest.mark.parametrize("part", [b"../../outside", b"\xff\xfe", b"a\x00b"])
def test_a_row_whose_record_names_no_payload_is_refused_as_damaged(
    cellar: Path, part: bytes
) -> None:
    run = advanced(chain("renamed", "a"))
    column = b"\x04" + bytes([len(part)]) + part
    Checkpoint.objects.filter(id=run.head).update(change=column, snapshot=column)
    with pytest.raises(PayloadLost, match="record of payload .* is damaged"):
        timeline.head_state(run.id)


def test_a_backend_that_does_not_answer_costs_a_run_time_and_nothing_else_however_long_it_is_away(
    cellar: Path,
) -> None:
    run = started(chain("closed", "a"))
    Full.away = True
    for _ in range(conf().max_claims_without_progress + 2):
        run = slice_of(run)
        assert run.status == Status.QUEUED
        assert run.error_code == ""
        assert leases.claim_one(run.id) is None
        Run.objects.filter(id=run.id).update(due_at="2000-01-01T00:00Z")
    Full.away = False
    assert runs.advance(run.id).status == Status.COMPLETED


def test_a_load_in_the_middle_folds_files_as_it_folds_rows(cellar: Path) -> None:
    run = advanced(chain("folded", "a", "b", "c"))
    ids = (
        Checkpoint.objects.filter(run=run).order_by("seq").values_list("id", flat=True)
    )
    documents = [reader.document_at(id) for id in ids]
    assert [document["scratch"]["notes"] for document in documents if document] == [
        [],
        ["a"],
        ["a", "b"],
        [*"abc"],
    ]


def test_a_recovery_point_takes_its_bytes_with_it_when_it_is_replaced(
    cellar: Path,
) -> None:
    run = advanced(chain("trimmed", "a", "b", "c", checkpoints="none"))
    assert run.status == Status.COMPLETED
    assert Checkpoint.objects.filter(run=run).count() == 2
    assert len(kept_files(cellar)) == columns(run)
    assert notes(run) == ["a", "b", "c"]


def test_a_row_that_points_to_another_payload_does_not_open(cellar: Path) -> None:
    run = advanced(chain("pointed", "a", "b", snapshot=1))
    first, second = Checkpoint.objects.filter(run=run, seq__gt=0).order_by("seq")[:2]
    Checkpoint.objects.filter(id=first.id).update(snapshot=bytes(second.snapshot))
    with pytest.raises(PayloadLost, match=f"{first.id}/snapshot"):
        timeline.state_at(first.id)
