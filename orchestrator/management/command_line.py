"""What commands share: who acts and may, one clear line for a refusal, and runs as people and machines read them."""

import json
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
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
from checkpoints.core.visible_text import visible_text
from checkpoints.db.outage import is_outage
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator import checks, runs
from orchestrator.engine.errors import CountersignError
from orchestrator.runs.labels import display_error, needs_yes_of, progress_of
from orchestrator.runs.start_for_user import require
from orchestrator.runs.unknown_outcomes import carried_keys

WORKING = frozenset({Status.QUEUED, Status.RUNNING})
ENDED_OTHERWISE, STOPPED_CODE = 3, 4
"""Exit codes: 0 completed or at rest, 3 ended without completing, 4 stopped until a person acts; 1 is a refusal."""


class OnceOnly(Action):
    """An option whose value counts: to say it again is an error, for nobody knows which one was meant."""

    given = False

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option: str | None = None) -> None:
        if option is not None and self.given:
            parser.error(f"{option} is given more than once")
        self.given = True
        setattr(namespace, self.dest, values)


class ClearCommand(BaseCommand):
    """A command that takes each option once, but for those that may be repeated. It checks what it needs, before it
    does anything; `manage.py check` checks the pages and the admin too.
    """

    requires_system_checks: list[str] | tuple[str, ...] = (checks.TAG, Tags.models)

    def add_base_argument(self, parser: CommandParser, *args: Any, **kwargs: Any) -> None:
        """Called for the first options of each command, before its own are added."""
        for name in (None, "store"):
            parser.register("action", name, OnceOnly)
        super().add_base_argument(parser, *args, **kwargs)


class DatabaseCommand(ClearCommand):
    """A command that needs the tables: where they are not there, or the database does not serve, one line says so."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except Error as error:
            if not is_outage(error):
                refuse_unmigrated()
                raise
            raise CommandError(
                f"the database does not serve now, and whether this was done cannot be told; look first: {error}"
            ) from error


def refuse_unmigrated() -> None:
    """Raises `CommandError` naming the cure where the database lacks migrations."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise CommandError(f"The database {DEFAULT_DB_ALIAS!r} lacks migrations: run `manage.py migrate` first")


def add_by(parser: ArgumentParser) -> None:
    """`--by USER`."""
    parser.add_argument("--by", metavar="USER", help="act as this user; without it, as the system")


def add_json(parser: ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object instead of text")


def person(name: str | None) -> Any:
    """The active user of that name; None, the system, for none. Raises `CommandError`."""
    if name is None:
        return None
    users = get_user_model()
    found = users._default_manager.filter(**{users.USERNAME_FIELD: name, "is_active": True}).first()
    if found is None:
        raise CommandError(f"there is no active user {name}")
    return found


def actor(options: dict[str, Any], right: str) -> Any:
    """The user that `--by` names, who must hold this right; None, the system, without it. Raises `CommandError` for a
    name that no active user has, and as `require_right`.
    """
    by = person(options["by"])
    require_right(by, right)
    return by


def require_right(by: Any, right: str, *, run: UUID | None = None) -> None:
    """Raises `Forbidden` where a person lacks a right of `permissions.RIGHTS`, and leaves an audit line. The system,
    None, may do what a command does.
    """
    if by is not None:
        require(by, right, run=run)


def run_seen_by(by: Any, ref: str) -> Run:
    """The run of that id or key. Raises `UnknownThing` also where this person may not see it."""
    return runs.get(ref) if by is None else permissions.visible_run(by, ref)


def checkpoint_seen_by(by: Any, ref: str) -> Checkpoint:
    """The checkpoint of that id or alias. Raises `UnknownThing` also where this person may not see its run."""
    return timeline.get_checkpoint(ref) if by is None else permissions.visible_checkpoint(by, ref)


@contextmanager
def one_clear_line() -> Iterator[None]:
    """Turn a refusal into the one line that a command fails with."""
    try:
        yield
    except CountersignError as error:
        raise CommandError(visible_text(f"{error.message}{_given(error.facts)} [{error.code}]")) from error


def _given(facts: dict[str, Any]) -> str:
    """What was refused, and what would fit in its place."""
    words = {"value": "given", "mend": "fits"}
    found = [f"{word}: {json.dumps(facts[name], ensure_ascii=False)}" for name, word in words.items() if name in facts]
    return f" ({'; '.join(found)})" if found else ""


def exit_code(status: str) -> int:
    """What a command that watched a run ends with."""
    if status in STOPPED:
        return STOPPED_CODE
    return ENDED_OTHERWISE if status in ENDS and status != Status.COMPLETED else 0


def as_dict(run: Run) -> dict[str, Any]:
    """A run for machines."""
    waiting = run.requests.filter(status="open").order_by("id")
    return {
        "id": str(run.id),
        "key": run.key,
        "graph": run.graph,
        "version": run.version,
        "status": run.status,
        "line": run.line,
        "origin_checkpoint": str(run.origin_checkpoint) if run.origin_checkpoint else None,
        "superstep": run.superstep,
        "at_node": run.at_node,
        "progress": progress_of(run),
        "error": display_error(run),
        "unknown": [
            {"task": row.task, "attempt": row.attempt, "idempotency_key": key} for row, key in carried_keys(run)
        ],
        "needs_yes": needs_yes_of(run),
        "waiting": [{"request": str(r.id), "task": r.task, "title": read_or_reason(r, "title")} for r in waiting],
    }


def as_json(run: Run) -> str:
    """A run as one line of JSON."""
    return json.dumps(as_dict(run), ensure_ascii=False)


def as_text(run: Run) -> str:
    """A run for people, a few lines."""
    facts = as_dict(run)
    lines = [f"at {run.at_node}"] if run.at_node else []
    lines += [progress(run)] if run.progress else []
    lines += [f"{facts['error']['message']} [{facts['error']['code']}]"] if facts["error"] else []
    lines += [f"may have happened: {u['task']}, whose call carried {u['idempotency_key']}" for u in facts["unknown"]]
    lines += [f"waits for a decision: {w['title']} ({w['task']}, request {w['request']})" for w in facts["waiting"]]
    if facts["needs_yes"] and run.status not in ENDS:
        lines += [
            f"stops before {', '.join(facts['needs_yes'])}: that has happened before; resume_run --allow says yes"
        ]
    head = f"{visible_text(run.key)}  {run.graph} {run.version}  {run.status}, superstep {run.superstep}"
    return "\n  ".join([head, *(visible_text(line) for line in lines)])


def progress(run: Run) -> str:
    """What the node in hand reports."""
    facts = progress_of(run) or {}
    text = f"{facts.get('done', 0)} of {facts.get('total', 0)}"
    return f"{text} {facts['note']}" if facts.get("note") else text
