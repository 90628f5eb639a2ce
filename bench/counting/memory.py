"""The memory of processes as the kernel counts it: what several share is divided among
them (PSS). Linux only.
"""

from pathlib import Path

PROC = Path("/proc")


def megabytes_of(session: int) -> float:
    """Return the megabytes of all processes of a session."""
    kilobytes = 0
    for process in PROC.glob("[0-9]*"):
        try:
            if _session_of(process) == session:
                kilobytes += _kilobytes_of(process)
        except (FileNotFoundError, ProcessLookupError):
            # It has ended meanwhile.
            continue
    return kilobytes / 1000


def _session_of(process: Path) -> int:
    # The name, in brackets, may have spaces; the session is the fourth field after it.
    _, _, fields = (process / "stat").read_text().rpartition(")")
    return int(fields.split()[3])


def _kilobytes_of(process: Path) -> int:
    for line in (process / "smaps_rollup").read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == "Pss":
            return int(amount.split()[0])
    return 0
