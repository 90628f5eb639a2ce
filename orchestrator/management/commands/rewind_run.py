"""`manage.py rewind_run RUN CHECKPOINT`: the same run on a new line from an older checkpoint."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from checkpoints.core.ids import unknown_thing
from checkpoints.models.run_line import Travel
from orchestrator import runs
from orchestrator.management import command_line, travel_options


class Command(command_line.DatabaseCommand):
    help = "Let a run go on from an older checkpoint of its own. What came after stays readable; nothing is undone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", help="id or key")
        parser.add_argument("checkpoint", help="id or alias, such as CLM-1:step-4")
        travel_options.add_patch(parser)
        travel_options.add_answers(parser)
        travel_options.add_plan(parser)
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if not (options["reason"] or options["plan"]):
            raise CommandError("a rewind needs a reason: say it with --reason")
        over, by = travel_options.patch_and_answers(options), command_line.person(options["by"])
        with command_line.one_clear_line():
            run = command_line.run_seen_by(by, options["run"])
            there = command_line.checkpoint_seen_by(by, options["checkpoint"])
            if there.run_id != run.id:
                raise unknown_thing("checkpoint of this run", options["checkpoint"])
            if options["plan"]:
                return self.stdout.write(travel_options.plan_text(there.id, Travel.REWIND, options, over))
            command_line.require_right(by, "steer_run", run=run.id)
            run = runs.rewind(run.id, there.id, **over, reason=options["reason"], by=by)
        return self.stdout.write(travel_options.run_text(run, options))
