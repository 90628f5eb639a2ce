"""What is kept of an open superstep comes back as it was."""

import pytest

from orchestrator.engine import Task
from orchestrator.engine.step.reduce import Output
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep


@pytest.mark.parametrize("reads", [None, (), ("team", "risk")])
def test_what_a_gate_read_is_kept_with_its_task(reads: tuple[str, ...] | None) -> None:
    task = Task("ask", 1, 0)
    finished = FinishedTask(Output(), gated=True, why="because", reads=reads)
    kept = OpenSuperstep({task: finished}, frozenset(), {}, superstep=2)
    assert OpenSuperstep.from_json(kept.to_json()) == kept


def test_the_reads_of_a_gate_are_unknown_for_a_task_kept_by_an_earlier_version() -> (
    None
):
    kept = FinishedTask(Output(), gated=True).to_json()
    assert "reads" not in kept
    assert FinishedTask.from_json(kept).reads is None
