"""A run written to a bundle before anything of it is removed, where its policy asks for that."""

from pathlib import Path
from typing import Any
from uuid import UUID

from checkpoints import bundle
from checkpoints.conf import conf
from checkpoints.models import Run
from checkpoints.retention.rule import Rule
from orchestrator.engine.errors import InvalidValue, SaveFailed, UnknownThing


def require_folder(rule: Rule) -> None:
    """Raise `InvalidValue` where a policy asks for an archive and the settings name no folder that is there."""
    folder = conf().archive_folder
    if rule.archive and not (folder and Path(folder).is_dir()):
        message = (
            f"the policy of {rule.graph} archives runs before anything is removed, and COUNTERSIGN['ARCHIVE_FOLDER']"
            " names no folder that is there; nothing is removed"
        )
        raise InvalidValue(message, path="archive")


def write_bundle(rule: Rule, run_id: UUID, by: Any) -> str:
    """Archive a run where its policy asks for that; gives the name of the bundle in the folder, empty for none. The
    name holds where the log of the run stands, so that no later bundle replaces it.

    Raises as `bundle.export` does, and `SaveFailed` where the file cannot be written.
    """
    if not rule.archive:
        return ""
    require_folder(rule)
    seq = Run.objects.filter(id=run_id).values_list("event_seq", flat=True).first()
    if seq is None:
        raise UnknownThing(f"there is no run {run_id}", run=str(run_id))
    name = f"{run_id}-{seq}.bundle"
    try:
        bundle.export(run_id, Path(conf().archive_folder) / name, by=by)
    except OSError as error:
        raise SaveFailed(f"the bundle of run {run_id} could not be written: {error}") from error
    return name
