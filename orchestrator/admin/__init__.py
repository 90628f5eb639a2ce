"""What the Django admin shows of runs, checkpoints, tokens and answered requests, and what can be done from there."""

from orchestrator.admin import access as access
from orchestrator.admin import checkpoint_rows as checkpoint_rows
from orchestrator.admin import run_rows as run_rows
