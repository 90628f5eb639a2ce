"""Refusals leave a line in the installation's audit log."""

import pytest
from django.db import transaction

from checkpoints.audit import lines as audit_log
from checkpoints.models import AuditLine
from tests.support.cast import People
from tests.support.rows import missing


def test_a_line_says_who_what_and_about_which_run(people: People) -> None:
    run = missing()
    audit_log.record("refused_not_a_reviewer", actor=people.nobody, run=run, write="w1")
    line = AuditLine.objects.get()
    assert line.kind == "refused_not_a_reviewer"
    assert line.actor == people.nobody
    assert line.actor_name == "nobody"
    assert line.run == run
    assert line.facts == {"write": "w1"}


@pytest.mark.django_db
def test_the_system_has_no_name() -> None:
    assert audit_log.record("run_exported", actor=None).actor_name == ""


@pytest.mark.django_db(transaction=True)
def test_a_refusal_recorded_after_its_rollback_stays() -> None:
    with pytest.raises(ValueError, match="refused"), transaction.atomic():
        raise ValueError("refused")
    audit_log.record("refused", actor=None)
    assert AuditLine.objects.count() == 1
