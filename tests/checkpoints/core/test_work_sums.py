"""Sums of what a cluster did: each process adds to the row of its slot, whoever dies."""

import os

import pytest

from checkpoints.core import work_sums
from checkpoints.core.work_sums import BOUNDS, WorkSums


def in_a_child(sums: WorkSums, slot: int, times: int) -> None:
    pid = os.fork()
    if not pid:
        sums.use_row(slot)
        for _ in range(times):
            sums.add("checkpoints")
            sums.add_superstep(0.02)
        os._exit(0)
    os.waitpid(pid, 0)


def test_the_totals_are_those_of_all_slots_and_survive_their_processes() -> None:
    sums = WorkSums(3)
    in_a_child(sums, 0, 2)
    in_a_child(sums, 2, 3)
    in_a_child(sums, 2, 1)
    totals = sums.totals()
    assert totals["checkpoints"] == 6
    assert totals["superstep_seconds"] == pytest.approx(0.12)
    assert totals["superstep_buckets"][BOUNDS.index(0.025)] == 6
    assert sum(totals["superstep_buckets"]) == 6
    assert totals["leases_lost"] == 0


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(0.0, 0), (0.005, 0), (0.0051, 1), (60, 12), (61, 13)]
)
def test_a_superstep_falls_into_the_bucket_whose_bound_it_does_not_pass(
    seconds: float, bucket: int
) -> None:
    sums = WorkSums(1)
    sums.add_superstep(seconds)
    assert sums.totals()["superstep_buckets"][bucket] == 1


def test_nothing_is_counted_where_nobody_watches() -> None:
    assert work_sums.installed is None
    work_sums.count("checkpoints")
