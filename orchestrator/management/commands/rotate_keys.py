"""`manage.py rotate_keys`: encrypt anew, under the newest key, what older keys encrypt."""

import json
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError

from checkpoints import key_rotation
from checkpoints.conf import keyring
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.models import Job
from checkpoints.queue import jobs as job_queue
from orchestrator.management import command_line, job_work

KIND = "rotate_keys"


class Command(command_line.DatabaseCommand):
    """Ends with 1 where a row does not open, an older key still encrypts rows, or the job failed."""

    help = "Encrypt anew, under the newest key, every payload that an older key encrypts. Seals and hashes stay."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count what older keys encrypt")
        parser.add_argument("--job", action="store_true", help="leave it to the workers; the audit log says the result")
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        say: Callable[[str], None] = (lambda text: None) if options["as_json"] else self.stdout.write
        with command_line.one_clear_line():
            by = command_line.actor(options, "manage_retention")
            newest, behind = keyring().encrypter, key_rotation.behind()
        if options["dry_run"]:
            return self._end(options, {"key": newest, "behind": behind}, _counts(behind) or "Nothing is behind.")
        if not options["job"]:
            with command_line.one_clear_line():
                refuse_open_transaction("rotate_keys")
        job = job_queue.add_job(KIND, name=KIND, key=newest, by=by.get_username() if by else "")
        if (under_way := Job.objects.get(id=job).facts.get("key")) != newest:
            raise CommandError(f"a rotation to the key {under_way} is under way; begin this one when it has ended")
        if options["job"]:
            return self._end(options, {"job": str(job)}, f"Queued as job {job}.")
        place = job_work.work_on(job, say) or {}
        result = {"key": newest, "rows": place.get("rows", {}), "failed": place.get("failed", 0)}
        self._end(options, result, _counts(result["rows"]) or "Nothing was behind.")
        if result["failed"]:
            faults = "\n".join(place["faults"])
            raise CommandError(f"{result['failed']} rows do not open and stay as they are:\n{faults}")
        if left := key_rotation.behind():
            message = "a process that has not the newest key still writes rows; restart it, and rotate again:"
            raise CommandError(f"{message}\n{_counts(left)}")
        return None

    def _end(self, options: dict[str, Any], result: dict[str, Any], text: str) -> None:
        self.stdout.write(json.dumps(result) if options["as_json"] else text)


def _counts(rows: dict[str, int]) -> str:
    return "\n".join(f"{table}: {count}" for table, count in sorted(rows.items()))
