"""The runs that the demo starts with, one for each state that a run can soon be in.
`manage.py demo_data` starts them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.contrib.auth.models import AbstractUser

from checkpoints import uploads
from checkpoints.models import Run
from orchestrator import runs

_HERE = Path(__file__).parent
CLAIMS = _HERE / "claims" / "data"
IMPORTS = _HERE / "imports" / "data"


@dataclass(frozen=True, slots=True)
class Sample:
    """One run to start: its key, its graph, the file, the input's field for it, and the
    rest of the input.
    """

    key: str
    graph: str
    file: Path
    field: str
    rest: dict[str, Any]
    will: str


def _claim(number: int, amount: str, will: str, *, file: str = "") -> Sample:
    claim_id = f"CLM-{number}"
    path = CLAIMS / (file or f"{claim_id}.json")
    return Sample(
        claim_id,
        "claim_payout",
        path,
        "claim_file",
        {"claim_id": claim_id, "amount": amount},
        will,
    )


SAMPLES = (
    _claim(118851, "469.90", "is small and pays itself"),
    _claim(118894, "362.00", "is small and pays itself, to an account that was closed"),
    _claim(118872, "180.00", "is refused: within the excess"),
    _claim(118870, "2288.00", "is refused: the fraud score is high"),
    _claim(118834, "4862.50", "waits for a review, after asking for photographs"),
    _claim(118867, "11530.00", "waits for a review"),
    _claim(118880, "2630.00", "waits for a review, after asking for photographs"),
    _claim(
        118899, "4862.50", "fails: its file is broken", file="CLM-118899-broken.json"
    ),
    Sample(
        "rows-2026-11",
        "csv_import",
        IMPORTS / "messy.csv",
        "rows",
        {},
        "waits for 24 corrections to be decided",
    ),
)


def start_samples(by: AbstractUser) -> list[tuple[Sample, Run]]:
    """Start the samples that have not been started before. A key that is taken stays
    with the run that has it.
    """
    keys = [sample.key for sample in SAMPLES]
    runs_by_key = {run.key: run for run in Run.objects.filter(key__in=keys)}
    return [
        (sample, runs_by_key.get(sample.key) or _start(sample, by))
        for sample in SAMPLES
    ]


def _start(sample: Sample, by: AbstractUser) -> Run:
    with sample.file.open("rb") as file:
        ref = uploads.save_upload(file, name=sample.file.name, by=by)
    return runs.start(
        sample.graph, {**sample.rest, sample.field: ref}, key=sample.key, by=by
    )
