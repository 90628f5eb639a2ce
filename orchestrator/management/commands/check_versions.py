"""`manage.py check_versions`: forecast what a deployment of this code will do to the
runs that are under way.
"""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from checkpoints.core.visible_text import visible_text
from orchestrator.engine import registry
from orchestrator.engine.versions.differences import WEIGHTS
from orchestrator.engine.versions.judgement import (
    GOES_ON,
    MIGRATED,
    NEEDS_MIGRATION,
    STUCK,
    WARNED,
)
from orchestrator.management import command_line
from orchestrator.runs.forecast import STAYS, VERDICTS, RunGroup, forecast_runs

NEEDS_MIGRATION_CODE = 3
STUCK_CODE = 4
WORDS = {
    STAYS: "end on their own version, which is registered here too",
    GOES_ON: "go on",
    WARNED: "go on, with a warning",
    MIGRATED: "go on by a migration",
    NEEDS_MIGRATION: "need a migration",
    STUCK: "are stuck",
}

SIGNED = (
    "hold values that people sign, at a gate that is not here as strict any more: "
    "a migration must not change these, or their runs stop"
)
WAITING = (
    "have values that wait to be written: "
    "a migration that changes what such a value means stops their runs"
)
RAISE = (
    "raise the version: this one is called {} too, so no migration can lead to it, "
    "and the old one cannot be registered beside it"
)


class Command(command_line.DatabaseCommand):
    """Ends with 0 if every run goes on, 3 if some need a migration, 4 if some are
    stuck; 1 is a refusal.
    """

    help = (
        "Before a deployment: run this with the new code against the database. "
        "It says how many runs go on with it, and why others do not. "
        "Changes nothing. Exit codes: 0 all go on, 3 some need a migration, "
        "4 some are stuck."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--output", metavar="FILE", help="write the report there too, as JSON"
        )
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        report = report_of(forecast_runs())
        text = json.dumps(report, ensure_ascii=False)
        # Before the command can fail, for the report gives the reasons.
        if options["output"]:
            try:
                Path(options["output"]).write_text(text + "\n", encoding="utf-8")
            except OSError as error:
                raise CommandError(f"the report cannot be written: {error}") from error
        if not options["as_json"]:
            text = "\n".join(lines_of(report))
        self.stdout.write(text)

        stuck = report["runs"][STUCK]
        cannot_go_on = stuck + report["runs"][NEEDS_MIGRATION]
        if cannot_go_on:
            raise CommandError(
                f"{cannot_go_on} of {report['checked']} runs cannot go on "
                "with this code",
                returncode=STUCK_CODE if stuck else NEEDS_MIGRATION_CODE,
            )


def report_of(groups: list[RunGroup]) -> dict[str, Any]:
    """Return {at, checked, runs: {verdict: number},
    graphs: [{graph, version, runs, groups}]}.
    """
    registered = {compiled.name for compiled in registry.all()}
    groups_by_graph: dict[str, list[RunGroup]] = {}
    for group in groups:
        groups_by_graph.setdefault(group.graph, []).append(group)

    graphs: list[dict[str, Any]] = []
    for name, groups_of_graph in groups_by_graph.items():
        # The new code may have dropped the graph.
        version = None
        if name in registered:
            version = registry.current(name).version
        graphs.append(
            {
                "graph": name,
                "version": version,
                "runs": _counts(groups_of_graph),
                "groups": [group.to_json() for group in groups_of_graph],
            }
        )
    return {
        "at": timezone.now().isoformat(),
        "checked": sum(group.number for group in groups),
        "runs": _counts(groups),
        "graphs": graphs,
    }


def _counts(groups: list[RunGroup]) -> dict[str, int]:
    """Return how many runs have each verdict."""
    counts = dict.fromkeys(VERDICTS, 0)
    for group in groups:
        counts[group.judgement.verdict] += group.number
    return counts


def lines_of(report: dict[str, Any]) -> list[str]:
    """Return the lines of the report for people."""
    lines = []
    for graph in report["graphs"]:
        lines.append(_line_of_graph(graph))
        for group in graph["groups"]:
            lines += _lines_of_group(group)
    return lines or ["No run is under way."]


def _line_of_graph(graph: dict[str, Any]) -> str:
    registered = "not registered here"
    if graph["version"]:
        registered = f"version {graph['version']} is here"
    unfinished = sum(graph["runs"].values())
    return f"{visible_text(graph['graph'])}: {unfinished} unfinished, {registered}"


def _lines_of_group(group: dict[str, Any]) -> list[str]:
    """Return the lines about the runs of one version that share a verdict."""
    version = visible_text(group["version"])
    first = f"  {group['runs']} of version {version} {WORDS[group['verdict']]}"
    if group["verdict"] == MIGRATED:
        first += f" ({', '.join(group['migrations'])})"
    lines = [first]
    if group["signed"]:
        lines.append(f"    {group['signed']} of them {SIGNED}")
    if group["waiting"]:
        lines.append(f"    {group['waiting']} of them {WAITING}")
    if group["same_version"]:
        lines.append(f"    {RAISE.format(version)}")
    for weight in WEIGHTS:
        for difference in group[weight]:
            lines.append(f"    {visible_text(f'{weight}: {difference}')}")
    # Runs may have moved on since they were counted, so there may be no example.
    if group["examples"]:
        lines.append(f"    for example {', '.join(group['examples'])}")
    return lines
