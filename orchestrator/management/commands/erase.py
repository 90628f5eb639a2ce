"""`manage.py erase [RUN...] [--fact NAME=VALUE]`: replace the values of runs by tombstones."""

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
    """Each run is erased or refused by itself; it ends with 1 where one was refused."""

    help = "Replace the values of runs, or those at paths of their state, by tombstones wherever they are kept."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", nargs="*", help="id or key")
        parser.add_argument("--fact", metavar="NAME=VALUE", help="every run with this indexed fact")
        parser.add_argument("--graph", metavar="NAME", help="with --fact: of the runs of this graph alone")
        parser.add_argument("--path", action="append", dest="paths", metavar="PATH", help="as applicant.name; again")
        parser.add_argument("--forks", action="store_true", help="also the runs that inherited the values")
        parser.add_argument("--reason", default="", help="why; stays in the record, so it names nobody")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be erased, and where")
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            by = command_line.actor(options, "manage_retention")
            named = [command_line.run_seen_by(by, one) for one in options["run"]]
            found = [*named, *_with_fact(options["fact"], options["graph"], by)]
        if not found:
            of = f" of the graph {options['graph']}" if options["graph"] else ""
            raise CommandError(
                f"no run{of} has the fact {options['fact']}" if options["fact"] else "name a run, or a --fact"
            )
        refused = 0
        for run in {run.id: run for run in found}.values():
            try:
                self._say(self._one(run, options, by), options)
            except CountersignError as error:
                refused += 1
                self.stderr.write(visible_text(f"{run.key}: {error.message} [{error.code}]"))
        if refused:
            raise CommandError(f"{refused} of {len(found)} runs were not erased")

    def _one(self, run: Run, options: dict[str, Any], by: Any) -> dict[str, Any]:
        if options["dry_run"]:
            return retention.plan_erasure(run.id, options["paths"], options["forks"]).json()
        run.refresh_from_db()
        if run.erasure is not None and options["forks"] and _is_erased(run):
            return _told(ErasureRecord.objects.get(id=run.erasure), run)
        record = retention.erase(run.id, options["paths"], options["forks"], options["reason"], by=by)
        return _told(record, run)

    def _say(self, told: dict[str, Any], options: dict[str, Any]) -> None:
        if options["as_json"]:
            self.stdout.write(json.dumps(told, ensure_ascii=False))
            return
        rows = told["rows"]
        counts = ", ".join(f"{name} {n}" for name, n in rows.items()) if isinstance(rows, dict) else f"{rows} rows"
        doing = "would look for it in" if options["paths"] else "would erase"
        self.stdout.write(visible_text(f"{told['key']}: {doing if options['dry_run'] else 'erased'} {counts}"))
        for one in told["inherited"]:
            what = f"{'would be ' if options['dry_run'] else ''}erased too" if one["erased"] else "NOT erased"
            self.stdout.write("  " + visible_text(f"{one['how']} {one['key'] or one['run']} has values of it: {what}"))


def _with_fact(text: str | None, graph: str | None, by: Any) -> Iterator[Run]:
    """The runs with this fact, of one graph or of all, that this person sees, the oldest first. Facts are texts. Raises
    `CommandError`.
    """
    if text is None:
        if graph is not None:
            raise CommandError("--graph goes with --fact: it says of which graph the runs with that fact are")
        return
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise CommandError("--fact is NAME=VALUE, as the run's page shows them")
    rows = Run.objects.filter(facts__contains={name: value}) if _contains() else Run.objects.exclude(facts={})
    rows = rows if graph is None else rows.filter(graph=graph)
    rows = rows if by is None else permissions.visible_among(by, rows)
    for run in rows.order_by("created_at", "id").iterator():
        if run.facts.get(name) == value:
            yield run


def _contains() -> bool:
    return bool(connection.features.supports_json_field_contains)


def _is_erased(run: Run) -> bool:
    """Whether all of it was erased already, as that of a fork is with its origin."""
    return ErasureRecord.objects.filter(run=run.id, paths=[]).exclude(ended_at=None).exists()


def _told(record: ErasureRecord, run: Run) -> dict[str, Any]:
    return {
        "record": str(record.id),
        "run": str(run.id),
        "key": run.key,
        "paths": record.paths,
        "rows": record.rows,
        "inherited": record.inherited,
        "kept_files": record.kept_files,
    }
