"""`manage.py resume_run RUN`: queue a failed run again."""

from argparse import ArgumentParser
from typing import Any

from orchestrator import runs
from orchestrator.management import command_line


class Command(command_line.DatabaseCommand):
    help = "Queue a failed run again; only tasks without a result run. A paused run goes on when people sign."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", help="id or key")
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            run = runs.resume(options["run"], by=command_line.person(options["by"]))
        self.stdout.write(command_line.as_json(run) if options["as_json"] else command_line.as_text(run))
