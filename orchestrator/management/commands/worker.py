"""`manage.py worker`: take runs and work on them until a signal stops the process."""

import logging
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

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

    def handle(self, *args: Any, **options: Any) -> None:
        """Refuse a configuration that cannot work safely, then supervise workers."""
        try:
            configure()
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
        # django-q logs one line for each slice, which is too many to be read.
        logging.getLogger("django-q").setLevel(logging.WARNING)
        # The database may still be starting: the supervisor waits for it.
        code = supervise(_refuse_database)
        if code:
            sys.exit(code)


def _refuse_database() -> None:
    refuse_unmigrated()
    refuse_older_seals()
