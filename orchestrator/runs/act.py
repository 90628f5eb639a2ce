"""One act of a person or program on a run: its row locked, verified, and what is refused written down."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from checkpoints import audit_log
from checkpoints.core.arguments import checked_person
from checkpoints.ledger import locked_run
from checkpoints.models import Run
from orchestrator.engine.errors import NotAReviewer, TamperedRow


@contextmanager
def locked(run_id: UUID, *, by: Any, also_imported: bool = False) -> Iterator[Run]:
    """The run's row, locked for one act of one transaction, then read anew. Where a row is met that is not as it was
    sealed, the run is tampered from then on, with an audit line, and that is raised; a decision of somebody who may not
    decide leaves an audit line too. An imported run is refused, unless `also_imported` is said.
    """
    check_person(by, "by")
    try:
        with transaction.atomic():
            run = locked_run.lock_run(run_id, also_imported=also_imported)
            yield run
    except TamperedRow as found:
        locked_run.mark_tampered(run_id, found)
        audit_log.record("refused_tampered", actor=by, run=run_id, row=str(found.facts.get("row", "")))
        raise
    except NotAReviewer as refused:
        facts = {name: fact for name, fact in refused.facts.items() if name != "events"}  # a receipt holds labels
        audit_log.record("refused_not_a_reviewer", actor=by, run=run_id, **facts)
        raise
    run.refresh_from_db()


def check_person(by: Any, path: str) -> None:
    """Raise `InvalidValue` for whoever is not a stored user. None is the system."""
    if by is not None:
        checked_person(by, path)


def name_of(by: AbstractBaseUser | None) -> str:
    """How the log names who acts; empty for the system."""
    return by.get_username() if by else ""
