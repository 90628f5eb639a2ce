"""An act of a person on a run whose row was changed by hand is refused, and leaves a
run that says why.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoints.core.status import Status
from checkpoints.models import AuditLine, Run
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow
from tests.support import run_actions

pytestmark = pytest.mark.django_db(transaction=True)

VERBS: dict[str, Callable[[Run], Any]] = {
    "cancel": lambda run: runs.cancel(run.id, reason="no longer wanted"),
    "resume": lambda run: runs.resume(run.id),
    "settle": lambda run: runs.settle(
        run.id, "pay:1:0", happened=False, reason="asked the bank"
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_what_meets_a_row_that_is_not_as_it_was_sealed_is_refused_and_the_run_is_tampered(
    verb: str, tmp_path: Path
) -> None:
    run = run_actions.start("gated", tmp_path)
    Run.objects.filter(id=run.id).update(head_hash="0" * 64)
    with pytest.raises(TamperedRow, match="not as it was sealed"):
        VERBS[verb](run)
    run.refresh_from_db()
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"
    assert AuditLine.objects.filter(kind="refused_tampered", run=run.id).count() == 1
