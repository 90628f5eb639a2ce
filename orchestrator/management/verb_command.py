"""The command of a verb that steers a run, made from the table of verbs; and the
options and texts that it shares with other commands of time travel.
"""

import json
from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from orchestrator import runs
from orchestrator.management import command_line
from orchestrator.runs.verb_table import Argument, Kind, Verb

_TARGET_HELP = {
    "run": "id or key",
    "checkpoint": "id or alias, such as CLM-1:step-4",
}
_OVERLAY = ("patch", "answers", "allow_effects")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The run or checkpoint that a verb is called with, its run, and the checkpoint
    from which a plan departs.
    """

    id: UUID | str
    run_id: UUID | None
    departure: UUID | str = ""


class VerbCommand(command_line.DatabaseCommand):
    """Carries out `verb`, or prints its plan."""

    verb: Verb

    def add_arguments(self, parser: ArgumentParser) -> None:
        verb = self.verb
        parser.add_argument(verb.acts_on, help=_TARGET_HELP[verb.acts_on])
        add_options(parser, verb.arguments)
        if verb.travel:
            add_plan(parser)
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        verb = self.verb
        # Files are read before the run is looked up, so that a refusal costs no query.
        values = read_values(verb.arguments, options)
        by = command_line.person(options["by"])
        with command_line.one_clear_line():
            target = self.find_target(by, options)
            # A plan changes nothing, so seeing the run is enough.
            if options.get("plan"):
                plan = plan_text(target.departure, verb, values, options)
                return self.stdout.write(plan)
            command_line.require_right(by, verb.right, run=target.run_id)
            # A rewind has its checkpoint among the arguments.
            if "checkpoint" in values:
                values["checkpoint"] = target.departure
            run = verb.function(target.id, **values, by=by)
        return self.stdout.write(command_line.run_text(run, options))

    def find_target(self, by: Any, options: dict[str, Any]) -> Target:
        """Return the run or checkpoint that is named. Raises `UnknownThing` also if
        this person may not see it.
        """
        if self.verb.acts_on == "checkpoint":
            row = command_line.checkpoint_seen_by(by, options["checkpoint"])
            return Target(id=row.id, run_id=row.run_id, departure=row.id)
        run = command_line.run_seen_by(by, options["run"])
        return Target(id=run.id, run_id=run.id)


def add_options(parser: ArgumentParser, arguments: Iterable[Argument]) -> None:
    """Add the options of these arguments."""
    for argument in arguments:
        settings: dict[str, Any] = {"help": argument.option_help}
        match argument.kind:
            case Kind.FLAG:
                settings["action"] = "store_true"
            case Kind.NODES:
                settings |= {"action": "append", "default": [], "metavar": "NODE"}
            case Kind.OBJECT:
                settings["metavar"] = "FILE"
            case _:
                settings["default"] = argument.default
        parser.add_argument(argument.option, **settings)


def add_plan(parser: ArgumentParser) -> None:
    """Add `--plan`."""
    parser.add_argument(
        "--plan", action="store_true", help="only print what it would do"
    )


def read_values(
    arguments: Iterable[Argument], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the values of the arguments by name, as the verb takes them. Raises
    `CommandError` for a file that cannot be read.
    """
    values: dict[str, Any] = {}
    for argument in arguments:
        value = options[argument.option.lstrip("-").replace("-", "_")]
        if argument.kind is Kind.OBJECT:
            value = command_line.read_object(value, argument.name)
        # The option of a flag that is on by default turns it off.
        elif argument.kind is Kind.FLAG and argument.default:
            value = not value
        values[argument.name] = value
    return values


def plan_text(
    checkpoint: UUID | str,
    verb: Verb,
    values: dict[str, Any],
    options: dict[str, Any],
) -> str:
    """Return the plan of a verb from a checkpoint, for a person, or as JSON for a
    machine.
    """
    overlay = {name: values[name] for name in _OVERLAY if name in values}
    plan = runs.plan(checkpoint, verb.travel or "", **overlay)
    if options["as_json"]:
        return json.dumps(plan.to_json(), ensure_ascii=False)
    return plan.to_text()
