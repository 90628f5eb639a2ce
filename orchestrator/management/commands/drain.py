"""`manage.py drain`: asks workers to give their runs back and end, from any host."""

import json
import time
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet

from checkpoints.conf import conf
from checkpoints.db.clock import db_in
from checkpoints.models import Worker
from orchestrator.management import command_line

STALE_SECONDS = 10.0
PATIENCE_SECONDS = 15.0
"""Beyond the grace of the runs in hand."""


class Command(command_line.DatabaseCommand):
    """Ends with 0 when all of them have ended."""

    help = "Asks workers to take no new runs, give back what they have in hand, and end. Waits for that."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", help="only the workers of this host; all without it")
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Mark them, then wait."""
        _require_known(options["host"])
        workers = Worker.objects.filter(stopped_at=None, heartbeat_at__gt=db_in(-STALE_SECONDS))
        workers = workers.filter(host=options["host"]) if options["host"] else workers
        workers.update(draining=True)
        names = {worker.id: str(worker) for worker in workers}
        say: Callable[[str], None] = (lambda text: None) if options["as_json"] else self.stdout.write
        say(f"Draining {', '.join(names.values())}" if names else "No worker is running.")
        left = _wait(Worker.objects.filter(id__in=names)) if names else []
        if options["as_json"]:
            self.stdout.write(json.dumps({"asked": list(names.values()), "running": left}, ensure_ascii=False))
        if left:
            raise CommandError(f"still running: {', '.join(left)}")
        if names:
            say("All have ended.")


def _require_known(host: str | None) -> None:
    """A host whose workers have all ended is drained; a name that no worker had is a mistake."""
    hosts = sorted(set(Worker.objects.values_list("host", flat=True)))
    if host and host not in hosts:
        raise CommandError(f"no worker was on a host “{host}”; those that had one: {', '.join(hosts) or 'none'}")


def _wait(workers: "QuerySet[Worker]") -> list[str]:
    until = time.monotonic() + conf().grace_seconds + PATIENCE_SECONDS
    while time.monotonic() < until and workers.filter(stopped_at=None).exists():
        time.sleep(0.2)
    return [str(worker) for worker in workers.filter(stopped_at=None)]
