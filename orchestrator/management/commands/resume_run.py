"""`manage.py resume_run RUN`: queue a stopped run again."""

from typing import Any

from approvals import permissions
from checkpoints import timeline
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.management import command_line
from orchestrator.management.verb_command import Target, VerbCommand
from orchestrator.runs import verb_table


class Command(VerbCommand):
    verb = verb_table.RESUME
    help = verb.command_help

    def find_target(self, by: Any, options: dict[str, Any]) -> Target:
        """Return the run as it was named: the verb itself finds it by its newest
        checkpoint, and a fork that a store made has no row yet.
        """
        reference = options["run"]
        run = None if by is None else _run_seen_by(by, reference)
        if options["plan"]:
            run = run or runs.get(reference)
            return Target(id=reference, run_id=run.id, departure=run.head or "")
        return Target(id=reference, run_id=run.id if run else None)


def _run_seen_by(by: Any, reference: str) -> Run:
    """Return the run of that id or key, or whose checkpoint that is. Raises
    `UnknownThing` if this person sees none.
    """
    checkpoint = timeline.find_checkpoint(reference)
    if checkpoint is not None and permissions.may_see_run(by, checkpoint.run):
        return checkpoint.run
    return command_line.run_seen_by(by, reference)
