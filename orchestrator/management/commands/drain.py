"""`manage.py drain`: end workers of any host, once they have given their runs back."""

import json
import time
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet

from checkpoints.conf import conf
from checkpoints.db.clock import db_in
from checkpoints.models import Worker
from orchestrator.management import command_line

STALE_SECONDS = 10.0
PATIENCE_SECONDS = 15.0
"""How long to wait for workers beyond the grace period of the runs in hand."""


class Command(command_line.DatabaseCommand):
    """Ends with 0 when all of them have ended."""

    help = (
        "Asks workers to take no new runs, give back what they have in hand, and end. "
        "Waits for that."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--host", help="only the workers of this host; all without it"
        )
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        _require_known(options["host"])
        # A worker without a fresh heartbeat has ended without leaving a note.
        workers = Worker.objects.filter(
            stopped_at=None, heartbeat_at__gt=db_in(-STALE_SECONDS)
        )
        if options["host"]:
            workers = workers.filter(host=options["host"])
        workers.update(draining=True)
        names = {worker.id: str(worker) for worker in workers}

        report = command_line.progress_writer(self, options)
        if names:
            report(f"Draining {', '.join(names.values())}")
        else:
            report("No worker is running.")

        running: list[str] = []
        if names:
            # Not the query above: workers that start meanwhile are not drained.
            running = _wait_for_end(Worker.objects.filter(id__in=names))
        if options["as_json"]:
            result = {"asked": list(names.values()), "running": running}
            self.stdout.write(json.dumps(result, ensure_ascii=False))
        if running:
            raise CommandError(f"still running: {', '.join(running)}")
        if names:
            report("All have ended.")


def _require_known(host: str | None) -> None:
    """Raise `CommandError` for a host that no worker was ever on: a mistyped name. A
    host whose workers have all ended counts as drained.
    """
    hosts = sorted(set(Worker.objects.values_list("host", flat=True)))
    if host and host not in hosts:
        raise CommandError(
            f"no worker was on a host “{host}”; "
            f"those that had one: {', '.join(hosts) or 'none'}"
        )


def _wait_for_end(workers: "QuerySet[Worker]") -> list[str]:
    """Return the workers that are still running when the time is up."""
    until = time.monotonic() + conf().grace_seconds + PATIENCE_SECONDS
    running = workers.filter(stopped_at=None)
    while time.monotonic() < until and running.exists():
        time.sleep(0.2)
    return [str(worker) for worker in running]
