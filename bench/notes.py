"""Lines that nodes leave in a file, one write each: proof across processes of what ran,
how often and when.
"""

import os
import time
from typing import Any


def note(path: str, what: Any) -> None:
    """Note an event with its moment, by the clock that all processes of a machine
    share.
    """
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{time.monotonic_ns()} {what}\n".encode())
    os.close(handle)
