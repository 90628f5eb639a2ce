"""The crash sweep once more where payloads are in files: two places that must agree
after a crash at any moment.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from checkpoints.models import Checkpoint
from checkpoints.payloads import orphans
from tests.crash import test_sweep
from tests.crash.scenarios import SCENARIOS
from tests.support import cast, run_actions

pytestmark = test_sweep.pytestmark
IN_FILES = (
    "linear",
    "recovery points",
    "effects",
    "gate beside a moving branch",
    "failure",
    "drain",
)


@pytest.mark.parametrize("name", IN_FILES)
def test_a_run_in_files_aborted_at_any_moment_ends_the_same_and_leaves_only_swept_files(
    name: str, tmp_path: Path, people: cast.People, configure: Any, quick: None
) -> None:
    cellar = tmp_path / "cellar"
    scenario = SCENARIOS[name]
    files = {"backend": "files", "options": {"location": str(cellar)}}
    own = {"PAYLOADS": {"cellar": files}, "DEFAULT_PAYLOADS": "cellar"}
    configure(**scenario.settings, **own)
    moments, tried = test_sweep._sweep(
        scenario, run_actions.reviewer(people.reviewer), tmp_path
    )
    print(f"{name}: {moments} moments, {tried} tried")
    assert set(Checkpoint.objects.values_list("backend", flat=True)) == {"cellar"}
    left = _files(cellar) - _pointed()
    assert sum(step.deleted for step in _last_of_sweep()) == len(left)
    assert _files(cellar) == _pointed()


def _files(cellar: Path) -> set[str]:
    return {path.name for path in cellar.rglob("*") if path.is_file()}


def _pointed() -> set[str]:
    """The files that rows point to."""
    return {
        f"{row.id}.{column}.payload"
        for row in Checkpoint.objects.order_by("id")
        for column in orphans.COLUMNS
        if getattr(row, column)
    }


def _last_of_sweep() -> list[orphans.SweepResult]:
    steps = list(
        orphans.delete_orphans(now=timezone.now() + timedelta(days=1, minutes=1))
    )
    return steps[-1:]
