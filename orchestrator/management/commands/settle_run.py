"""`manage.py settle_run RUN TASK`: record whether an effect with an unknown outcome
happened.
"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from checkpoints.core.strict_json import parse_strict
from orchestrator import runs
from orchestrator.management import command_line


class Command(command_line.DatabaseCommand):
    help = (
        "Settle a task with an unknown outcome: it happened, with this output, "
        "or it did not and runs again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", help="id or key")
        parser.add_argument("task", help="node:visit:index")
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--happened", action="store_true", help="it happened")
        which.add_argument(
            "--did-not", action="store_true", help="it did not happen; it runs again"
        )
        parser.add_argument(
            "--output",
            metavar="FILE",
            help="with --happened: what it returned, as JSON",
        )
        parser.add_argument("--reason", required=True, help="how you know")
        parser.add_argument(
            "--accept-risk",
            action="store_true",
            help="with --did-not: only time says it is over; yes",
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["did_not"] and options["output"]:
            raise CommandError("--output goes with --happened")
        output = _read_output(options["output"])
        with command_line.one_clear_line():
            by = command_line.person(options["by"])
            # First, so that a run which may not be seen is unknown and not forbidden.
            run = command_line.run_seen_by(by, options["run"])
            command_line.require_right(by, "settle_task", run=run.id)
            run = runs.settle(
                run.id,
                options["task"],
                happened=options["happened"],
                output=output,
                accept_risk=options["accept_risk"],
                by=by,
                reason=options["reason"],
            )
        self.stdout.write(command_line.run_text(run, options))


def _read_output(path: str | None) -> Any:
    if path is None:
        return None
    try:
        return parse_strict(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read the output from {path}: {error}") from error
