"""How long a run stays without a worker when its own was killed. `python -m
tests.soak.takeover` measures many.
"""

import pytest

from tests.soak.takeover import Takeovers, measure

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_dead_workers_runs_are_taken_over_within_the_lease_and_five_seconds(
    tmp_path, capsys
):
    takeovers = measure(tmp_path, kills=2, lease=3.0, at_once=2)
    with capsys.disabled():
        print(f"\n{takeovers}")
    assert takeovers.percentile(99) <= takeovers.promised


def test_a_percentile_is_the_smallest_figure_that_so_many_do_not_exceed():
    takeovers = Takeovers(15.0, tuple(float(n) for n in range(1, 101)))
    assert takeovers.percentile(50) == 50.0
    assert takeovers.percentile(99) == 99.0
    assert takeovers.percentile(100) == 100.0
    assert Takeovers(15.0, (1.0,)).percentile(99) == 1.0
    assert "BROKEN" in str(Takeovers(15.0, (1.0, 21.0)))
    assert "kept" in str(Takeovers(15.0, (1.0, 19.0)))
