"""No name changes that somebody else keeps: in tables, settings or a task queue.
Tables, columns, migrations and permissions are compared with a database that an older
version wrote; the other names are listed in `stored_names`.
"""

import ast
import gzip
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from django.apps import apps
from django.core.management import get_commands
from django.db.migrations.loader import MigrationLoader
from django.utils.module_loading import import_string

from checkpoints.conf import Conf
from checkpoints.core.status import Status
from checkpoints.verification.removed_history import KIND as HISTORY_REMOVED
from orchestrator.engine import errors
from orchestrator.jobs import kinds
from orchestrator.roles import ROLES
from orchestrator.worker import configuration, tasks
from tests.house import stored_names
from tests.house.commands import ROOT
from tests.house.settings_table import variables

FIXTURES = sorted((ROOT / "tests" / "stories" / "old_database").glob("*.sqlite3.gz"))
OURS = ("checkpoints", "approvals", "orchestrator", "demo_claims", "demo_imports")
SEARCH = "checkpoints_memorytrace_search"
"""A table of SQLite's full text search: no model has it, and SQLite keeps tables of its
own behind it.
"""


@pytest.fixture(
    scope="module", params=FIXTURES, ids=lambda fixture: fixture.name.partition(".")[0]
)
def old(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    """The database that an older version wrote."""
    path = tmp_path_factory.mktemp("old") / "old.sqlite3"
    path.write_bytes(gzip.decompress(request.param.read_bytes()))
    with closing(sqlite3.connect(path)) as raw:
        yield raw


def _named(old: sqlite3.Connection, kind: str) -> set[str]:
    names = {
        name
        for (name,) in old.execute(
            "SELECT name FROM sqlite_master WHERE type = ?", [kind]
        )
    }
    return {name for name in names if name.startswith(OURS)}


def test_every_table_and_column_is_where_it_was(old: sqlite3.Connection) -> None:
    known = {
        model._meta.db_table: {field.column for field in model._meta.concrete_fields}
        for model in apps.get_models(include_auto_created=True)
    }
    tables = {name for name in _named(old, "table") if not name.startswith(SEARCH)}
    assert len(tables) > 20
    gone = {
        f"{table}.{column}"
        for table in tables
        for _, column, *_ in old.execute(f"PRAGMA table_info({table})")
        if column not in known.get(table, set())
    }
    assert gone == set()


def test_every_migration_that_was_applied_is_still_there(
    old: sqlite3.Connection,
) -> None:
    applied = {
        row
        for row in old.execute("SELECT app, name FROM django_migrations")
        if row[0] in OURS
    }
    assert applied
    loader = MigrationLoader(None)
    replaced = {
        key
        for migration in loader.disk_migrations.values()
        for key in migration.replaces
    }
    assert applied - set(loader.disk_migrations) - replaced == set()


def test_every_permission_is_called_as_it_was(old: sqlite3.Connection) -> None:
    had = (
        "SELECT app_label, codename FROM auth_permission JOIN django_content_type t"
        " ON t.id = content_type_id"
    )
    before = {f"{label}.{code}" for label, code in old.execute(had) if label in OURS}
    now = {
        f"{model._meta.app_label}.{code}"
        for model in apps.get_models()
        for code in (
            *(
                f"{verb}_{model._meta.model_name}"
                for verb in model._meta.default_permissions
            ),
            *(code for code, _ in model._meta.permissions),
        )
    }
    assert before
    assert before - now == set()


def test_every_role_grants_what_it_granted(old: sqlite3.Connection) -> None:
    granted = old.execute(
        "SELECT g.name, app_label, codename FROM auth_group g JOIN"
        " auth_group_permissions ON group_id = g.id"
        " JOIN auth_permission p ON p.id = permission_id JOIN django_content_type t ON"
        " t.id = content_type_id"
    )
    lost = {
        (role, f"{label}.{code}")
        for role, label, code in granted
        if f"{label}.{code}" not in ROLES.get(role, ())
    }
    assert lost == set()


@pytest.mark.parametrize("field", stored_names.STATUSES)
def test_every_word_that_a_field_may_hold_is_known(field: str) -> None:
    label, _, name = field.rpartition(".")
    choices: Any = apps.get_model(label)._meta.get_field(name)
    assert (
        set(stored_names.STATUSES[field].split())
        - {word for word, _ in choices.choices}
        == set()
    )


def _words_beside(call: str) -> set[str]:
    """All texts that stand in the modules that make this call."""
    floors = ("checkpoints", "approvals", "orchestrator")
    texts = [
        path.read_text() for floor in floors for path in (ROOT / floor).rglob("*.py")
    ]
    nodes = [
        node for text in texts if call in text for node in ast.walk(ast.parse(text))
    ]
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_type_of_a_line_in_the_log_is_still_written(
    old: sqlite3.Connection,
) -> None:
    known = {
        kind
        for (kind,) in old.execute("SELECT DISTINCT type FROM checkpoints_runevent")
    }
    assert known - stored_names.EVENTS == set()
    ends = {f"run_{status}" for status in Status}
    # Whoever removes rows writes that line; until something here does, verification is
    # what knows it.
    written = _words_beside("NewEvent(") | _words_beside("act.record(")
    assert stored_names.EVENTS - ends - written - {HISTORY_REMOVED} == set()


def test_every_kind_of_a_line_in_the_audit_log_is_still_written() -> None:
    calls = ("audit_log.record(", "audit_log.record_act(", "may_post(", "act.record(")
    assert (
        stored_names.AUDIT - {word for call in calls for word in _words_beside(call)}
        == set()
    )


def test_every_kind_of_job_is_still_done() -> None:
    assert stored_names.JOBS - set(kinds.KINDS) == set()


def test_every_code_of_a_refusal_is_still_given() -> None:
    classes = [
        error
        for error in vars(errors).values()
        if isinstance(error, type) and hasattr(error, "code_of_class")
    ]
    assert stored_names.CODES - {kind.code_of_class for kind in classes} == set()


def test_every_setting_is_still_read() -> None:
    assert stored_names.SETTINGS - {name.upper() for name in Conf.model_fields} == set()


def test_every_variable_of_the_environment_is_still_read() -> None:
    assert stored_names.VARIABLES - set(variables()) == set()


@pytest.mark.parametrize("module", stored_names.PATHS)
def test_every_dotted_path_that_others_use_leads_somewhere(module: str) -> None:
    for name in stored_names.PATHS[module].split():
        assert import_string(f"{module}.{name}") is not None


def test_what_stands_in_a_task_queue_is_what_it_was() -> None:
    paths = (tasks.ADVANCE, tasks.WORK, configuration.BROKER)
    assert paths == (
        "orchestrator.worker.tasks.advance",
        "orchestrator.worker.tasks.work",
        "orchestrator.worker.broker.RunBroker",
    )


def test_every_command_is_called_as_it_was() -> None:
    assert stored_names.COMMANDS - set(get_commands()) == set()


def test_the_fixture_is_small() -> None:
    assert len(FIXTURES) == 1
    assert all(fixture.stat().st_size < 200_000 for fixture in FIXTURES)
    assert FIXTURES[0].with_name("README.md").exists()
