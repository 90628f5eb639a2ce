"""`manage.py cancel_run RUN`: cancel a run."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from orchestrator.management import command_line as told
from orchestrator.runs import verbs as runs


class Command(BaseCommand):
    """Cancel a run."""

    help = "Cancel a run: at once, or where a worker has it, after the superstep in hand. What it asks is withdrawn."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", help="id or key")
        parser.add_argument("--reason", default="", help="why; stands in its log")
        told.add_by(parser)
        told.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with told.one_clear_line():
            run = runs.cancel(options["run"], by=told.person(options["by"]), reason=options["reason"])
        self.stdout.write(told.as_json(run) if options["as_json"] else told.as_text(run))
