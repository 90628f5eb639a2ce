"""`manage.py run_status RUN`: print where a run stands and what it waits for."""

from argparse import ArgumentParser
from typing import Any

from orchestrator import runs
from orchestrator.management import command_line


class Command(command_line.DatabaseCommand):
    help = (
        "Tell where a run stands. Exit codes: 0 completed or going on, "
        "1 no such run, 3 ended otherwise, 4 stopped."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", help="id or key")
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            run = runs.get(options["run"])
        self.stdout.write(command_line.run_text(run, options))
        code = command_line.exit_code(run.status)
        if code:
            raise SystemExit(code)
