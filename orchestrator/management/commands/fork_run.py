"""`manage.py fork_run CHECKPOINT`: start a new run from a checkpoint."""

from orchestrator.management.verb_command import VerbCommand
from orchestrator.runs import verb_table


class Command(VerbCommand):
    verb = verb_table.FORK
    help = verb.command_help
