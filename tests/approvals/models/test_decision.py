"""A decision is a row that nobody changes or removes."""

import pytest

from approvals.models import Decision
from tests.support import cast, run_actions
from tests.support.decisions import assert_unchangeable, paused_run
from tests.support.run_actions import sign

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_decision_can_neither_be_changed_nor_removed_by_sql(
    people: cast.People,
) -> None:
    sign(paused_run(), run_actions.reviewer(people.reviewer), ["approve"])
    assert_unchangeable()


def test_a_decision_can_neither_be_changed_nor_removed_through_the_orm(
    people: cast.People,
) -> None:
    sign(paused_run(), run_actions.reviewer(people.reviewer), ["approve"])
    decision = Decision.objects.get()
    rows = Decision.objects.all()
    for act in (
        decision.save,
        decision.delete,
        rows.delete,
        lambda: rows.update(verdict="reject"),
    ):
        with pytest.raises(TypeError, match="append-only"):
            act()
    assert Decision.objects.get().verdict == "approve"
