"""What the tables that a superstep writes to must not cost."""

import pytest
from django.db import connection
from django.db.models import JSONField, Model

from checkpoints.models import Checkpoint, Run, RunEvent, TaskResult


@pytest.mark.parametrize("model", [Run, Checkpoint, RunEvent, TaskResult])
def test_no_number_of_a_superstep_is_checked_by_the_database(model: type[Model]) -> None:
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, JSONField)]
    assert [field.name for field in fields if field.db_check(connection)] == []
