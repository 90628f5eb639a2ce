"""What tests of erasures share."""

from pathlib import Path

import pytest

from checkpoints.models import Run
from tests.support import cast
from tests.support.full_installation import a_full_run


@pytest.fixture
def run(people: cast.People, tmp_path: Path) -> Run:
    """A small run that has ended, with a row in every table."""
    return a_full_run(tmp_path, people.reviewer)
