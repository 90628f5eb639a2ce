"""Who may not manage retention may neither keep nor remove nor erase by code; the
system may.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

from checkpoints import retention
from checkpoints.models import Checkpoint
from orchestrator.engine.errors import Forbidden, InvalidValue
from tests.support import cast
from tests.support.histories import long_run, policy
from tests.support.table_contents import contents

pytestmark = pytest.mark.django_db(transaction=True)


def test_each_verb_refuses_whoever_may_not_manage_retention_and_changes_nothing(
    people: cast.People,
) -> None:
    run = long_run("short", "abcd")
    rule = policy("short", keep_last=1)
    point = Checkpoint.objects.get(run=run, seq=2).id
    held = retention.hold(run.id, "a court asked", by=None)
    _ = retention.pin(point, by=None)
    acts: list[Callable[[Any], Any]] = [
        lambda by: retention.hold(run.id, "another court asked", by=by),
        lambda by: retention.release_hold(held.id, by=by),
        lambda by: retention.pin(Checkpoint.objects.get(run=run, seq=1).id, by=by),
        lambda by: retention.unpin(point, by=by),
        lambda by: retention.prune(rule, by=by),
        lambda by: retention.erase(run.id, by=by),
        lambda by: retention.begin_erasure(run.id, by=by),
    ]
    users = (people.starter, people.reviewer, people.auditor)
    before = contents()
    for act in acts:
        for by in users:
            with pytest.raises(Forbidden, match="manage_retention"):
                act(by)
        for nobody in (AnonymousUser(), "stella", 7):
            with pytest.raises(InvalidValue, match="by is a user"):
                act(nobody)
    assert contents() == before
    for act in (acts[0], acts[2], acts[3], acts[4]):
        assert act(people.steward)
