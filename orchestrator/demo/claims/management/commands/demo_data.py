"""`manage.py demo_data`: people to log in as and runs to look at. `up --demo` calls it;
repeating it is harmless.
"""

import time
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator import environment
from orchestrator.demo.claims import payments
from orchestrator.demo.people import DemoUser, make_people, sign_in_line
from orchestrator.demo.samples import Sample, start_samples

PAUSE = 0.25
TWO_SIGN = (
    "Two must sign: start account_change as olive, who cannot sign it then;"
    " sign it as rita, and as jonas."
)


class Command(BaseCommand):
    """Refuses to run on a real installation: it prints passwords."""

    help = "Makes the demo's people and starts its runs; what exists is left as it is."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--wait",
            type=float,
            default=20.0,
            help="seconds to wait for a worker to take the new runs (default 20)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Make, start, wait a little, and say where to look."""
        if not (settings.DEBUG or getattr(settings, "DEMO", False)):
            raise CommandError(
                "demo_data makes people with printed passwords: "
                "set COUNTERSIGN_DEMO=true to allow it"
            )
        people = make_people()
        (operator,) = (person.user for person in people if person.role == "operator")
        started = start_samples(operator)
        _wait([run for _, run in started], seconds=options["wait"])
        self._say_runs(started)
        # Last, and in a file: what the web server and the worker log scrolls the
        # terminal.
        self._say_people(people)
        _keep(sign_in_line(people))

    def _say_people(self, people: list[DemoUser]) -> None:
        parts = urlsplit(payments.url())
        site = f"{parts.scheme}://{parts.netloc}"
        self.stdout.write(
            f"\nConsole   {site}/\nReviews   {site}/reviews/\nOutside   {site}/demo/\n\nLog in as"
        )
        for person in people:
            password = person.password or "(changed since)"
            self.stdout.write(
                f"  {person.user.get_username():8} {password:16} {person.role}"
            )
        self.stdout.write("")

    def _say_runs(self, started: list[tuple[Sample, Run]]) -> None:
        self.stdout.write("\nRuns")
        for sample, run in started:
            self.stdout.write(f"  {run.key:14} {run.status:10} {sample.will}")
        self.stdout.write("")
        self.stdout.write(TWO_SIGN)
        if any(run.status == Status.QUEUED for _, run in started):
            self.stdout.write(
                "Some are still queued: they go on as soon as a worker runs."
            )


def _keep(line: str) -> None:
    """Keep the line for the user of this process alone; `up` says it last, and it can
    be looked up later.
    """
    file = environment.sign_ins_file()
    file.touch(mode=0o600)
    file.write_text(f"{line}\n")


def _wait(started: list[Run], *, seconds: float) -> None:
    """Wait until each run rests, or the time is over."""
    until = time.monotonic() + seconds
    while True:
        for run in started:
            run.refresh_from_db(fields=["status"])
        moving = any(
            run.status in (Status.QUEUED, Status.RUNNING, Status.WAITING)
            for run in started
        )
        if not moving or time.monotonic() >= until:
            return
        time.sleep(PAUSE)
