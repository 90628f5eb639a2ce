"""`manage.py verify_runs [RUN...]`: verify that runs are as they were written."""

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
"""The number of runs between two lines of progress."""


class Command(command_line.DatabaseCommand):
    """Ends with 1 if a run is not as it was written."""

    help = (
        "Verify seals, hashes and chains of runs, and fold their state "
        "anew. Changes nothing, unless --mark is given."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", nargs="*", help="ids or keys; all runs without any")
        parser.add_argument("--graph", default="", help="only runs of this graph")
        parser.add_argument(
            "--since",
            type=moment,
            default=None,
            help="only runs started at or after this date or time (ISO 8601)",
        )
        parser.add_argument(
            "--mark",
            action="store_true",
            help="stop bad runs that have not ended: status tampered",
        )
        parser.add_argument(
            "--job",
            action="store_true",
            help="leave it to the workers; the audit log says the result",
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        # No row of an older release would verify, and every run would be called bad.
        command_line.refuse_older_seals()
        by = command_line.person(options["by"])
        with command_line.one_clear_line():
            selection = _selected_runs(options, by)
            require_rights(by, selection)
        _require_graph(options["graph"])
        if options["job"]:
            return self.stdout.write(_queue(selection, options, by))

        result = self._verify(selection, options, by)
        if options["as_json"]:
            answer = {"checked": result.checked, "bad": result.bad}
            self.stdout.write(json.dumps(answer, ensure_ascii=False))
        if result.failed:
            raise CommandError(_summary_of_faults(result))
        return None

    def _verify(self, selection: Wanted, options: dict[str, Any], by: Any) -> Verified:
        report = command_line.progress_writer(self, options)
        result = Verified()
        reported = 0
        total = selection.rows().count()
        for _ in verify_runs(selection, result, by=by):
            # Faults are reported at once: verifying all runs can take long.
            for fault in result.bad[reported:]:
                parts = [part for part in (fault["run"], fault["reason"]) if part]
                report(": ".join(parts))
            reported = len(result.bad)
            if result.checked % EVERY == 0 and 0 < result.checked < total:
                report(_progress_of(result, total))
        report(_progress_of(result, total))
        return result


def _selected_runs(options: dict[str, Any], by: Any) -> Wanted:
    """Return which runs to verify. Raises `UnknownThing` for a run that this person may
    not see.
    """
    ids: list[str] = []
    for name in options["run"]:
        ids.append(str(command_line.run_seen_by(by, name).id))
    since = options["since"] or ""
    return Wanted(tuple(ids), options["graph"], since, options["mark"])


def _queue(selection: Wanted, options: dict[str, Any], by: Any) -> str:
    """Leave the verification to the workers. Returns the line to print."""
    name = by.get_username() if by else ""
    job = jobs.add_job("verify_runs", by=name, **asdict(selection))
    if options["as_json"]:
        return json.dumps({"job": str(job)})
    return f"Queued as job {job}."


def _progress_of(result: Verified, total: int) -> str:
    return f"{result.checked} of {total} verified, {result.failed} bad"


def _summary_of_faults(result: Verified) -> str:
    others = sum(1 for fault in result.bad if not fault["run"])
    beside = f", and {others} things beside them" if others else ""
    bad = result.failed - others
    return f"{bad} of {result.checked} runs{beside} are not as they were written"


def _require_graph(name: str) -> None:
    """Raise `CommandError` for a graph that never had a run or a version: a mistyped
    name must not look as if everything were in order.
    """
    if not name:
        return
    if GraphVersion.objects.filter(name=name).exists():
        return
    if Run.objects.filter(graph=name).exists():
        return
    raise CommandError(f"there is no graph {name}, and no run of it")


def moment(text: str) -> str:
    """Return a date or time as ISO 8601 with its zone. Raises `ValueError`, which
    argparse reports.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = timezone.make_aware(time)
    return time.isoformat()
