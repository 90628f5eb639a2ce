"""`manage.py resume_run RUN`: queue a failed run again."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from orchestrator.management import command_line as told
from orchestrator.runs import verbs as runs


class Command(BaseCommand):
    """Resume a failed run."""

    help = "Queue a failed run again; only tasks without a result run. A paused run goes on when people sign."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", help="id or key")
        told.add_by(parser)
        told.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with told.one_clear_line():
            run = runs.resume(options["run"], by=told.person(options["by"]))
        self.stdout.write(told.as_json(run) if options["as_json"] else told.as_text(run))
