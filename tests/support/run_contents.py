"""All that the database keeps of a run, for tests."""

from checkpoints import timeline
from checkpoints.models import Checkpoint, Run


def everything(run):
    """The run's row, its checkpoints and its log."""
    row = Run.objects.filter(id=run.id).values().get()
    checkpoints = list(Checkpoint.objects.filter(run_id=run.id).order_by("id").values())
    return row, checkpoints, list(timeline.events(run.id).values())
