"""`manage.py check_versions`: what a deployment of this code will do to the runs that are under way."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from checkpoints.core.visible_text import visible_text
from orchestrator.engine import registry
from orchestrator.engine.differences import WEIGHTS
from orchestrator.engine.judgement import GOES_ON, MIGRATED, NEEDS_MIGRATION, STUCK, WARNED
from orchestrator.management import command_line
from orchestrator.runs.forecast import STAYS, VERDICTS, Group, forecast_runs

NEEDS_MIGRATION_CODE, STUCK_CODE = 3, 4
WORDS = {
    STAYS: "end on their own version, which is registered here too",
    GOES_ON: "go on",
    WARNED: "go on, with a warning",
    MIGRATED: "go on by a migration",
    NEEDS_MIGRATION: "need a migration",
    STUCK: "are stuck",
}

SIGNED = (
    "hold values that people sign, at a gate that is not here as strict any more: a migration must not change these, or"
    " their runs stop"
)
WAITING = "have values that wait to be written: a migration that changes what such a value means stops their runs"
RAISE = (
    "raise the version: this one is called {} too, so no migration can lead to it, and the old one cannot be registered"
    " beside it"
)


class Command(command_line.DatabaseCommand):
    """Ends with 0 where every run goes on, 3 where some need a migration, 4 where some are stuck; 1 is a refusal."""

    help = (
        "Before a deployment: run this with the new code against the database. It says how many runs go on with it, "
        "and why others do not. Changes nothing. Exit codes: 0 all go on, 3 some need a migration, 4 some are stuck."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--output", metavar="FILE", help="write the report there too, as JSON")
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        report = report_of(forecast_runs())
        text = json.dumps(report, ensure_ascii=False)
        if options["output"]:
            try:
                Path(options["output"]).write_text(text + "\n", encoding="utf-8")
            except OSError as error:
                raise CommandError(f"the report cannot be written: {error}") from error
        self.stdout.write(text if options["as_json"] else "\n".join(lines_of(report)))
        if report["runs"][STUCK] or report["runs"][NEEDS_MIGRATION]:
            code = STUCK_CODE if report["runs"][STUCK] else NEEDS_MIGRATION_CODE
            number = report["runs"][STUCK] + report["runs"][NEEDS_MIGRATION]
            raise CommandError(f"{number} of {report['checked']} runs cannot go on with this code", returncode=code)


def report_of(groups: list[Group]) -> dict[str, Any]:
    """{at, checked, runs: {verdict: number}, graphs: [{graph, version, runs, groups}]}."""
    names = list(dict.fromkeys(group.graph for group in groups))
    here = {compiled.name for compiled in registry.all()}
    graphs = []
    for name in names:
        own = [group for group in groups if group.graph == name]
        version = registry.current(name).version if name in here else None
        graphs.append({"graph": name, "version": version, "runs": _counts(own), "groups": [g.to_json() for g in own]})
    at = timezone.now().isoformat()
    return {"at": at, "checked": sum(g.number for g in groups), "runs": _counts(groups), "graphs": graphs}


def _counts(groups: list[Group]) -> dict[str, int]:
    return {verdict: sum(g.number for g in groups if g.judgement.verdict == verdict) for verdict in VERDICTS}


def lines_of(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    lines = []
    for graph in report["graphs"]:
        here = f"version {graph['version']} is here" if graph["version"] else "not registered here"
        lines.append(f"{visible_text(graph['graph'])}: {sum(graph['runs'].values())} unfinished, {here}")
        for group in graph["groups"]:
            by = f" ({', '.join(group['migrations'])})" if group["verdict"] == MIGRATED else ""
            lines.append(f"  {group['runs']} of version {visible_text(group['version'])} {WORDS[group['verdict']]}{by}")
            if group["signed"]:
                lines.append(f"    {group['signed']} of them {SIGNED}")
            if group["waiting"]:
                lines.append(f"    {group['waiting']} of them {WAITING}")
            if group["same_version"]:
                lines.append(f"    {RAISE.format(visible_text(group['version']))}")
            said = [f"{weight}: {words}" for weight in WEIGHTS for words in group[weight]]
            lines += [f"    {visible_text(one)}" for one in said]
            if group["examples"]:  # Of runs that moved meanwhile there may be none.
                lines.append(f"    for example {', '.join(group['examples'])}")
    return lines or ["No run is under way."]
