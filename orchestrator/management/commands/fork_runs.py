"""`manage.py fork_runs CHECKPOINT... | --graph GRAPH`: fork runs with one patch."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from checkpoints.core.status import Status
from checkpoints.db.caller_transaction import refuse_open_transaction
from orchestrator import runs
from orchestrator.management import command_line, job_work, verb_command
from orchestrator.models import BulkFork
from orchestrator.runs.verb_table import ALLOW_EFFECTS, PATCH, REASON
from orchestrator.travel.bulk_fork import counts_of

_SHARED_ARGUMENTS = (PATCH, ALLOW_EFFECTS, REASON)


class Command(command_line.DatabaseCommand):
    """Ends with 1 where the job failed, or a run was refused."""

    help = (
        "Fork each run of a graph and status from its last good checkpoint, "
        "or these checkpoints, with one patch."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "checkpoint", nargs="*", help="ids or aliases, one of each run"
        )
        parser.add_argument("--graph", help="the runs of this graph")
        parser.add_argument(
            "--status",
            default=str(Status.FAILED),
            help="with --graph: in this status; default failed",
        )
        verb_command.add_options(parser, _SHARED_ARGUMENTS)
        verb_command.add_plan(parser)
        parser.add_argument(
            "--job", action="store_true", help="leave it to the workers"
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        request = verb_command.read_values(_SHARED_ARGUMENTS, options)
        request["graph"] = options["graph"]
        request["status"] = options["status"]
        checkpoints = options["checkpoint"] or None
        with command_line.one_clear_line():
            by = command_line.actor(options, "steer_run")
            # It reports on runs that the command line does not name, so the user must
            # be allowed to see all of them.
            command_line.require_right(by, "view_run")
            if options["plan"]:
                plan = runs.fork_many(checkpoints, **request, by=by, dry_run=True)
                return self._write(options, plan.to_json(), plan.to_text())
            # The runs are forked in separate transactions, which must not be part of
            # a caller's that may be rolled back.
            if not options["job"]:
                refuse_open_transaction("fork_runs")
            job = runs.fork_many(checkpoints, **request, by=by)
        if options["job"]:
            return self._write(
                options, {"job": str(job.id)}, f"Queued as job {job.id}."
            )

        job_work.work_on(job.id, command_line.progress_writer(self, options))
        return self._write_result(options, BulkFork.objects.get(id=job.id))

    def _write_result(self, options: dict[str, Any], bulk: BulkFork) -> None:
        counts = counts_of(bulk)
        text = f"{counts['forked']} of {counts['total']} runs forked"
        self._write(options, {"job": str(bulk.id), **counts}, text)
        if counts["refused"]:
            refusals = bulk.results.exclude(code="")
            codes = sorted(set(refusals.values_list("code", flat=True)))
            raise CommandError(
                f"{counts['refused']} runs were refused: {', '.join(codes)}; "
                f"job {bulk.id} lists them"
            )

    def _write(self, options: dict[str, Any], facts: dict[str, Any], text: str) -> None:
        if options["as_json"]:
            text = json.dumps(facts, ensure_ascii=False)
        self.stdout.write(text)
