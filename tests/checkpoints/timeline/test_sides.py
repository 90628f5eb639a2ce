"""What two ways through lines and origins have in common, and what each has of its own."""

from uuid import UUID

import pytest

from checkpoints.lines import Stretch
from checkpoints.timeline.sides import CheckpointOfRun, OwnStretch, parted

X = UUID(int=1)
Y = UUID(int=2)
Z = UUID(int=3)
Way = list[tuple[UUID, int, int | None]]

CASES: list[
    tuple[Way, Way, CheckpointOfRun | None, list[OwnStretch], list[OwnStretch]]
] = [
    # strangers
    (
        [(X, 1, None)],
        [(Y, 1, None)],
        None,
        [OwnStretch(X, 1, -1, None)],
        [OwnStretch(Y, 1, -1, None)],
    ),
    # a run and its fork
    (
        [(X, 1, None)],
        [(X, 1, 6), (Y, 1, None)],
        CheckpointOfRun(X, 6),
        [OwnStretch(X, 1, 6, None)],
        [OwnStretch(Y, 1, -1, None)],
    ),
    # two forks from one checkpoint
    (
        [(X, 1, 6), (Y, 1, None)],
        [(X, 1, 6), (Z, 1, None)],
        CheckpointOfRun(X, 6),
        [OwnStretch(Y, 1, -1, None)],
        [OwnStretch(Z, 1, -1, None)],
    ),
    # two forks, one earlier
    (
        [(X, 1, 4), (Y, 1, None)],
        [(X, 1, 6), (Z, 1, None)],
        CheckpointOfRun(X, 4),
        [OwnStretch(Y, 1, -1, None)],
        [OwnStretch(X, 1, 4, 6), OwnStretch(Z, 1, -1, None)],
    ),
    # a run that went back to 3 after it was forked at 8
    (
        [(X, 1, 3), (X, 2, None)],
        [(X, 1, 8), (Y, 1, None)],
        CheckpointOfRun(X, 3),
        [OwnStretch(X, 2, -1, None)],
        [OwnStretch(X, 1, 3, 8), OwnStretch(Y, 1, -1, None)],
    ),
    # a fork of the second line, and the run itself
    (
        [(X, 1, 3), (X, 2, None)],
        [(X, 1, 3), (X, 2, 12), (Y, 1, None)],
        CheckpointOfRun(X, 12),
        [OwnStretch(X, 2, 12, None)],
        [OwnStretch(Y, 1, -1, None)],
    ),
]


@pytest.mark.parametrize(("a", "b", "common", "own_a", "own_b"), CASES)
def test_ways_part_at_the_last_checkpoint_that_both_count(
    a: Way,
    b: Way,
    common: CheckpointOfRun | None,
    own_a: list[OwnStretch],
    own_b: list[OwnStretch],
) -> None:
    way_a = [Stretch(*way) for way in a]
    way_b = [Stretch(*way) for way in b]
    assert parted(way_a, way_b) == (common, own_a, own_b)
    assert parted(way_b, way_a) == (common, own_b, own_a)
