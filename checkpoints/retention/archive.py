"""Archiving a run in a bundle before anything of it is removed, where its policy asks
for that.
"""

from pathlib import Path
from typing import Any
from uuid import UUID

from checkpoints import bundle
from checkpoints.conf import conf
from checkpoints.models import Run
from checkpoints.retention.rule import Rule
from orchestrator.engine.errors import (
    InvalidValue,
    SaveFailed,
    UnknownThing,
    WrongStatus,
)
from orchestrator.engine.frozen import frozen


def require_folder(rule: Rule) -> None:
    """Raise `InvalidValue` if a policy asks for an archive and the settings name no
    folder that exists.
    """
    if not rule.archive:
        return
    folder = conf().archive_folder
    if not folder or not Path(folder).is_dir():
        message = (
            f"the policy of {rule.graph} archives runs before anything is removed, "
            "and COUNTERSIGN['ARCHIVE_FOLDER'] names no folder that is there; "
            "nothing is removed"
        )
        raise InvalidValue(message, path="archive")


@frozen
class Archived:
    """The bundle of a run in the folder. It holds at least the checkpoints before
    number `head_seq`, and the log up to `event_seq`.
    """

    name: str
    head_seq: int
    event_seq: int


def write_bundle(rule: Rule, run_id: UUID, by: Any) -> Archived | None:
    """Archive a run where its policy asks for that, else return None. The name has the
    end of the run's log in it, so that no later bundle replaces it.

    Raises as `bundle.export` does, `SaveFailed` if the file cannot be written, and
    `WrongStatus` if an erasure of the run began before the file lay in the folder; then
    it does not stay there.
    """
    if not rule.archive:
        return None
    # Checked when the removal was queued too, but a worker may have another folder.
    require_folder(rule)
    # Read before the bundle is written, which holds all this, and what the run did in
    # the meantime.
    rows = Run.objects.filter(id=run_id)
    columns = rows.values_list("head_seq", "event_seq", "erasure").first()
    if columns is None:
        raise UnknownThing(f"there is no run {run_id}", run=str(run_id))
    head_seq, event_seq, erasure = columns
    file = Path(conf().archive_folder) / f"{run_id}-{event_seq}.bundle"
    try:
        bundle.export(run_id, file, by=by)
        _require_not_erased_since(file, run_id, erasure)
    except OSError as error:
        raise SaveFailed(
            f"the bundle of run {run_id} could not be written: {error}"
        ) from error
    return Archived(file.name, head_seq, event_seq)


def _require_not_erased_since(file: Path, run_id: UUID, erasure: UUID | None) -> None:
    """Delete the bundle and raise `WrongStatus` if an erasure began in the meantime. An
    erasure lists the bundles that it finds in the folder; one that began before this
    bundle lay there has not listed it.
    """
    # By its record and not by a flag: the run may have been erased once before.
    rows = Run.objects.filter(id=run_id)
    if rows.values_list("erasure", flat=True).first() != erasure:
        file.unlink(missing_ok=True)
        raise WrongStatus(
            f"values of run {run_id} were erased while it was archived", run=str(run_id)
        )


def require_archived(archived: Archived | None, run: Run) -> None:
    """Raise `WrongStatus` if a locked run has gone on since it was archived, so that
    its bundle lacks something.
    """
    if archived is None:
        return
    end = (archived.head_seq, archived.event_seq)
    if (run.head_seq, run.event_seq) != end:
        raise WrongStatus(
            f"run {run.key} went on while it was archived", status=run.status
        )
