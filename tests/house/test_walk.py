"""The walk of docs/development.md: a superstep and a signature pass through the files that it lists, in its order."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from approvals import reviews
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.worker import shared_state, tasks
from orchestrator.worker.shared_state import SharedState
from tests.support import run_actions
from tests.support.cast import People
from tests.support.small_graphs import graph, registered

ROOT = Path(__file__).resolve().parents[2]
WALKS = re.findall(r"^\d+\. `([\w/]+\.py)`", (ROOT / "docs/development.md").read_text(), re.MULTILINE)
SUPERSTEP, SIGNATURE = WALKS[:10], WALKS[10:]

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def calls(*, forget_at: str = "") -> Iterator[list[str]]:
    """The files of this project in which a function is called, once each, in the order of their first call. When the
    function `forget_at` is first called, all but the first two are forgotten: what is loaded before it is no part.
    """
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal forget_at
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            if frame.f_code.co_name == forget_at:
                forget_at = ""
                for path in [path for path in found if path not in SUPERSTEP[:2]]:
                    del found[path]
            found.setdefault(str(Path(frame.f_code.co_filename).relative_to(ROOT)))

    passed: list[str] = []
    sys.setprofile(note)
    try:
        yield passed
    finally:
        sys.setprofile(None)
    passed += found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedState]:
    """What worker processes share, without a cluster."""
    state = SharedState(1)
    monkeypatch.setattr(shared_state, "_installed", state)
    yield state
    state.close()


def in_order(listed: list[str], passed: list[str]) -> list[str]:
    return [path for path in passed if path in listed]


def test_the_walk_has_ten_files_and_five() -> None:
    assert (len(SUPERSTEP), len(SIGNATURE)) == (10, 5)
    assert all((ROOT / path).is_file() for path in WALKS)


def test_a_superstep_passes_through_the_ten_files_in_this_order(cluster: SharedState) -> None:
    made = graph("walked")
    made.node("first")(lambda state, ctx: {"notes": ["first"]})
    made.edge(START, "first")
    made.edge("first", END)
    run = runs.start(registered(made).name, {})
    claim = leases.claim_one(run.id)
    assert claim is not None
    cluster.slots.claim(claim)
    with calls(forget_at="_turn") as passed:
        tasks.advance(str(run.id), claim.epoch)
    run.refresh_from_db()
    assert run.status == "completed"
    assert in_order(SUPERSTEP, passed) == SUPERSTEP


def test_a_signature_passes_through_the_five_files_in_this_order(tmp_path: Path, people: People) -> None:
    run = run_actions.start("gated", tmp_path)
    by = run_actions.reviewer(people.reviewer)
    items: list[dict[str, Any]] = [
        {"write": str(row.write), "hash": row.hash, "verdict": "approve"} for row in run_actions.pending(run)
    ]
    sign: Callable[..., Any] = reviews.sign
    with calls() as passed:
        sign(run.id, items, by=by)
    assert in_order(SIGNATURE, passed) == SIGNATURE
