"""After a test with real transactions the database is as Django's own flush would leave
it.
"""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.db import DatabaseError, connection

from approvals import append_only
from approvals.models import Decision
from tests.support import cast, run_actions
from tests.support.empty_tables import EmptyTables

pytestmark = pytest.mark.django_db(transaction=True)


class Flushed(EmptyTables):
    """Emptied once by Django's flush; `flushes` counts how often that was."""

    def __init__(self) -> None:
        super().__init__(self._django)
        self.flushes = 0
        self.restore(None)

    def _django(self, case: Any) -> None:
        self.flushes += 1
        call_command("flush", verbosity=0, interactive=False, reset_sequences=False)


@pytest.fixture
def tables() -> Flushed:
    return Flushed()


def _content() -> dict[str, list[Any]]:
    with connection.cursor() as cursor:
        content = {}
        for table in connection.introspection.django_table_names(
            only_existing=True, include_views=False
        ):
            cursor.execute(
                f"SELECT * FROM {connection.ops.quote_name(table)} ORDER BY 1"
            )
            content[table] = list(cursor.fetchall())
    return content


def _signed_run(tmp_path: Path) -> None:
    run = run_actions.start("c_gate", tmp_path)
    run_actions.sign_open(run, run_actions.reviewer(cast.People().reviewer), "approve")


def test_runs_people_and_decisions_are_gone_and_what_the_migrations_left_is_there(
    tables: Flushed, tmp_path: Path
) -> None:
    before = _content()
    _signed_run(tmp_path)
    assert Decision.objects.exists()
    tables.restore(None)
    assert _content() == before
    assert {name for name, rows in before.items() if rows} == {
        *(
            "auth_group",
            "auth_group_permissions",
            "auth_permission",
            "django_content_type",
        ),
        "checkpoints_audithead",
    }
    assert tables.flushes == 1


def test_a_group_that_was_made_and_a_permission_that_was_taken_away_are_as_before(
    tables: Flushed,
) -> None:
    before = _content()
    Group.objects.create(name="made by a test")
    Permission.objects.filter(codename="add_user").delete()
    tables.restore(None)
    assert _content() == before
    assert tables.flushes == 1


def test_decisions_cannot_be_deleted_afterwards_either(
    tables: Flushed, tmp_path: Path
) -> None:
    _signed_run(tmp_path)
    tables.restore(None)
    assert append_only.missing_triggers() == []
    _signed_run(tmp_path)
    with pytest.raises(DatabaseError):
        Decision.objects.all()._raw_delete("default")


def test_a_trigger_that_was_taken_away_comes_back_by_djangos_own_flush(
    tables: Flushed,
) -> None:
    append_only.remove_triggers()
    assert append_only.missing_triggers() != []
    tables.restore(None)
    assert append_only.missing_triggers() == []
    assert tables.flushes == 2


def test_triggers_that_were_lifted_and_are_there_again_change_nothing(
    tables: Flushed,
) -> None:
    with append_only.triggers_lifted():
        pass
    tables.restore(None)
    assert tables.flushes == 1
