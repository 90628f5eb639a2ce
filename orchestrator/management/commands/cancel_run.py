"""`manage.py cancel_run RUN`: cancel a run."""

from orchestrator.management.verb_command import VerbCommand
from orchestrator.runs import verb_table


class Command(VerbCommand):
    verb = verb_table.CANCEL
    help = verb.command_help
