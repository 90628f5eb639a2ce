"""`manage.py export_run RUN FILE`: write the signed bundle of a run."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from checkpoints import bundle
from orchestrator.management import command_line


class Command(command_line.DatabaseCommand):
    help = (
        "Write a run to a signed bundle, that anybody verifies offline "
        "and trusted installations take in."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", help="id or key")
        parser.add_argument("file", help="where to; a file of that name is replaced")
        parser.add_argument(
            "--as-is",
            action="store_true",
            help="also a run that does not verify, which the bundle says",
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            by = command_line.actor(options, "export_run")
            run = command_line.run_seen_by(by, options["run"])
            try:
                exported = bundle.export(
                    run.id, options["file"], by=by, as_is=options["as_is"]
                )
            except OSError as error:
                raise CommandError(
                    f"cannot write {options['file']}: {error}"
                ) from error

        if options["as_json"]:
            facts = {
                "run": str(run.id),
                "lines": exported.lines,
                "bytes": exported.size,
                "faults": list(exported.faults),
            }
            return self.stdout.write(json.dumps(facts, ensure_ascii=False))
        text = (
            f"{options['file']}: {exported.lines} lines, {exported.size:,} bytes, "
            f"signed with {bundle.public_key().hex()}"
        )
        if exported.faults:
            text += f"\nas it is, for it does not verify: {exported.faults[0]}"
        return self.stdout.write(text)
