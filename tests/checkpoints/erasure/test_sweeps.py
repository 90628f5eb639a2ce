"""What is erased, or named, outside the sealed rows of a run."""

from pathlib import Path
from typing import Any

import pytest

from checkpoints import retention, verification
from tests.support import cast
from tests.support.full_installation import a_full_run

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_bundle_in_the_archive_is_named_in_the_record(people: cast.People, tmp_path: Path, configure: Any) -> None:
    run = a_full_run(tmp_path, people.reviewer)
    folder = tmp_path / "archive"
    folder.mkdir()
    configure(ARCHIVE_FOLDER=str(folder))
    for name in (f"{run.id}-7.bundle", f"{people.starter.pk}-7.bundle"):
        (folder / name).write_text("")
    assert retention.plan_erasure(run.id).counts["archived bundles"] == 1
    assert retention.erase(run.id, by=people.steward).kept_files == [f"{run.id}-7.bundle"]
    assert verification.verify_run(run.id) == []
