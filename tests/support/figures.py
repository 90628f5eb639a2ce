"""Figures of runs made by hand, for tests of their sums."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from django.utils import timezone

from checkpoints.ledger import notes
from checkpoints.models import Run
from orchestrator.engine import Task
from orchestrator.engine.step.notes import checked_figure


def noted(
    run: Run,
    figures: Mapping[str, int | Decimal],
    *,
    seq: int = 1,
    at: datetime | None = None,
) -> None:
    """Note these figures with a checkpoint of the run, as its node `call`."""
    of_run = notes.OfRun(run.id, run.graph, notes.protection_of(run))
    millionths = {
        name: checked_figure(name, number) for name, number in figures.items()
    }
    notes.insert_figures(
        of_run, 1, seq, [(Task("call", 1, 0), millionths)], at or timezone.now()
    )
