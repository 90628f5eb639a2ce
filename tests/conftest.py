"""What every test may ask for."""

import pytest

from tests import cast


@pytest.fixture
def people(db: None) -> cast.People:
    """The cast: see `tests.cast`."""
    return cast.People()
