"""`manage.py resume_run RUN`: queue a stopped run again."""

from argparse import ArgumentParser
from typing import Any

from approvals import permissions
from checkpoints import timeline
from checkpoints.models import Run
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
        over, by, there = travel_options.patch_and_answers(options), command_line.person(options["by"]), options["run"]
        with command_line.one_clear_line():
            run = None if by is None else _run_seen_by(by, there)
            if options["plan"]:
                head = (run or runs.get(there)).head or ""
                return self.stdout.write(travel_options.plan_text(head, Travel.RESUME, options, over))
            if run is not None:
                command_line.require_right(by, "steer_run", run=run.id)
            run = runs.resume(there, **over, reason=options["reason"], by=by)
        return self.stdout.write(travel_options.run_text(run, options))


def _run_seen_by(by: Any, ref: str) -> Run:
    """The run of that id or key, or whose checkpoint that is. Raises `UnknownThing` where this person sees none."""
    point = timeline.find_checkpoint(ref)
    seen = point is not None and permissions.may_see_run(by, point.run)
    return point.run if point is not None and seen else command_line.run_seen_by(by, ref)
