"""Tells with which seed examples are drawn, and how many."""

from tests.crash.conftest import quick
from tests.properties.drawing import EXAMPLES, SEED

__all__ = ["quick"]


def pytest_report_header() -> str:
    return (
        f"properties: {EXAMPLES} examples each on SQLite, a third on PostgreSQL;"
        f" COUNTERSIGN_SEED={SEED}"
    )
