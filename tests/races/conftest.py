"""Tells how often each race is run."""

from tests.races.meeting import TRIALS


def pytest_report_header() -> str:
    return f"races: {TRIALS} trials each"
