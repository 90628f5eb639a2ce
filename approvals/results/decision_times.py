"""How long people took to settle requests, counted in this web process from the first
scrape on. The figures of a gate read the same from rows, by gate and for longer.
"""

from datetime import timedelta

from checkpoints.core.histogram import Histogram

BOUNDS = (
    60.0,
    300.0,
    900.0,
    3_600.0,
    14_400.0,
    28_800.0,
    86_400.0,
    259_200.0,
    604_800.0,
)
"""From a minute to a week, in seconds."""

histogram: Histogram | None = None
"""The histogram of this process; None until it is scraped."""


def keep() -> Histogram:
    """Return the histogram of this process, and count from now on."""
    global histogram
    if histogram is None:
        histogram = Histogram(BOUNDS)
    return histogram


def add(waited: timedelta) -> None:
    """Count a request that was settled by people after this time."""
    if histogram is not None:
        histogram.add(waited.total_seconds())
