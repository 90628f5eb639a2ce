"""`manage.py seal_anew`: seal the rows of an older release in the format of this one."""

import json
from argparse import ArgumentParser
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.core.management import CommandError

from approvals import append_only
from approvals.models import Decision
from checkpoints import seal_renewal
from checkpoints.core.plural import counted
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.seal_renewal import Renewed
from orchestrator.engine.errors import TamperedRow
from orchestrator.management import command_line

CURE = (
    "put it back from a backup, or, unless it belongs to the audit log, leave it as it"
    " is with --leave-tampered"
)


class Command(command_line.DatabaseCommand):
    """Ends with 1 at the first row that the older release did not seal as it is, and
    with --leave-tampered at the end, if there were such rows.
    """

    help = (
        "Seal every row that an older release wrote in the format of this release, "
        "once, after it verified. Stop workers and web processes first. It can be "
        "interrupted and begun again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--leave-tampered",
            action="store_true",
            help="name each row that does not verify and leave it as it is; its run is "
            "tampered with from then on",
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        result = Renewed()
        with command_line.one_clear_line():
            by = command_line.actor(options, "manage_retention")
            refuse_open_transaction("seal_anew")
            is_due = seal_renewal.is_due()
            if is_due:
                try:
                    self._seal_anew(result, by, options)
                except TamperedRow as error:
                    raise CommandError(f"{error.message}; {CURE}") from error
        if options["as_json"]:
            facts = {"rows": result.rows, "tampered": result.tampered}
            self.stdout.write(json.dumps(facts))
        elif is_due:
            total = sum(result.rows.values())
            self.stdout.write(f"{total} rows are sealed anew.")
        # `up` runs this at each start, and mostly there is nothing to say.
        elif options["verbosity"]:
            self.stdout.write("No row has an older seal: nothing was done.")
        for reason in result.tampered:
            self.stderr.write(reason)
        if result.tampered:
            count = counted(len(result.tampered), "row")
            raise CommandError(f"{count} did not verify and kept the older seal")

    def _seal_anew(self, result: Renewed, by: Any, options: dict[str, Any]) -> None:
        steps = seal_renewal.seal_anew(
            result,
            by=by,
            triggers_lifted=_triggers_lifted,
            leaves_tampered=options["leave_tampered"],
        )
        for step in steps:
            if not options["as_json"] and step.table:
                count = step.rows[step.table]
                self.stdout.write(f"{step.table}: {count} sealed anew")


def _triggers_lifted(table: str) -> AbstractContextManager[None]:
    """Open a block in which a table's rows may be updated: only decisions have triggers
    against it.
    """
    if table == Decision._meta.db_table:
        return append_only.triggers_lifted()
    return nullcontext()
