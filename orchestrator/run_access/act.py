"""One act of a person or program on a run: their rights are checked, the run's row is
locked and verified, and refusals leave audit lines.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from approvals.permissions import may, may_see_run
from checkpoints import timeline
from checkpoints.audit import lines as audit_log
from checkpoints.conf import conf
from checkpoints.core.arguments import checked_person
from checkpoints.core.ids import unknown_thing
from checkpoints.db import query_cache
from checkpoints.ledger import locked_run
from checkpoints.models import Checkpoint, Run
from checkpoints.rights import require_right_of_verb
from orchestrator.engine.errors import NotAReviewer, TamperedRow
from orchestrator.run_access.keys import get


@contextmanager
def locked(
    run_id: UUID, *, by: Any, also_imported: bool = False, returned: bool = True
) -> Iterator[Run]:
    """Lock the run's row for one act in one transaction, and read it again afterwards,
    unless it is not `returned` to the caller of the verb. If a row does not match its
    seal, mark the run as tampered, leave an audit line, and raise the error again; a
    decision of a person who may not decide leaves an audit line too. An imported run is
    refused, unless `also_imported` is set.
    """
    check_person(by, "by")
    try:
        with transaction.atomic():
            run = locked_run.lock_run(run_id, also_imported=also_imported)
            yield run
    # These lines are written after the transaction, which was rolled back.
    except TamperedRow as tampered:
        locked_run.mark_tampered(run_id, tampered)
        row = str(tampered.facts.get("row", ""))
        audit_log.record("refused_tampered", actor=by, run=run_id, row=row)
        raise
    except NotAReviewer as refusal:
        facts = dict(refusal.facts)
        # A receipt holds labels, which do not belong in the audit log.
        facts.pop("events", None)
        audit_log.record("refused_not_a_reviewer", actor=by, run=run_id, **facts)
        raise
    if returned:
        query_cache.refresh(run)


def check_person(by: Any, path: str) -> None:
    """Raise `InvalidValue` if `by` is not a stored user. None is the system."""
    if by is not None:
        checked_person(by, path)


def run_to_act_on(by: Any, right: str, run_id: UUID | str) -> Run:
    """Return the run of that id or key. If the settings make verbs check rights, raises
    `Forbidden` for a person who lacks the right, and `UnknownThing` for a run that they
    may not see, in the words for a run that is not there. None, the system, may do
    everything.
    """
    # The right comes first: who lacks it does not learn which runs are there.
    require_right_of_verb(by, right)
    run = get(run_id)
    if not sees(by, run):
        raise unknown_thing("run", run_id)
    return run


def checkpoint_to_act_on(by: Any, right: str, id_or_alias: UUID | str) -> Checkpoint:
    """Return the kept checkpoint with its run, its payload read and not yet proven.
    Raises as `run_to_act_on` does. One query for an id, two for an alias.
    """
    require_right_of_verb(by, right)
    row = timeline.read_checkpoint(id_or_alias)
    if row is None or not sees(by, row.run):
        raise unknown_thing("checkpoint", id_or_alias)
    return row


def sees(by: Any, run: Run) -> bool:
    """Return whether a verb may reveal this run to `by`: only to those who may see it,
    if the settings make verbs check rights.
    """
    if by is None or not conf().verbs_ask_rights:
        return True
    return may_see_run(by, run)


def sees_all_runs(by: Any) -> bool:
    """Return whether a verb may reveal to `by` what belongs to no run."""
    if by is None or not conf().verbs_ask_rights:
        return True
    return may(by, "view_run")


def name_of(by: AbstractBaseUser | None) -> str:
    """Return the name under which the log records the actor; empty for the system."""
    if not by:
        return ""
    return by.get_username()
