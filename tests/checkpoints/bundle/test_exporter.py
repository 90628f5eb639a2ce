"""A run leaves the house as one signed file, as it is in the database, and only where
it verifies.
"""

import hashlib
import io
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoints import bundle, retention
from checkpoints.bundle import exporter, verifier
from checkpoints.models import AuditLine, Checkpoint, ErasureRecord, Run, RunEvent
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.engine.errors import TamperedRow, UnknownThing, WrongStatus
from tests.support import cast, erasures, small_graphs
from tests.support.bundles import exported as bundle_of
from tests.support.bundles import forgotten, lines_of, signed_run
from tests.support.forging import tamper
from tests.support.sealed_tables import ONE_KEY

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def one_key(configure: Any) -> None:
    configure(**ONE_KEY)


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def run(request: pytest.FixtureRequest, tmp_path: Path, people: cast.People) -> Run:
    return signed_run(tmp_path, people, encrypted=request.param)


def test_what_was_exported_verifies_with_the_public_key(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "run.jsonl"
    exported = bundle.export(run.id, file)
    assert bundle.verify(file, bundle.public_key()) == (True, 0, "")
    assert exported.size == file.stat().st_size
    assert exported.lines == len(file.read_bytes().splitlines())
    assert [path.name for path in tmp_path.glob(f"{exporter.UNFINISHED}*")] == [], (
        "no file of its own is left"
    )


def test_a_file_is_on_the_disk_by_its_name_when_the_export_returns(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, bool]] = []
    file = tmp_path / "run.jsonl"
    monkeypatch.setattr(
        exporter.local_files,
        "sync_folder",
        lambda at: synced.append((at, file.exists())),
    )
    bundle.export(run.id, file)
    assert synced == [(tmp_path, True)]


def test_a_run_whose_erasure_begins_while_it_is_exported_leaves_no_bundle(
    run: Run, people: cast.People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = exporter._manifest
    file = tmp_path / "run.jsonl"

    def late(*args: Any) -> dict[str, Any]:
        manifest_line = manifest(*args)
        if not ErasureRecord.objects.exists():
            erasures.worked_until(
                retention.begin_erasure(run.id, by=people.steward),
                "checkpoints_pendingwrite",
            )
        return manifest_line

    monkeypatch.setattr(exporter, "_manifest", late)
    with pytest.raises(WrongStatus, match="are being erased"):
        bundle.export(run.id, file)
    assert list(tmp_path.glob("*.jsonl")) == []


def test_what_an_export_left_that_broke_off_is_swept_by_a_later_one(
    run: Run, tmp_path: Path
) -> None:
    old, young, other = (
        tmp_path / name
        for name in (f"{exporter.UNFINISHED}a", f"{exporter.UNFINISHED}b", "c")
    )
    for left in (old, young, other):
        left.write_bytes(b"half")
    for left in (old, other):
        os.utime(left, (1, 1))
    bundle.export(run.id, tmp_path / "run.jsonl")
    assert old.exists() is False
    assert young.exists() is True
    assert other.exists() is True


def test_a_bundle_holds_each_row_of_the_run(run: Run) -> None:
    lines = lines_of(bundle_of(run))
    kinds = [line["kind"] for line in lines]
    assert kinds[:2] == ["manifest", "run"]
    assert kinds[-2:] == ["counts", "signature"]
    counts = lines[-2]["counts"]
    assert counts["event"] == RunEvent.objects.filter(run=run.id).count()
    assert counts["checkpoint"] == Checkpoint.objects.filter(run=run.id).count()
    # An edit is a revision of its own.
    assert [counts[kind] for kind in ("decision", "write", "request", "receipt")] == [
        2,
        3,
        1,
        1,
    ]
    assert counts["result"] == 1
    sealed = {
        name
        for line in lines
        if line["kind"] == "seals"
        for name, _, _ in line["seals"]
    }
    assert f"{run.id} 1" in sealed


def test_nothing_of_an_encrypted_run_is_readable_in_its_bundle(
    tmp_path: Path, people: cast.People
) -> None:
    plain = bundle_of(signed_run(tmp_path, people, encrypted=False))
    hidden = bundle_of(signed_run(tmp_path, people, encrypted=True))
    assert b"Dear Ada" in plain
    assert b"Dear Ada" not in hidden


def test_an_export_leaves_a_line_in_the_audit_log(
    run: Run, people: cast.People
) -> None:
    bundle_of(run, by=people.auditor)
    line = AuditLine.objects.get(kind="run_exported")
    assert line.actor_name == people.auditor.get_username()
    assert line.run == run.id
    assert line.facts["as_is"] is False


def test_a_run_that_does_not_verify_is_exported_only_as_it_is_and_the_manifest_says_so(
    run: Run,
) -> None:
    tamper(RunEvent.objects.get(run=run.id, seq=2), actor="mallory")
    with pytest.raises(TamperedRow, match="does not verify"):
        bundle_of(run)
    assert not AuditLine.objects.filter(kind="run_exported").exists()
    data = bundle_of(run, as_is=True)
    manifest = lines_of(data)[0]
    assert manifest["as_is"] is True
    assert "checkpoints_runevent" in manifest["faults"][0]
    verdict = bundle.verify(io.BytesIO(data), bundle.public_key())
    assert not verdict.ok
    assert AuditLine.objects.get(kind="run_exported").facts["as_is"] is True


def test_a_payload_that_cannot_be_read_is_carried_as_it_is_kept(run: Run) -> None:
    row = RunEvent.objects.filter(run=run.id).order_by("seq").first()
    tamper(row, payload=b"\x09nonsense")
    [carried] = [
        line["row"]["payload"]
        for line in lines_of(bundle_of(run, as_is=True))
        if line["kind"] == "event"
    ][:1]
    assert "kept" in carried or run.encrypted
    assert not bundle.verify(
        io.BytesIO(bundle_of(run, as_is=True)), bundle.public_key()
    ).ok


def test_an_unknown_run_and_a_refused_export_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(UnknownThing):
        bundle.export("01890a5d-ac96-774b-bcce-b302099a8057", tmp_path / "run.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_forks_name_their_origin_and_verify(
    tmp_path: Path, people: cast.People
) -> None:
    run = signed_run(tmp_path, people)
    at = Checkpoint.objects.filter(run=run.id, kept=True).order_by("seq")[0]
    fork = runs.advance(runs.fork(at.id, by=people.starter).id)
    again = runs.advance(
        runs.rewind(
            fork.id, Checkpoint.objects.get(run=fork.id, seq=0).id, reason="again"
        ).id
    )
    data = bundle_of(again)
    assert bundle.verify(io.BytesIO(data), bundle.public_key()).ok
    assert [origin["run"] for origin in lines_of(data)[0]["origins"]] == [str(run.id)]


def test_memory_stays_flat_however_long_a_run_is(tmp_path: Path) -> None:
    """In full (COUNTERSIGN_BUNDLE_MEGABYTES=1024) a bundle of a gigabyte."""
    megabytes = int(os.environ.get("COUNTERSIGN_BUNDLE_MEGABYTES", "12"))
    size = 400_000
    rounds = megabytes * 1_000_000 // 400_000
    graph = small_graphs.graph("long", snapshot=1_000_000, max_supersteps=rounds + 5)

    # Other text in each round, so that nothing is small because it repeats.
    @graph.node(max_visits=rounds + 5)
    def say(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": os.urandom(size // 2).hex(), "total": state.total + 1}

    graph.edge(START, "say")
    graph.branch(
        "say",
        lambda state: "on" if state.total < rounds else "off",
        {"on": "say", "off": END},
    )
    run = small_graphs.advanced(graph)
    assert run.status == "completed"
    file = tmp_path / "long.jsonl"
    peaks = {"to export": _peak(lambda: bundle.export(run.id, file))}
    peaks["to verify"] = _peak(lambda: bundle.verify(file, bundle.public_key()))
    forgotten(run)
    peaks["to take it in"] = _peak(lambda: bundle.load(file))
    assert Run.objects.get().imported
    print(f"{file.stat().st_size:,} bytes; peak of memory {peaks}")
    assert file.stat().st_size > megabytes * 900_000
    assert max(peaks.values()) < 40 * size, peaks


def test_one_long_line_that_nobody_signed_costs_a_few_times_its_length(
    tmp_path: Path,
) -> None:
    """In full (COUNTERSIGN_BUNDLE_MEGABYTES=1024) the longest line that is read at all."""
    megabytes = int(os.environ.get("COUNTERSIGN_BUNDLE_MEGABYTES", "12"))
    size = min(megabytes * 1_000_000, verifier.LONGEST_LINE - 1000)
    body = b'{"kind":"manifest","x":"' + b"x" * size + b'"}'
    hash_ = hashlib.sha256(verifier.BEGIN.encode() + body).hexdigest().encode()
    file = tmp_path / "long.jsonl"
    file.write_bytes(
        b"".join([verifier.HEAD, hash_, verifier.MIDDLE, body, verifier.TAIL])
    )
    del body
    verdicts = []
    peak = _peak(lambda: verdicts.append(bundle.verify(file, bundle.public_key())))
    print(f"a line of {size:,} bytes; peak of memory {peak:,}")
    assert "the signature is missing" in verdicts[0].reason
    assert peak < 3.5 * size


def _peak(act: Callable[[], Any]) -> int:
    """The most bytes that Python held at once meanwhile, beyond what it held before."""
    tracemalloc.start()
    act()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_the_lines_are_json_that_any_reader_reads(run: Run) -> None:
    assert all(
        isinstance(json.loads(line), dict) for line in bundle_of(run).splitlines()
    )
