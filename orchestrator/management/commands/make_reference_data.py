"""`manage.py make_reference_data`: fill an empty database, to measure beside many rows."""

import time
from argparse import ArgumentParser
from typing import Any

from checkpoints.core.plural import counted
from checkpoints.db.caller_transaction import refuse_open_transaction
from orchestrator.management import command_line, reference_data

EVERY_SECONDS = 10.0
"""How often the progress is written."""


class Command(command_line.DatabaseCommand):
    """Ends with 1 where the database has runs."""

    help = (
        "Fill an empty database with runs, requests and decisions of several graphs "
        "and ages, to measure what a page, a list or the queue costs beside them. Each "
        "run verifies."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--runs",
            type=int,
            default=1_000_000,
            help="how many runs (default 1,000,000)",
        )
        parser.add_argument(
            "--no-large",
            action="store_true",
            help="without the long run, the large state and the large reviews",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            refuse_open_transaction("make_reference_data")
            began = time.monotonic()
            self._make(options["runs"], large=not options["no_large"])
            seconds = time.monotonic() - began
            count = counted(options["runs"], "run")
            self.stdout.write(f"Made {count} in {seconds:,.0f} s.")

    def _make(self, count: int, *, large: bool) -> None:
        written_at = time.monotonic()
        for number in reference_data.ReferenceData().grow(count):
            if time.monotonic() - written_at > EVERY_SECONDS:
                written_at = time.monotonic()
                self.stdout.write(f"{number:,} of {count:,} runs")
        if large:
            reference_data.make_large_runs()
