"""Commands where the tables are not there, or the database does not serve: one line,
with the cure.
"""

import base64
import importlib
import json
import pkgutil
import sqlite3
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand
from django.db import OperationalError, ProgrammingError, connection
from django.db.migrations.recorder import MigrationRecorder

from orchestrator.management import command_line, commands
from tests.house.commands import manage

ARGUMENTS = {
    "restored": ["--reason", "r"],
    "cancel_run": ["K"],
    "check_versions": [],
    "create_token": ["olive"],
    "drain": [],
    "erase": ["K", "--reason", "r"],
    "export_receipt": [str(UUID(int=1)), "/dev/null"],
    "export_run": ["K", "/dev/null"],
    "fork_run": ["K:initial"],
    "fork_runs": ["--graph", "gated"],
    "import_run": [__file__],
    "prune_runs": [],
    "replay_run": ["K:initial"],
    "resume_run": ["K"],
    "rewind_run": ["K", "K:initial", "--reason", "r"],
    "rotate_keys": ["--dry-run"],
    "make_reference_data": ["--runs=1", "--no-large"],
    "run_status": ["K"],
    "seal_anew": [],
    "settle_run": ["K", "pay:1:0", "--did-not", "--reason", "r"],
    "start_run": ["gated"],
    "verify_runs": ["K"],
}
OTHERS = {"backup", "up", "verify_bundle", "verify_receipt", "worker"}
"""They make the tables, copy whatever is there, wait for the database themselves, or
need none.
"""
MANY = {"allow", "file", "fields", "files", "metadata", "paths", "scopes", "set"}
"""Options that may be said more than once, or take several values."""


def test_the_list_of_commands_is_complete() -> None:
    names = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    assert names == {*ARGUMENTS} | OTHERS
    for name in ARGUMENTS:
        command = importlib.import_module(
            f"orchestrator.management.commands.{name}"
        ).Command
        assert issubclass(command, command_line.DatabaseCommand)
        assert issubclass(command, BaseCommand)


@pytest.mark.parametrize("name", sorted({*ARGUMENTS, *OTHERS}))
def test_an_option_whose_value_counts_is_taken_once(name: str) -> None:
    command = importlib.import_module(
        f"orchestrator.management.commands.{name}"
    ).Command()
    options = [
        action
        for action in command.create_parser("manage.py", name)._actions
        if action.option_strings
    ]
    for action in (
        option for option in options if option.nargs != 0 and option.dest not in MANY
    ):
        value = {"key": "7" * 64, "since": "2026-01-01"}.get(action.dest, "1")
        said = f"{action.option_strings[-1]}={value}"
        with pytest.raises(CommandError, match="is given more than once"):
            command.create_parser("manage.py", name).parse_args(
                [*ARGUMENTS.get(name, []), said, said]
            )


@pytest.fixture
def with_a_key(settings: Any) -> None:
    key = base64.b64encode(bytes(32)).decode()
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, "ENCRYPTION_KEYS": {"k": key}}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("with_a_key")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_command_without_its_tables_says_in_one_line_that_migrations_are_missing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MigrationRecorder, "applied_migrations", lambda self: {})

    def refuse(execute: Any, sql: str, *rest: Any) -> Any:
        if "django_migrations" in sql or "sqlite_master" in sql or "pg_catalog" in sql:
            return execute(sql, *rest)
        raise ProgrammingError('relation "checkpoints_run" does not exist')

    with (
        connection.execute_wrapper(refuse),
        pytest.raises(CommandError, match=r"run `manage\.py migrate` first"),
    ):
        call_command(name, *ARGUMENTS[name])


@pytest.mark.django_db
@pytest.mark.usefixtures("with_a_key")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_command_whose_database_does_not_serve_says_so_in_one_line(name: str) -> None:
    def refuse(*_: Any) -> Any:
        error = OperationalError("database is locked")
        cause = sqlite3.OperationalError()
        cause.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error from cause

    with (
        connection.execute_wrapper(refuse),
        pytest.raises(CommandError, match="does not serve now.*database is locked"),
    ):
        call_command(name, *ARGUMENTS[name])


def test_start_run_on_a_new_database_ends_with_one_line_and_no_traceback(
    tmp_path: Path,
) -> None:
    words = ("start_run", "claim_payout", "--set", "claim_id=A", "--set", "amount=1")
    done = manage(*words, COUNTERSIGN_DEMO="true", COUNTERSIGN_DATA_DIR=tmp_path)
    assert done.returncode == 1
    assert "migrate` first" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.django_db
def test_drain_answers_machines_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("drain", "--json")
    assert json.loads(capsys.readouterr().out) == {"asked": [], "running": []}
