"""`manage.py verify_runs [RUN...]`: whether runs are as they were written."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from checkpoints.models import GraphVersion, Run
from checkpoints.queue import jobs
from orchestrator.jobs.integrity import Verified, Wanted, require_rights, verify_runs
from orchestrator.management import command_line

EVERY = 100
"""Runs between two lines of progress."""


class Command(command_line.DatabaseCommand):
    """Ends with 1 where a run is not as it was written."""

    help = (
        "Verify seals, hashes and chains of runs, and fold their state anew. Changes nothing, unless --mark is given."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", nargs="*", help="ids or keys; all runs without any")
        parser.add_argument("--graph", default="", help="only runs of this graph")
        parser.add_argument(
            "--since", type=moment, default=None, help="only runs started at or after this date or time (ISO 8601)"
        )
        parser.add_argument("--mark", action="store_true", help="stop bad runs that have not ended: status tampered")
        parser.add_argument("--job", action="store_true", help="leave it to the workers; the audit log says the result")
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command_line.person(options["by"])
        with command_line.one_clear_line():
            ids = tuple(str(command_line.run_seen_by(by, name).id) for name in options["run"])
            wanted = Wanted(ids, options["graph"], options["since"] or "", options["mark"])
            require_rights(by, wanted)
        _require_graph(options["graph"])
        if options["job"]:
            job = jobs.add_job("verify_runs", by=by.get_username() if by else "", **asdict(wanted))
            return self.stdout.write(json.dumps({"job": str(job)}) if options["as_json"] else f"Queued as job {job}.")
        result = self._verify(wanted, by, quiet=options["as_json"])
        if options["as_json"]:
            self.stdout.write(json.dumps({"checked": result.checked, "bad": result.bad}, ensure_ascii=False))
        if result.failed:
            others = sum(1 for one in result.bad if not one["run"])
            beside = f", and {others} things beside them" if others else ""
            bad = result.failed - others
            raise CommandError(f"{bad} of {result.checked} runs{beside} are not as they were written")
        return None

    def _verify(self, wanted: Wanted, by: Any, *, quiet: bool) -> Verified:
        result, named, total = Verified(), 0, wanted.rows().count()
        for _ in verify_runs(wanted, result, by=by):
            if quiet:
                continue
            for one in result.bad[named:]:
                self.stdout.write(": ".join(part for part in (one["run"], one["reason"]) if part))
            named = len(result.bad)
            if result.checked % EVERY == 0 and 0 < result.checked < total:
                self.stdout.write(f"{result.checked} of {total} verified, {result.failed} bad")
        if not quiet:
            self.stdout.write(f"{result.checked} of {total} verified, {result.failed} bad")
        return result


def _require_graph(name: str) -> None:
    """Raise where no run can be meant: who mistypes a name is not to take nothing for sound."""
    if name and not GraphVersion.objects.filter(name=name).exists() and not Run.objects.filter(graph=name).exists():
        raise CommandError(f"there is no graph {name}, and no run of it")


def moment(text: str) -> str:
    """A date or time as ISO 8601 with its zone; argparse names what is none."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else timezone.make_aware(found)).isoformat()
