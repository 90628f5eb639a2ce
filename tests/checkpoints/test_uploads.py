"""A file is what the run was started with, or nobody reads it."""

import tracemalloc
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import FileSystemStorage
from django.db import connection
from django.db.models import F
from pydantic import BaseModel

from checkpoints import uploads, verification
from checkpoints.models import Run, Upload
from checkpoints.verification import EXAMINERS, Fault, Subject, verify_run
from orchestrator import runs
from orchestrator.engine import END, START, FileRef, Graph, registry
from orchestrator.engine.errors import TamperedUpload

pytestmark = pytest.mark.django_db(transaction=True)


class Input(BaseModel):
    """A file."""

    rows: FileRef


class State(BaseModel):
    """What was read of it."""

    content: str = ""


@pytest.fixture(autouse=True)
def storage(tmp_path: Path, settings: Any) -> Path:
    settings.MEDIA_ROOT = tmp_path
    graph = Graph("reading", input=Input, state=State)

    @graph.node(effect="read")
    def look(state: State, ctx: Any) -> dict[str, Any]:
        with uploads.open_ref(ctx.input.rows) as file:
            return {"content": file.read().decode()}

    graph.edge(START, "look")
    graph.edge("look", END)
    registry.replace(graph)
    return tmp_path


def _saved(data: bytes) -> tuple[dict[str, Any], Path]:
    """The reference to a saved file, and where its bytes are."""
    ref = uploads.save_upload(BytesIO(data), name="rows.csv", by=None)
    return ref, Path(
        str(uploads.default_storage.path(Upload.objects.get(id=ref["file"]).stored_as))
    )


def test_other_bytes_of_the_same_length_are_refused_and_so_are_fewer_and_more() -> None:
    ref, file = _saved(b"id,amount\n1,10\n")
    for forged in (b"id,amount\n1,99\n", b"id,amount\n", b"id,amount\n1,10\n2,99\n"):
        file.write_bytes(forged)
        with pytest.raises(TamperedUpload):
            uploads.open_ref(ref)


def test_a_run_that_opens_a_changed_file_stops_as_tampered_and_goes_on_when_it_is_put_back() -> (
    None
):
    ref, file = _saved(b"id,amount\n1,10\n")
    run = runs.start("reading", {"rows": ref})
    assert verify_run(run.id) == []
    file.write_bytes(b"id,amount\n1,99\n")
    (fault,) = verify_run(run.id)
    assert fault.code == "tampered_upload"
    assert fault.what == f"checkpoints_upload {ref['file']}"
    stopped = runs.advance(run.id)
    assert stopped.status == "tampered"
    assert stopped.error_code == "tampered_upload"
    with pytest.raises(TamperedUpload):
        runs.resume(run.id)
    file.write_bytes(b"id,amount\n1,10\n")
    runs.resume(run.id)
    assert runs.advance(run.id).status == "completed"


def test_a_file_that_is_gone_is_named_by_verification() -> None:
    ref, file = _saved(b"1")
    run = runs.start("reading", {"rows": ref})
    file.unlink()
    assert [(fault.code, fault.what) for fault in verify_run(run.id)] == [
        ("payload_lost", f"checkpoints_upload {ref['file']}")
    ]


def test_no_file_is_read_while_verification_holds_the_runs_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ref, file = _saved(b"id,amount\n1,10\n")
    run = runs.start("reading", {"rows": ref})
    file.write_bytes(b"id,amount\n1,99\n")
    Run.objects.filter(id=run.id).update(input_hash="forged")
    held = list[bool]()
    opened = FileSystemStorage._open

    def moving(subject: Subject) -> Iterator[Fault]:
        Run.objects.filter(id=subject.run.id).update(wakes=F("wakes") + 1)
        yield from ()

    def noted(storage: FileSystemStorage, *named: Any) -> Any:
        held.append(connection.in_atomic_block)
        return opened(storage, *named)

    monkeypatch.setattr(verification, "EXAMINERS", [*EXAMINERS, moving])
    monkeypatch.setattr(FileSystemStorage, "_open", noted)
    assert [fault.code for fault in verify_run(run.id)][-1] == "tampered_upload"
    assert held == [False], "read once, and outside of any transaction"


def test_opening_and_verifying_take_little_memory_whatever_the_size() -> None:
    ref, _ = _saved(b"0123456789abcdef" * (2 * 1024 * 1024))
    tracemalloc.start()
    try:
        uploads.verify_ref(ref)
        with uploads.open_ref(ref) as file:
            assert file.read(4) == b"0123"
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 8 * 1024 * 1024
