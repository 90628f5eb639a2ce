"""`manage.py resume_run RUN`: queue a stopped run again."""

from argparse import ArgumentParser
from typing import Any

from checkpoints.models.run_line import Travel
from orchestrator import runs
from orchestrator.management import command_line, travel_options


class Command(command_line.DatabaseCommand):
    help = (
        "Queue a failed run again, or one that stopped before an effect; only tasks without a result run. "
        "A run that waits for people goes on when they sign."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", help="id or key")
        travel_options.add_patch(parser)
        travel_options.add_plan(parser)
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        over = travel_options.patch_and_answers(options)
        with command_line.one_clear_line():
            if options["plan"]:
                head = runs.get(options["run"]).head or ""
                return self.stdout.write(travel_options.plan_text(head, Travel.RESUME, options, over))
            by = command_line.person(options["by"])
            run = runs.resume(options["run"], **over, reason=options["reason"], by=by)
        return self.stdout.write(travel_options.run_text(run, options))
