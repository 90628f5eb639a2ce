"""What is erased, or named, outside the sealed rows of a run."""

from collections.abc import Iterator
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from checkpoints import payloads, retention, timeline, uploads, verification
from checkpoints.core.tombstone import TEXT
from checkpoints.models import Checkpoint, Run, Upload, UploadReference
from checkpoints.retention.rights import PERMISSION
from orchestrator import runs
from orchestrator.engine import Graph
from orchestrator.jobs import kinds
from tests.support import cast, claims, erasures, secret_claim
from tests.support.full_installation import a_full_run
from tests.support.secret_claim import marked
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def graph(settings: Any, tmp_path: Path) -> Iterator[Graph]:
    """A graph whose input names a letter and a list of photos; files are kept in a
    folder of the test.
    """
    location = {"location": str(tmp_path / "storage")}
    entry = {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": location,
    }
    settings.STORAGES = {**settings.STORAGES, "default": entry}
    flow = claims.with_a_file("files_to_erase", required=True)
    with claims.registered(flow):
        yield flow


def upload() -> dict[str, Any]:
    return uploads.save_upload(
        BytesIO(marked("file").encode()), name="letter.txt", by=None
    )


def ended(graph: Graph, ref: dict[str, Any], people: cast.People) -> Run:
    """A run that has ended and whose input names this file."""
    return runs.cancel(
        runs.start(graph.name, {"letter": ref}, by=people.starter).id, by=people.starter
    )


def test_a_bundle_that_is_in_the_archive_when_an_erasure_ends_is_named_in_the_record(
    people: cast.People, tmp_path: Path, configure: Any
) -> None:
    run = a_full_run(tmp_path, people.reviewer)
    folder = tmp_path / "archive"
    folder.mkdir()
    configure(ARCHIVE_FOLDER=str(folder))
    for name in (f"{run.id}-7.bundle", f"{people.starter.pk}-7.bundle"):
        (folder / name).write_text("")
    assert retention.plan_erasure(run.id).counts["archived bundles"] == 1
    record = retention.begin_erasure(run.id, by=people.steward)
    job = erasures.worked_until(record, "checkpoints")
    (folder / f"{run.id}-8.bundle").write_text(
        "written by an export that began before the erasure"
    )
    assert kinds.advance(job.id).status == "done"
    record.refresh_from_db()
    assert record.kept_files == [f"{run.id}-7.bundle", f"{run.id}-8.bundle"]
    assert verification.verify_run(run.id) == []


def test_erasing_files_costs_the_same_beside_many_other_runs(
    graph: Graph, people: cast.People
) -> None:
    first = upload()
    second = upload()
    shared = upload()
    alone = ended(graph, first, people)
    beside = ended(graph, second, people)
    steward = people.steward
    assert steward.has_perm(PERMISSION), "and what he may do is known from here on"
    with counted() as few:
        retention.erase(alone.id, by=steward)
    for _ in range(12):
        ended(graph, upload(), people)
        ended(graph, shared, people)
    with counted() as many:
        retention.erase(beside.id, by=steward)
    assert len(many) == len(few)
    assert not Upload.objects.filter(id__in=[first["file"], second["file"]]).exists()
    assert Upload.objects.count() == 13
    assert UploadReference.objects.count() == 24


def test_no_other_run_is_opened_to_know_who_names_a_file(
    graph: Graph, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = upload()
    theirs = upload()
    run = ended(graph, mine, people)
    ended(graph, theirs, people)
    read = uploads.refs_in
    opened: list[str] = []

    def seen(value: Any) -> Any:
        opened.append(str(value))
        return read(value)

    monkeypatch.setattr(uploads, "refs_in", seen)
    retention.erase(run.id, by=people.steward)
    assert any(mine["file"] in one for one in opened)
    assert not any(theirs["file"] in one for one in opened)


def test_the_name_of_a_file_is_erased_by_its_path_and_the_file_by_its_own(
    graph: Graph, people: cast.People
) -> None:
    first = upload()
    shared = upload()
    run, sharing, also_sharing = (
        ended(graph, ref, people) for ref in (first, shared, shared)
    )
    for named in (run, sharing):
        retention.erase(named.id, ["input.letter.name"], by=people.steward)
        assert verification.verify_run(named.id) == []
    names = {str(upload.id): upload.name for upload in Upload.objects.all()}
    assert names == {first["file"]: TEXT, shared["file"]: "letter.txt"}
    assert verification.verify_run(also_sharing.id) == []
    retention.erase(run.id, ["input.letter"], by=people.steward)
    assert [str(upload.id) for upload in Upload.objects.all()] == [shared["file"]]


@pytest.mark.parametrize("together", [True, False])
def test_the_name_of_a_file_goes_when_it_is_erased_by_its_path_in_a_run_and_its_forks(
    together: bool, graph: Graph, people: cast.People
) -> None:
    ref = upload()
    run = ended(graph, ref, people)
    fork = runs.fork(f"{run.key}:initial", by=people.starter)
    runs.cancel(fork.id, by=people.starter)
    retention.erase(run.id, ["input.letter.name"], together, by=people.steward)
    if not together:
        assert Upload.objects.get(id=ref["file"]).name == "letter.txt"
        retention.erase(fork.id, ["input.letter.name"], by=people.steward)
    assert Upload.objects.get(id=ref["file"]).name == TEXT
    assert [verification.verify_run(each_run.id) for each_run in (run, fork)] == [
        [],
        [],
    ]


def test_a_file_of_a_fork_stays_until_the_fork_is_erased(
    graph: Graph, people: cast.People
) -> None:
    ref = upload()
    run = ended(graph, ref, people)
    fork = runs.fork(f"{run.key}:initial", by=people.starter)
    runs.cancel(fork.id, by=people.starter)
    assert retention.erase(run.id, by=people.steward).kept_files == [ref["file"]]
    assert verification.verify_run(fork.id) == []
    assert retention.erase(fork.id, by=people.steward).kept_files == []
    assert not Upload.objects.exists()


def test_only_the_folder_of_the_run_is_listed_in_a_payload_backend(
    people: cast.People, configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(
        PAYLOADS={
            "cellar": {"backend": "files", "options": {"location": str(tmp_path)}}
        },
        DEFAULT_PAYLOADS="cellar",
    )
    secret_claim.registered(encrypted=False)
    run, other = (
        runs.start("secret_claim", {"person": "Ada"}, by=people.starter) for _ in "ab"
    )
    runs.cancel(run.id, by=people.starter)
    backend = payloads.backend("cellar")
    listed: list[str] = []
    names = backend.names

    def seen(*, before: datetime, folder: str = "") -> Any:
        ordered = list(names(before=before, folder=folder))
        listed.extend(ordered)
        return ordered

    monkeypatch.setattr(backend, "names", seen)
    retention.erase(run.id, by=people.steward)
    assert {name.split("/")[0] for name in listed} == {str(run.id)}
    assert Checkpoint.objects.filter(run=other.id, backend="cellar").exists()


@pytest.mark.parametrize(
    ("sealed", "paths"),
    [(False, None), (True, None), (False, ["payout.memo", "input.person"])],
)
def test_the_files_of_a_payload_backend_are_written_anew_and_leave_nothing_behind(
    people: cast.People,
    configure: Any,
    tmp_path: Path,
    sealed: bool,
    paths: list[str] | None,
) -> None:
    files = {"backend": "files", "options": {"location": str(tmp_path)}}
    entry = {"backend": "sealed", "options": {"of": files}} if sealed else files
    configure(PAYLOADS={"cellar": entry}, DEFAULT_PAYLOADS="cellar")
    secret_claim.registered(encrypted=False)
    run = erasures.whole_story(people)
    other = erasures.whole_story(people)
    # As a worker leaves bytes behind that dies before its commit.
    row = Checkpoint.objects.get(id=run.head)
    payloads.put_payload(
        "cellar",
        payloads.name_of(run.id, row.id, "change"),
        marked("orphan").encode(),
        under="left",
    )
    assert erasures.marks_in(_bytes_of(tmp_path, run)) >= {"orphan", "letter"}
    before = _bytes_of(tmp_path, other)
    retention.erase(run.id, paths, by=people.steward)
    marks = erasures.marks_in(_bytes_of(tmp_path, run))
    assert (
        marks == set()
        if paths is None
        else "letter" in marks
        and marks.isdisjoint({"orphan", "input", "write", "edit"})
    )
    assert _bytes_of(tmp_path, other) == before
    assert verification.verify_run(run.id) == []
    assert verification.verify_run(other.id) == []
    for checkpoint in timeline.list_checkpoints(run.id):
        timeline.state_at(checkpoint.id)


def _bytes_of(folder: Path, run: Run) -> bytes:
    """Every payload file of a run, unpacked as far as it is packed."""
    ordered = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and str(run.id) in str(path)
    )
    data = [path.read_bytes() for path in ordered]
    opened = [
        erasures.unpacked(cell[cell.find(form) :])
        for cell in data
        for form in (b"\x01", b"\x02")
        if form in cell
    ]
    return b"".join([*data, *opened])
