"""A backend of files for the tests of this folder, on a disk that a test can fill."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.payloads.backends import Full


@pytest.fixture
def cellar(settings: Any, tmp_path: Path) -> Iterator[Path]:
    """The folder of the backend `cellar`, which the settings then know."""
    entry = {"backend": "tests.payloads.backends.Full", "options": {"location": str(tmp_path)}}
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, "PAYLOADS": {"cellar": entry}}
    yield tmp_path
    Full.left, Full.away = None, False
