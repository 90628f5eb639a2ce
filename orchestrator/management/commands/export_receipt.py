"""`manage.py export_receipt DECISION FILE`: write one decision to a signed file."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from approvals.exported_receipt import export_receipt
from checkpoints.bundle.exporter import written_whole
from orchestrator.management import command_line


class Command(command_line.DatabaseCommand):
    help = (
        "Write one decision to a signed file: who, when, what was seen, "
        "and what came of it (a DSSE envelope)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "decision", help="its id, as the API lists the decisions of a run"
        )
        parser.add_argument("file", help="where to; a file of that name is replaced")
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            by = command_line.person(options["by"])
            data = export_receipt(options["decision"], by=by)
        try:
            with written_whole(options["file"]) as file:
                file.write(data)
        except OSError as error:
            raise CommandError(f"cannot write {options['file']}: {error}") from error
        if options["as_json"]:
            text = json.dumps({"file": options["file"], "bytes": len(data)})
        else:
            text = f"{options['file']}: {len(data):,} bytes"
        self.stdout.write(text)
