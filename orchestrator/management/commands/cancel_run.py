"""`manage.py cancel_run RUN`: cancel a run."""

from argparse import ArgumentParser
from typing import Any

from orchestrator import runs
from orchestrator.management import command_line


class Command(command_line.DatabaseCommand):
    help = "Cancel a run: at once, or where a worker has it, after the superstep in hand. What it asks is withdrawn."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", help="id or key")
        parser.add_argument("--reason", default="", help="why; stands in its log")
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            by = command_line.person(options["by"])
            run = command_line.run_seen_by(by, options["run"])
            command_line.require_right(by, "steer_run", run=run.id)
            run = runs.cancel(run.id, by=by, reason=options["reason"])
        self.stdout.write(command_line.as_json(run) if options["as_json"] else command_line.as_text(run))
