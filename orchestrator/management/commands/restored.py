"""`manage.py restored --reason ...`: prepare a database that was restored from a
backup, before any worker starts on it.
"""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from checkpoints.audit_restoration import let_chain_go_on
from checkpoints.db.caller_transaction import refuse_open_transaction
from orchestrator.management import command_line
from orchestrator.runs import restoration
from orchestrator.runs.restoration import StoppedRuns


class Command(command_line.DatabaseCommand):
    """Ends with 1 if runs were left as they are because they do not verify."""

    help = (
        "Stop every run that may have acted after the copy was made, "
        "and let the audit log go on."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--reason", required=True, help="why; it stays in the audit log"
        )
        parser.add_argument(
            "--audit-log-only",
            action="store_true",
            help="only let the audit log go on: no copy was put back, "
            "and no run is touched",
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        reason = options["reason"].strip()
        if not reason:
            raise CommandError("--reason needs a text")
        with command_line.one_clear_line():
            by = command_line.actor(options, "manage_retention")
            refuse_open_transaction("restored")
            stopped = StoppedRuns({}, {})
            # A worker that got its lease from another copy must not write to this one.
            if not options["audit_log_only"]:
                restoration.end_leases()
                stopped = restoration.stop_runs(by=by)
            head = let_chain_go_on(reason=reason, by=by)

        if options["as_json"]:
            facts = {
                "line": head.number,
                "stopped": stopped.counts,
                "left": stopped.unverified,
            }
            self.stdout.write(json.dumps(facts, ensure_ascii=False))
        else:
            self.stdout.write(_text(head.number, stopped))
        if stopped.unverified:
            raise CommandError(
                f"{len(stopped.unverified)} runs were left as they are: they do not verify"
            )


def _text(number: int, stopped: StoppedRuns) -> str:
    lines = [f"The audit log goes on with line {number}."]
    for status, count in sorted(stopped.counts.items()):
        lines.append(
            f"{count} runs are {status} now, until a person has looked outside."
        )
    for run, why in stopped.unverified.items():
        lines.append(f"left: {run}: {why}")
    return "\n".join(lines)
