"""`manage.py fork_runs CHECKPOINT... | --graph GRAPH`: fork many runs with one patch."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from checkpoints.core.status import Status
from checkpoints.db.caller_transaction import refuse_open_transaction
from orchestrator import runs
from orchestrator.management import command_line, job_work, travel_options
from orchestrator.models import BulkFork
from orchestrator.runs.bulk_fork import counts_of


class Command(command_line.DatabaseCommand):
    """Ends with 1 where the job failed, or a run was refused."""

    help = "Fork each run of a graph and status from its last good checkpoint, or these checkpoints, with one patch."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("checkpoint", nargs="*", help="ids or aliases, one of each run")
        parser.add_argument("--graph", help="the runs of this graph")
        parser.add_argument("--status", default=str(Status.FAILED), help="with --graph: in this status; default failed")
        travel_options.add_patch(parser)
        travel_options.add_plan(parser)
        parser.add_argument("--job", action="store_true", help="leave it to the workers")
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        over = travel_options.patch_and_answers(options)
        which = {"graph": options["graph"], "status": options["status"], "reason": options["reason"]}
        with command_line.one_clear_line():
            by = command_line.actor(options, "steer_run")
            # It speaks of runs that nobody has named, so who begins it must see all of them.
            command_line.require_right(by, "view_run")
            points = options["checkpoint"] or None
            if options["plan"]:
                plan = runs.fork_many(points, **which, **over, by=by, dry_run=True)
                return self._say(options, plan.to_json(), plan.to_text())
            if not options["job"]:
                refuse_open_transaction("fork_runs")
            job = runs.fork_many(points, **which, **over, by=by)
        if options["job"]:
            return self._say(options, {"job": str(job.id)}, f"Queued as job {job.id}.")
        job_work.work_on(job.id, (lambda text: None) if options["as_json"] else self.stdout.write)
        return self._end(options, BulkFork.objects.get(id=job.id))

    def _end(self, options: dict[str, Any], bulk: BulkFork) -> None:
        counts = counts_of(bulk)
        text = f"{counts['forked']} of {counts['total']} runs forked"
        self._say(options, {"job": str(bulk.id), **counts}, text)
        if counts["refused"]:
            codes = sorted(set(bulk.results.exclude(code="").values_list("code", flat=True)))
            raise CommandError(f"{counts['refused']} runs were refused: {', '.join(codes)}; job {bulk.id} lists them")

    def _say(self, options: dict[str, Any], facts: dict[str, Any], text: str) -> None:
        self.stdout.write(json.dumps(facts, ensure_ascii=False) if options["as_json"] else text)
