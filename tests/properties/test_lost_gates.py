"""Who judges the runs of random deployments sees what a run began unsigned, whatever a
comparison of versions says.
"""

import pytest

from checkpoints.core.status import Status
from orchestrator import discovery, runs
from orchestrator.engine import END, Graph, registry
from orchestrator.engine.versions.ways_ahead import WaysAhead
from tests.engine.reference import Spec
from tests.properties.edits import PAID, Source
from tests.properties.lost_gates import Gated

pytestmark = pytest.mark.django_db(transaction=True)


def choosing(version: str, *ways: str) -> Source:
    """a leads to one of two gates, and to these nodes; what is paid comes behind either
    gate.
    """
    either = [
        Spec(name, gated=True, plain=[END], when={"approved": [PAID]})
        for name in ("b", "c")
    ]
    specs = [
        Spec("a", plain=[*ways], branch=["b", "c"]),
        *either,
        Spec(PAID, join="any", plain=[END]),
    ]
    return Source(specs, ["a"], version=version)


def deployed(source: Source) -> Graph:
    flow = source.graph("choosing", 0)
    registry.clear()
    registry.replace(flow)
    discovery.note_versions()
    return flow


@pytest.mark.parametrize("compared", [True, False])
def test_what_came_behind_either_of_two_gates_does_not_begin_unseen_without_both(
    compared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = choosing("1")
    run = runs.start(deployed(before).name, {})
    gated = Gated(before, run)
    deployed(choosing("2", PAID))
    if not compared:
        monkeypatch.setattr(WaysAhead, "round_gates", lambda self: iter(()))
    run = runs.advance(run.id)
    assert (run.status == Status.INCOMPATIBLE) == compared
    assert any(f"{PAID} began" in one for one in gated.passed()) != compared
