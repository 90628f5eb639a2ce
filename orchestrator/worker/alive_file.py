"""The file by whose age a container sees that the main process of its worker is alive
(deploy/healthy.py). Looking at it takes no database and no Django.
"""

import os
import time
from pathlib import Path
from typing import Self

import structlog

VARIABLE = "COUNTERSIGN_ALIVE_FILE"
"""Names the file. It is read from the environment in a host project, too: the entry of
the image sets it, and its probe looks there, whatever the settings are.
"""
TOUCH_SECONDS = 1.0

log = structlog.get_logger(__name__)


class AliveFile:
    """The file of one worker. Only loops of the main process touch it, and no thread or
    timer, so that it grows old where one of them hangs.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._next = 0.0

    @classmethod
    def from_environment(cls) -> Self:
        """Return the file that the environment names. Without one nothing is touched."""
        name = os.environ.get(VARIABLE, "").strip()
        return cls(Path(name) if name else None)

    def touch(self) -> None:
        """Make the file as young as this moment, at most once a second."""
        if self._path is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + TOUCH_SECONDS
        try:
            self._path.touch()
        except OSError as error:
            # The runs go on; the line says why the probe fails.
            log.warning(
                "alive_file_not_touched", path=str(self._path), error=error.strerror
            )
