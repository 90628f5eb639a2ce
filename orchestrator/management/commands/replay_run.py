"""`manage.py replay_run CHECKPOINT`: run a run again from a checkpoint, without an outside."""

import json
from argparse import ArgumentParser
from typing import Any

from checkpoints.models.run_line import Travel
from orchestrator import runs
from orchestrator.management import command_line, travel_options


class Command(command_line.DatabaseCommand):
    help = "Make a new run from a checkpoint that acts on nothing and asks nobody; --report tells what it came to."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "checkpoint", help="id or alias, such as CLM-1:initial; with --report the id or key of a replay"
        )
        parser.add_argument("--reason", default="", help="why; stands in its log")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--plan", action="store_true", help="only print what it would do")
        which.add_argument("--report", action="store_true", help="what a replay reused, and where it went another way")
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command_line.person(options["by"])
        with command_line.one_clear_line():
            if options["report"]:
                replay = command_line.run_seen_by(by, options["checkpoint"])
                return self.stdout.write(_report_text(runs.replay_report(replay.id), options))
            there = travel_options.departure_for(by, options)
            if options["plan"]:
                return self.stdout.write(travel_options.plan_text(there, Travel.REPLAY, options, {}))
            run = runs.replay(there, reason=options["reason"], by=by)
        return self.stdout.write(travel_options.run_text(run, options))


def _report_text(report: dict[str, Any], options: dict[str, Any]) -> str:
    if options["as_json"]:
        return json.dumps(report, ensure_ascii=False)
    lines = [f"{report['status']}, a replay from {report['origin']['checkpoint']}"]
    lines += [f"Reused: {', '.join(report['reused']) or 'nothing'}"]
    lines += [f"Went another way: {one['task']}, {_why(one)}" for one in report["diverged"]]
    return "\n".join(lines if report["diverged"] else [*lines, "Went another way: nothing"])


def _why(diverged: dict[str, Any]) -> str:
    path = f" at {diverged['path']}" if diverged.get("path") else ""
    words = {"other_input": f"its input is another one{path}", "no_record": "nothing was recorded of it"}
    words |= {"other_memory": f"memory is not what it was{path}"}
    return words.get(str(diverged.get("why")), str(diverged.get("why")))
