"""The parts that commands share: the acting user and its rights, one clear line for a
refusal, and runs printed for people or as JSON.
"""

import json
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, Error, connection
from django.db.migrations.executor import MigrationExecutor

from approvals import permissions
from checkpoints import timeline
from checkpoints.core.status import ENDS, STOPPED, Status
from checkpoints.core.strict_json import parse_strict
from checkpoints.core.visible_text import visible_text
from checkpoints.db.outage import is_outage
from checkpoints.models import Checkpoint, OlderSeals, Run
from checkpoints.sealing.sealed_columns import read_or_reason
from checkpoints.sealing.sealed_rows import RENEWAL
from orchestrator import checks, runs
from orchestrator.engine.errors import CountersignError
from orchestrator.run_access.labels import display_error, needs_yes_of, progress_of
from orchestrator.runs.start_for_user import require
from orchestrator.runs.unknown_outcomes import carried_keys

WORKING = frozenset({Status.QUEUED, Status.RUNNING})
ENDED_OTHERWISE = 3
STOPPED_CODE = 4
"""Exit codes: 0 completed or at rest, 3 ended without completing, 4 stopped until a
person acts; 1 is a refusal.
"""


class OnceOnly(Action):
    """An option with a value. Repeating it is an error, because it would be unclear
    which value was meant.
    """

    was_used = False

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        # Positional arguments come without an option; argparse counts these.
        if option is not None and self.was_used:
            parser.error(f"{option} is given more than once")
        self.was_used = True
        setattr(namespace, self.dest, values)


class ClearCommand(BaseCommand):
    """A command that takes each option once, except those that may be repeated. Before
    it does anything it runs only the system checks that it needs; `manage.py check`
    checks the pages and the admin too.
    """

    requires_system_checks: list[str] | tuple[str, ...] = (checks.TAG, Tags.models)

    def add_base_argument(
        self, parser: CommandParser, *args: Any, **kwargs: Any
    ) -> None:
        """Make options unrepeatable. Django calls this for the first options of each
        command, before the command adds its own.
        """
        # Options that may be repeated have the action "append" instead.
        for name in (None, "store"):
            parser.register("action", name, OnceOnly)
        super().add_base_argument(parser, *args, **kwargs)


class DatabaseCommand(ClearCommand):
    """A command that needs the tables. If they are missing, or the database does not
    serve, it fails with one line.
    """

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except Error as error:
            if not is_outage(error):
                # A missing table is the usual cause of other errors.
                refuse_unmigrated()
                raise
            raise CommandError(
                "the database does not serve now, and whether this was done "
                f"cannot be told; look first: {error}"
            ) from error


def refuse_unmigrated() -> None:
    """Raise `CommandError` with the cure if the database lacks migrations."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise CommandError(
            f"The database {DEFAULT_DB_ALIAS!r} lacks migrations: "
            "run `manage.py migrate` first"
        )


def refuse_older_seals() -> None:
    """Raise `CommandError` naming the cure where rows of an older release wait to be
    resealed.
    """
    if OlderSeals.objects.exists():
        raise CommandError(
            "The rows of this database are sealed in the format of an older release: "
            f"run {RENEWAL} first"
        )


def add_by(parser: ArgumentParser) -> None:
    """Add `--by USER`."""
    parser.add_argument(
        "--by", metavar="USER", help="act as this user; without it, as the system"
    )


def add_json(parser: ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument(
        "--json",
        action="store_true",
        dest="as_json",
        help="one JSON object instead of text",
    )


def person(name: str | None) -> Any:
    """Return the active user of that name; None, the system, for none. Raises
    `CommandError`.
    """
    if name is None:
        return None
    users = get_user_model()
    of_that_name = {users.USERNAME_FIELD: name, "is_active": True}
    user = users._default_manager.filter(**of_that_name).first()
    if user is None:
        raise CommandError(f"there is no active user {name}")
    return user


def actor(options: dict[str, Any], right: str) -> Any:
    """Return the user that `--by` names, who must hold this right; None, the system,
    without it. Raises `CommandError` for a name that no active user has, and as
    `require_right`.
    """
    by = person(options["by"])
    require_right(by, right)
    return by


def require_right(by: Any, right: str, *, run: UUID | None = None) -> None:
    """Raise `Forbidden` if a person lacks a right of `permissions.RIGHTS`, and leave an
    audit line. The system, None, may do whatever a command does.
    """
    if by is not None:
        require(by, right, run=run)


def run_seen_by(by: Any, ref: str) -> Run:
    """Return the run of that id or key. Raises `UnknownThing` also if this person may
    not see it.
    """
    if by is None:
        return runs.get(ref)
    return permissions.visible_run(by, ref)


def checkpoint_seen_by(by: Any, ref: str) -> Checkpoint:
    """Return the checkpoint of that id or alias. Raises `UnknownThing` also if this
    person may not see its run.
    """
    if by is None:
        return timeline.get_checkpoint(ref)
    return permissions.visible_checkpoint(by, ref)


def read_object(path: str | None, name: str) -> dict[str, Any] | None:
    """Return the JSON object in a file; None for no file. Raises `CommandError`."""
    if path is None:
        return None
    try:
        if path == "-":
            text = sys.stdin.read()
        else:
            text = Path(path).read_text(encoding="utf-8")
        content = parse_strict(text)
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read the {name} from {path}: {error}") from error
    if not isinstance(content, dict):
        raise CommandError(f"the {name} in {path} is not a JSON object")
    return content


@contextmanager
def one_clear_line() -> Iterator[None]:
    """Turn a refusal into the one line that a command fails with."""
    try:
        yield
    except CountersignError as error:
        line = f"{error.message}{_accepted_instead(error.facts)} [{error.code}]"
        # A message may quote a key or a value that holds control characters.
        raise CommandError(visible_text(line)) from error


def _accepted_instead(facts: dict[str, Any]) -> str:
    """Return the refused value and the form in which it would fit, in parentheses;
    nothing if the refusal names neither.
    """
    details: list[str] = []
    for name, word in (("value", "given"), ("mend", "fits")):
        if name in facts:
            details.append(f"{word}: {json.dumps(facts[name], ensure_ascii=False)}")
    if not details:
        return ""
    return f" ({'; '.join(details)})"


def progress_writer(
    command: BaseCommand, options: dict[str, Any]
) -> Callable[[str], None]:
    """Return the function that prints lines of progress; if the output is JSON, it
    prints nothing.
    """
    if options["as_json"]:
        return _print_nothing
    return command.stdout.write


def _print_nothing(text: str) -> None:
    """Drop a line of progress."""


def exit_code(status: str) -> int:
    """Return the exit code of a command that watched a run."""
    if status in STOPPED:
        return STOPPED_CODE
    if status in ENDS and status != Status.COMPLETED:
        return ENDED_OTHERWISE
    return 0


def run_text(run: Run, options: dict[str, Any]) -> str:
    """Return a run as the options of `add_json` ask for it: JSON, or text."""
    if options["as_json"]:
        return as_json(run)
    return as_text(run)


def as_json(run: Run) -> str:
    """Return a run as one line of JSON."""
    return json.dumps(as_dict(run), ensure_ascii=False)


def as_dict(run: Run) -> dict[str, Any]:
    """Return a run for machines."""
    origin = run.origin_checkpoint
    return {
        "id": str(run.id),
        "key": run.key,
        "graph": run.graph,
        "version": run.version,
        "status": run.status,
        "line": run.line,
        "origin_checkpoint": str(origin) if origin else None,
        "superstep": run.superstep,
        "at_node": run.at_node,
        "progress": progress_of(run),
        "error": display_error(run),
        "unknown": _unknown_tasks(run),
        "needs_yes": needs_yes_of(run),
        "waiting": _open_requests(run),
    }


def _unknown_tasks(run: Run) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = []
    for row, key in carried_keys(run):
        tasks.append({"task": row.task, "attempt": row.attempt, "idempotency_key": key})
    return tasks


def _open_requests(run: Run) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = []
    for row in run.requests.filter(status="open").order_by("id"):
        title = read_or_reason(row, "title")
        requests.append({"request": str(row.id), "task": row.task, "title": title})
    return requests


def as_text(run: Run) -> str:
    """Return a run for people, in a few lines."""
    facts = as_dict(run)
    lines: list[str] = []
    if run.at_node:
        lines.append(f"at {run.at_node}")
    if run.progress:
        lines.append(progress(run))
    if facts["error"]:
        lines.append(f"{facts['error']['message']} [{facts['error']['code']}]")
    for task in facts["unknown"]:
        lines.append(
            f"may have happened: {task['task']}, "
            f"whose call carried {task['idempotency_key']}"
        )
    for request in facts["waiting"]:
        lines.append(
            f"waits for a decision: {request['title']} "
            f"({request['task']}, request {request['request']})"
        )
    # A run that has ended starts none of them.
    if facts["needs_yes"] and run.status not in ENDS:
        lines.append(
            f"stops before {', '.join(facts['needs_yes'])}: "
            "that has happened before; resume_run --allow says yes"
        )

    head = (
        f"{visible_text(run.key)}  {run.graph} {run.version}  "
        f"{run.status}, superstep {run.superstep}"
    )
    return "\n  ".join([head, *(visible_text(line) for line in lines)])


def progress(run: Run) -> str:
    """Return the progress that the running node reports."""
    facts = progress_of(run) or {}
    text = f"{facts.get('done', 0)} of {facts.get('total', 0)}"
    if facts.get("note"):
        return f"{text} {facts['note']}"
    return text
