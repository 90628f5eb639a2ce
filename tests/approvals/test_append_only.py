"""The triggers that keep decisions are watched and put back."""

import pytest
from django.apps import apps
from django.core.management import call_command

from approvals import append_only
from tests.support import cast, run_actions
from tests.support.decisions import assert_unchangeable, paused_run
from tests.support.run_actions import sign

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_missing_trigger_is_reported_and_the_next_migrate_puts_it_back(
    people: cast.People,
) -> None:
    sign(paused_run(), run_actions.reviewer(people.reviewer), ["approve"])
    assert append_only.missing_triggers() == []
    append_only.remove_triggers()
    try:
        warnings = append_only.check_triggers(
            list(apps.get_app_configs()), databases=["default"]
        )
        assert [warning.id for warning in warnings] == [
            "approvals.W001",
            "approvals.W001",
        ]
    finally:
        call_command("migrate", verbosity=0)
    assert append_only.missing_triggers() == []
    assert_unchangeable()
