"""What the commands that go back in time share: patches, answers, allowed effects, and the plan that they print."""

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from checkpoints.core.strict_json import parse_strict
from orchestrator import runs
from orchestrator.management import command_line


def add_patch(parser: ArgumentParser) -> None:
    """`--patch FILE`, `--allow NODE` and `--reason TEXT`."""
    parser.add_argument(
        "--patch", metavar="FILE", help="JSON: {partition: merge patch or list of operations}; - reads standard input"
    )
    parser.add_argument(
        "--allow", action="append", default=[], metavar="NODE", help="may do again what has happened already"
    )
    parser.add_argument("--reason", default="", help="why; stands in its log")


def add_answers(parser: ArgumentParser) -> None:
    """`--answers FILE`."""
    parser.add_argument(
        "--answers", metavar="FILE", help="JSON: {node: {channel: value}}, decisions of --by on what waits there"
    )


def add_plan(parser: ArgumentParser) -> None:
    """`--plan`."""
    parser.add_argument("--plan", action="store_true", help="only print what it would do")


def read_object(path: str | None, what: str) -> dict[str, Any] | None:
    """The JSON object in a file; None for no file. Raises `CommandError`."""
    if path is None:
        return None
    try:
        given = parse_strict(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read the {what} from {path}: {error}") from error
    if not isinstance(given, dict):
        raise CommandError(f"the {what} in {path} is no JSON object")
    return given


def patch_and_answers(options: dict[str, Any]) -> dict[str, Any]:
    """What the options ask to be laid over a checkpoint, as the verbs take it."""
    found = {"patch": read_object(options["patch"], "patch"), "allow_effects": options["allow"]}
    if "answers" in options:
        found["answers"] = read_object(options["answers"], "answers")
    return found


def departure_for(by: Any, options: dict[str, Any]) -> UUID:
    """The checkpoint that is named, once a person has been asked whether they see it and, unless only its plan is
    wanted, may steer its run. Raises `UnknownThing`, `Forbidden`.
    """
    found = command_line.checkpoint_seen_by(by, options["checkpoint"])
    if not options["plan"]:
        command_line.require_right(by, "steer_run", run=found.run_id)
    return found.id


def plan_text(checkpoint: Any, how: str, options: dict[str, Any], over: dict[str, Any]) -> str:
    """The plan for a person, or as JSON for a machine."""
    plan = runs.plan(checkpoint, how, **over)
    if options["as_json"]:
        return json.dumps(plan.to_json(), ensure_ascii=False)
    return plan.to_text()


def run_text(run: Any, options: dict[str, Any]) -> str:
    """The run that was made or changed."""
    return command_line.as_json(run) if options["as_json"] else command_line.as_text(run)
