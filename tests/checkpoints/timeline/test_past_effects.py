"""What was done elsewhere happens again where a plan reaches it."""

import pytest

from checkpoints.timeline.past_effects import LEFT_LINES, MEMORY, Effect
from orchestrator.engine import Task

TASK = Task("pay", 1, 0)


@pytest.mark.parametrize(
    ("effect", "runs", "lands", "again"),
    [
        ("external", {"pay"}, set(), True),
        ("external", set(), {"pay"}, False),
        (MEMORY, set(), {"pay"}, True),
        (MEMORY, {"other"}, {"other"}, False),
    ],
)
def test_memory_lands_again_also_where_its_node_does_not_run(
    effect: str, runs: set[str], lands: set[str], again: bool
) -> None:
    assert Effect(TASK, effect, certain=True).reaches(runs, lands) is again


def test_what_removed_forks_left_is_on_lines_that_no_run_has() -> None:
    assert max(LEFT_LINES) < 1
