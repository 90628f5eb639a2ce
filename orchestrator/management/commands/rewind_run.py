"""`manage.py rewind_run RUN CHECKPOINT`: continue a run on a new line from an older
checkpoint.
"""

from typing import Any

from django.core.management.base import CommandError

from checkpoints.core.ids import unknown_thing
from orchestrator.management import command_line
from orchestrator.management.verb_command import Target, VerbCommand
from orchestrator.runs import verb_table


class Command(VerbCommand):
    verb = verb_table.REWIND
    help = verb.command_help

    def handle(self, *args: Any, **options: Any) -> None:
        # A plan needs no reason, so the option cannot be required by the parser.
        if not options["reason"] and not options["plan"]:
            raise CommandError("a rewind needs a reason: say it with --reason")
        super().handle(*args, **options)

    def find_target(self, by: Any, options: dict[str, Any]) -> Target:
        """Return the run, and its checkpoint to which it goes back."""
        run = command_line.run_seen_by(by, options["run"])
        alias = options["checkpoint"]
        checkpoint = command_line.checkpoint_seen_by(by, alias)
        if checkpoint.run_id != run.id:
            raise unknown_thing("checkpoint of this run", alias)
        return Target(
            id=run.id,
            run_id=run.id,
            departure=checkpoint.id,
        )
