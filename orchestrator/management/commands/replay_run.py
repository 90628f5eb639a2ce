"""`manage.py replay_run CHECKPOINT`: repeat a run from a checkpoint, without effects on
the outside.
"""

import json
from argparse import ArgumentParser
from typing import Any

from orchestrator import runs
from orchestrator.management import command_line
from orchestrator.management.verb_command import VerbCommand, add_options
from orchestrator.runs import verb_table


class Command(VerbCommand):
    verb = verb_table.REPLAY
    help = verb.command_help

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "checkpoint",
            help="id or alias, such as CLM-1:initial; "
            "with --report the id or key of a replay",
        )
        add_options(parser, self.verb.arguments)
        which = parser.add_mutually_exclusive_group()
        which.add_argument(
            "--plan", action="store_true", help="only print what it would do"
        )
        which.add_argument(
            "--report",
            action="store_true",
            help="what a replay reused, and where it went another way",
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["report"]:
            return super().handle(*args, **options)
        by = command_line.person(options["by"])
        with command_line.one_clear_line():
            replay = command_line.run_seen_by(by, options["checkpoint"])
            report = runs.replay_report(replay.id)
        if options["as_json"]:
            return self.stdout.write(json.dumps(report, ensure_ascii=False))
        return self.stdout.write(_report_text(report))


def _report_text(report: dict[str, Any]) -> str:
    lines = [f"{report['status']}, a replay from {report['origin']['checkpoint']}"]
    lines.append(f"Reused: {', '.join(report['reused']) or 'nothing'}")
    for diverged in report["diverged"]:
        lines.append(f"Went another way: {diverged['task']}, {_reason_of(diverged)}")
    if not report["diverged"]:
        lines.append("Went another way: nothing")
    return "\n".join(lines)


def _reason_of(diverged: dict[str, Any]) -> str:
    path = f" at {diverged['path']}" if diverged.get("path") else ""
    reasons = {
        "other_input": f"its input is another one{path}",
        "no_record": "nothing was recorded of it",
        "other_memory": f"memory is not what it was{path}",
    }
    why = str(diverged.get("why"))
    return reasons.get(why, why)
