"""`manage.py worker`: take runs and work on them until a signal stops the process."""

import contextlib
import logging
import socket
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import Error, OperationalError

from checkpoints.db.outage import is_outage
from checkpoints.queue import workers
from orchestrator.management.command_line import (
    ClearCommand,
    refuse_older_seals,
    refuse_unmigrated,
)
from orchestrator.worker.configuration import configure
from orchestrator.worker.supervisor import supervise


class Command(ClearCommand):
    """Ends with 0 after SIGTERM or SIGINT, 72 if the runs in hand needed longer than
    the grace period.
    """

    help = (
        "Works on runs. Stop it with SIGTERM or Ctrl-C: "
        "runs in hand are given back first."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--alive",
            action="store_true",
            help="start nothing; end with 0 if a worker of this host is alive, else "
            "with 1: for the probes of containers",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Refuse a configuration that cannot work safely, then supervise workers."""
        if options["alive"]:
            self.stdout.write(_word_of_life())
            return
        try:
            configure()
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
        # The database may still be starting: the supervisor waits for it.
        with contextlib.suppress(OperationalError):
            refuse_unmigrated()
            refuse_older_seals()
        # django-q logs one line for each slice, which is too many to be read.
        logging.getLogger("django-q").setLevel(logging.WARNING)
        code = supervise()
        if code:
            sys.exit(code)


def _word_of_life() -> str:
    """Return the line about a worker of this host that is alive. Raises `CommandError`
    if none is.

    A worker waits for a database that does not answer, and to start it anew would cure
    nothing: it counts as alive.
    """
    try:
        is_alive = workers.any_alive_on(socket.gethostname())
    except Error as error:
        if not is_outage(error):
            raise
        return f"The database does not answer, and workers wait for it: {error}"
    if not is_alive:
        raise CommandError("No worker of this host has sent a heartbeat lately.")
    return "A worker of this host is alive."
