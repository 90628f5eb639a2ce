"""`manage.py rotate_keys`: re-encrypt, under the newest key, the rows of older ones."""

import json
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from checkpoints import key_rotation
from checkpoints.conf import keyring
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.models import Job
from checkpoints.queue import jobs as job_queue
from orchestrator.management import command_line, job_work

KIND = "rotate_keys"


class Command(command_line.DatabaseCommand):
    """Ends with 1 if a row does not open, an older key still encrypts rows, or the job
    failed.
    """

    help = (
        "Encrypt anew, under the newest key, every payload that an older key encrypts. "
        "Seals and hashes stay."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="only count what older keys encrypt"
        )
        parser.add_argument(
            "--job",
            action="store_true",
            help="leave it to the workers; the audit log says the result",
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            by = command_line.actor(options, "manage_retention")
            newest = keyring().encrypter
            behind = key_rotation.behind()
        if options["dry_run"]:
            counts = _counts(behind) or "Nothing is behind."
            return self._write(options, {"key": newest, "behind": behind}, counts)
        if not options["job"]:
            with command_line.one_clear_line():
                refuse_open_transaction("rotate_keys")
        job = _queue_rotation(newest, by)
        if options["job"]:
            return self._write(options, {"job": str(job)}, f"Queued as job {job}.")
        return self._rotate(job, newest, options)

    def _rotate(self, job: UUID, newest: str, options: dict[str, Any]) -> None:
        """Do the job in this process. Raises `CommandError` if rows are left."""
        report = command_line.progress_writer(self, options)
        place = job_work.work_on(job, report) or {}
        rows = place.get("rows", {})
        failed = place.get("failed", 0)
        result = {"key": newest, "rows": rows, "failed": failed}
        self._write(options, result, _counts(rows) or "Nothing was behind.")
        if failed:
            faults = "\n".join(place["faults"])
            raise CommandError(
                f"{failed} rows do not open and stay as they are:\n{faults}"
            )
        # Counted again, because another process may have written under an older key.
        still_behind = key_rotation.behind()
        if still_behind:
            raise CommandError(
                "a process that has not the newest key still writes rows;"
                f" restart it, and rotate again:\n{_counts(still_behind)}"
            )

    def _write(
        self, options: dict[str, Any], result: dict[str, Any], text: str
    ) -> None:
        if options["as_json"]:
            text = json.dumps(result)
        self.stdout.write(text)


def _queue_rotation(newest: str, by: Any) -> UUID:
    """Return the job of a rotation to the newest key, which may be under way already.

    Raises `CommandError` if one to another key is.
    """
    name = by.get_username() if by else ""
    job = job_queue.add_job(KIND, name=KIND, key=newest, by=name)
    # A rotation that is under way keeps its key, which may no longer be the newest.
    key_under_way = Job.objects.get(id=job).facts.get("key")
    if key_under_way != newest:
        raise CommandError(
            f"a rotation to the key {key_under_way} is under way;"
            " begin this one when it has ended"
        )
    return job


def _counts(rows: dict[str, int]) -> str:
    return "\n".join(f"{table}: {count}" for table, count in sorted(rows.items()))
