"""`manage.py erase [RUN...] [--fact NAME=VALUE]`: replace the values of runs with
tombstones.
"""

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.db import connection

from approvals import permissions
from checkpoints import retention
from checkpoints.core.visible_text import visible_text
from checkpoints.models import ErasureRecord, Run
from orchestrator.engine.errors import CountersignError
from orchestrator.management import command_line


class Command(command_line.DatabaseCommand):
    """Erases or refuses each run separately. Ends with 1 if one was refused."""

    help = (
        "Replace the values of runs, or those at paths of their state, "
        "by tombstones wherever they are kept."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", nargs="*", help="id or key")
        parser.add_argument(
            "--fact", metavar="NAME=VALUE", help="every run with this indexed fact"
        )
        parser.add_argument(
            "--graph",
            metavar="NAME",
            help="with --fact: of the runs of this graph alone",
        )
        parser.add_argument(
            "--path",
            action="append",
            dest="paths",
            metavar="PATH",
            help="as applicant.name; again",
        )
        parser.add_argument(
            "--forks",
            action="store_true",
            help="also the runs that inherited the values",
        )
        parser.add_argument(
            "--reason", default="", help="why; stays in the record, so it names nobody"
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="only say what would be erased, and where",
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            by = command_line.actor(options, "manage_retention")
            runs = [command_line.run_seen_by(by, name) for name in options["run"]]
            runs.extend(_runs_with_fact(options["fact"], options["graph"], by))
        if not runs:
            raise CommandError(_no_run(options))

        refused = 0
        # A run that is named and has the fact is erased once.
        once = {run.id: run for run in runs}
        for run in once.values():
            try:
                erasure = self._erase(run, options, by)
                self._write(erasure, options)
            except CountersignError as error:
                refused += 1
                line = f"{run.key}: {error.message} [{error.code}]"
                self.stderr.write(visible_text(line))
        if refused:
            raise CommandError(f"{refused} of {len(once)} runs were not erased")

    def _erase(self, run: Run, options: dict[str, Any], by: Any) -> dict[str, Any]:
        """Return the erasure of a run, or its plan in a dry run, as JSON."""
        paths = options["paths"]
        forks = options["forks"]
        if options["dry_run"]:
            return retention.plan_erasure(run.id, paths, forks).json()
        # With --forks, an erasure earlier in this command may have included the run.
        run.refresh_from_db()
        if run.erasure is not None and forks and _is_erased(run):
            record = ErasureRecord.objects.get(id=run.erasure)
        else:
            record = retention.erase(run.id, paths, forks, options["reason"], by=by)
        return _record_json(record, run)

    def _write(self, erasure: dict[str, Any], options: dict[str, Any]) -> None:
        if options["as_json"]:
            self.stdout.write(json.dumps(erasure, ensure_ascii=False))
            return
        for line in _lines_of(erasure, options):
            self.stdout.write(line)


def _no_run(options: dict[str, Any]) -> str:
    if not options["fact"]:
        return "name a run, or a --fact"
    of_graph = f" of the graph {options['graph']}" if options["graph"] else ""
    return f"no run{of_graph} has the fact {options['fact']}"


def _lines_of(erasure: dict[str, Any], options: dict[str, Any]) -> Iterator[str]:
    """Yield the lines about one run, and those about runs that inherited its values."""
    if not options["dry_run"]:
        action = "erased"
    elif options["paths"]:
        action = "would look for it in"
    else:
        action = "would erase"
    yield visible_text(f"{erasure['key']}: {action} {_row_counts(erasure['rows'])}")

    for heir in erasure["inherited"]:
        if not heir["erased"]:
            outcome = "NOT erased"
        elif options["dry_run"]:
            outcome = "would be erased too"
        else:
            outcome = "erased too"
        name = heir["key"] or heir["run"]
        line = f"{heir['how']} {name} has values of it: {outcome}"
        yield f"  {visible_text(line)}"


def _row_counts(rows: Any) -> str:
    """Return how many rows hold values: by table of a plan, in all of a record."""
    if isinstance(rows, dict):
        return ", ".join(f"{table} {count}" for table, count in rows.items())
    return f"{rows} rows"


def _runs_with_fact(text: str | None, graph: str | None, by: Any) -> Iterator[Run]:
    """Yield the runs with this fact, of one graph or of all, that this person may see,
    the oldest first. Facts are texts. Raises `CommandError`.
    """
    if text is None:
        if graph is not None:
            raise CommandError(
                "--graph goes with --fact: it says of which graph the runs with "
                "that fact are"
            )
        return
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise CommandError("--fact is NAME=VALUE, as the run's page shows them")
    # Not every database can search in JSON; then each run with facts is read.
    if connection.features.supports_json_field_contains:
        rows = Run.objects.filter(facts__contains={name: value})
    else:
        rows = Run.objects.exclude(facts={})
    if graph is not None:
        rows = rows.filter(graph=graph)
    if by is not None:
        rows = permissions.visible_among(by, rows)
    # The oldest first: with --forks an origin takes those that came of it along.
    for run in rows.order_by("created_at", "id").iterator():
        # If the database cannot search in JSON, this is the filter.
        if run.facts.get(name) == value:
            yield run


def _is_erased(run: Run) -> bool:
    """Return whether everything was erased already, as a fork's rows are with its
    origin.
    """
    whole = ErasureRecord.objects.filter(run=run.id, paths=[])
    return whole.exclude(ended_at=None).exists()


def _record_json(record: ErasureRecord, run: Run) -> dict[str, Any]:
    return {
        "record": str(record.id),
        "run": str(run.id),
        "key": run.key,
        "paths": record.paths,
        "rows": record.rows,
        "inherited": record.inherited,
        "kept_files": record.kept_files,
    }
