"""`manage.py import_run FILE`: import a run from its bundle."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from checkpoints import bundle
from orchestrator.management import command_line


class Command(command_line.DatabaseCommand):
    help = (
        "Take in a bundle that a trusted key signed. "
        "The run can be read and forked, nothing else."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="the bundle")
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            by = command_line.actor(options, "import_run")
            try:
                run = bundle.load(options["file"], by=by)
            except OSError as error:
                raise CommandError(f"cannot read {options['file']}: {error}") from error
        self.stdout.write(command_line.run_text(run, options))
