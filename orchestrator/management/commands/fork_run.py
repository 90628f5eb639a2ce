"""`manage.py fork_run CHECKPOINT`: a new run from a checkpoint."""

from argparse import ArgumentParser
from typing import Any

from checkpoints.models.run_line import Travel
from orchestrator import runs
from orchestrator.management import command_line, travel_options


class Command(command_line.DatabaseCommand):
    help = "Start a new run from a checkpoint, its state patched. The run that it comes from stays as it is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("checkpoint", help="id or alias, such as CLM-1:step-4")
        travel_options.add_patch(parser)
        travel_options.add_answers(parser)
        parser.add_argument("--key", help="the new run's key; without it, one made from the origin's")
        parser.add_argument("--paused", action="store_true", help="it waits until it is resumed")
        travel_options.add_plan(parser)
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        over, by = travel_options.patch_and_answers(options), command_line.person(options["by"])
        with command_line.one_clear_line():
            there = travel_options.departure_for(by, options)
            if options["plan"]:
                return self.stdout.write(travel_options.plan_text(there, Travel.FORK, options, over))
            more = {"key": options["key"], "start": not options["paused"], "reason": options["reason"]}
            run = runs.fork(there, **over, **more, by=by)
        return self.stdout.write(travel_options.run_text(run, options))
