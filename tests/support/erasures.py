"""A whole story whose every place holds a mark of its own (`secret_claim.marked`), and
what a search finds of them.
"""

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import zstandard
from django.contrib.auth.models import Group
from django.core.files.storage import default_storage

from approvals import reviews
from checkpoints import uploads
from checkpoints.core import codec
from checkpoints.core.status import Status
from checkpoints.erasure import erasure_job
from checkpoints.models import ErasureRecord, Job, LateResult, Run
from checkpoints.queue import jobs
from orchestrator import runs
from tests.support import cast, dump
from tests.support.processes import until
from tests.support.run_actions import pending
from tests.support.secret_claim import BATCH, broken, marked


def whole_story(people: cast.People, **fields: Any) -> Run:
    """A start, a gate with an edit, a failure, an unknown outcome with a late result,
    settling, the end.
    """
    people.reviewer.groups.add(Group.objects.get_or_create(name="claims")[0])
    run_input = {
        "number": "7",
        "person": marked("input"),
        "branch": marked("fact"),
        **fields,
    }
    run = runs.start(
        "secret_claim",
        run_input,
        by=people.starter,
        metadata={"about": marked("metadata")},
    )
    assert runs.advance(run.id).status == Status.PAUSED
    _decide(run, people)
    broken.add("fragile")
    assert runs.advance(run.id).status == Status.FAILED
    broken.clear()
    runs.resume(run.id, by=people.starter)
    assert runs.advance(run.id).status == Status.UNKNOWN
    until(
        lambda: LateResult.objects.filter(run=run).exists(),
        what="the late result",
        seconds=10,
    )
    output = {"sent": marked("output")}
    runs.settle(
        run.id,
        "send:1:0",
        happened=True,
        output=output,
        by=people.steward,
        reason=marked("settling"),
    )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    return run


def _decide(run: Run, people: cast.People) -> None:
    """Edit the payout, approve the letter, reject the note; with a draft before."""
    content: list[dict[str, Any]] = [
        {
            "verdict": "edit",
            "value": {"to": "Ada", "memo": marked("edit")},
            "reason": marked("why"),
        },
        {"verdict": "approve", "reason": marked("reason")},
        {"verdict": "reject", "reason": marked("refusal")},
    ]
    rows = pending(run)
    items = [
        {"write": str(row.write), "hash": row.hash, **verdict}
        for row, verdict in zip(rows, content, strict=True)
    ]
    reviews.sign(run.id, items, by=people.reviewer)


def marks_in(data: bytes) -> set[str]:
    """The places whose marks stand in these bytes, plain or packed."""
    # A search keeps bare words.
    return {
        name.decode()
        for name in re.findall(rf"mark[- ]{BATCH}[- ]([a-z]+)[- ]end".encode(), data)
    }


def everything() -> bytes:
    """The database as bytes, every payload unpacked, and every file of the storage."""
    files = b"".join(path.read_bytes() for path in _files())
    return (
        dump.of_database()
        + b"".join(unpacked(data) for _, _, data in dump.payloads())
        + files
    )


def _files() -> list[Path]:
    folder = Path(default_storage.path(""))
    return [path for path in folder.rglob("*") if path.is_file()]


def unpacked(data: bytes) -> bytes:
    """Return what a payload's bytes hold; themselves where they are not packed."""
    try:
        return codec.unpack(data)
    except (ValueError, zstandard.ZstdError):
        return data


def upload(text: str, by: Any) -> dict[str, Any]:
    """A file with this text, as an input names it."""
    return uploads.save_upload(
        BytesIO(text.encode()), name=f"{marked('filename')}.txt", by=by
    )


def worked_until(record: ErasureRecord, note: str) -> Job:
    """The job of an erasure that was begun, its work done up to the first step with
    this note, and given back there.
    """
    job = Job.objects.get(kind=erasure_job.KIND, facts__record=str(record.id))
    epoch = jobs.claim_one(job.id)
    assert epoch is not None
    lease = jobs.begin_job(job.id, epoch)
    assert lease is not None
    for step in erasure_job.erase_job(lease):
        jobs.report(lease, step)
        if step.note == note:
            jobs.give_back(lease)
            return job
    raise AssertionError(f"no step of the erasure is called {note}")
