"""One act of a person or program on a run: its row locked, verified, and what is refused written down."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from approvals.permissions import may_see_run
from checkpoints import audit_log
from checkpoints.conf import conf
from checkpoints.core.arguments import checked_person
from checkpoints.core.ids import unknown_thing
from checkpoints.ledger import locked_run
from checkpoints.models import Run
from checkpoints.rights import require_right_of_verb
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


def require_rights(by: Any, right: str, run: Run | None = None) -> None:
    """Raise `Forbidden` for a person who lacks this right and `UnknownThing` where he may not see the run, if the
    settings say that verbs ask for rights; `InvalidValue` for what is no person. None, the system, may do all of it.
    """
    require_right_of_verb(by, right)
    if run is not None and not sees(by, run):
        raise unknown_thing("run", run.id)


def sees(by: Any, run: Run) -> bool:
    """Return whether a verb may tell `by` of this run: as he may see it, if the settings say that verbs ask."""
    return by is None or not conf().verbs_ask_rights or may_see_run(by, run)


def name_of(by: AbstractBaseUser | None) -> str:
    """How the log names who acts; empty for the system."""
    return by.get_username() if by else ""
