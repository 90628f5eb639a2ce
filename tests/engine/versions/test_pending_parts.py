"""What a run leans on is read from where it stands, and survives the row that keeps it."""

from typing import Any

from orchestrator.engine.graphs.effect import REJECTED
from orchestrator.engine.step.frontier import ErrorInfo, Frontier, Part
from orchestrator.engine.versions.pending_parts import Pending, lost_ways, pending_parts


def frontier(**parts: Any) -> dict[str, Any]:
    return Frontier(**parts).to_json()


def result(**parts: Any) -> dict[str, Any]:
    return {"output": {"writes": [], "goto": None, "sends": [], **parts}, "error": None}


def kept(pending: Pending) -> Pending | None:
    return Pending.from_text(pending.to_text())


def test_what_is_pending_is_read_from_frontier_and_open_superstep() -> None:
    at = frontier(
        tokens={"a>b": 2}, sends=(("c", (1,)),), waiting={"d:1": (), "$patch:1": ()}
    )
    open_ = {
        "results": {
            "e:1:0": result(writes=[{"channel": "x"}]),
            "f:1:0": {"output": None, "error": None},
        },
        "tries": {"g:2:0": 1},
        "asked": ["e:1:0"],
    }
    pending = pending_parts(at, open_)
    assert pending == Pending(("a>b",), ("c", "e", "f", "g"), ("d", "e"), ("x",))
    assert kept(pending) == pending
    assert kept(Pending()) == Pending()
    assert Pending.from_text("") is None, "nobody wrote it down"


def test_a_goto_a_send_and_an_error_that_wait_are_ways_that_are_kept() -> None:
    error = ErrorInfo("d", "KeyError", "x")
    parts = (
        Part("gated", ("p",), (("q", 1), ("q", 2))),
        Part("error", error=error),
        Part(REJECTED, ("gone",)),
    )
    failed = {"output": None, "error": error.to_json()}
    open_ = {
        "results": {"e:1:0": result(goto=["r"], sends=[["s", 1]]), "f:1:0": failed}
    }
    pending = pending_parts(frontier(waiting={"d:1": parts}), open_)
    assert pending.ways_on == ("d!error", "d=>p", "d~>q", "e=>r", "e~>s", "f!error")
    assert kept(pending) == pending
    assert pending.takes("d>mend!error")
    assert not pending.takes("d>mend!approved")
    there = ["d=>p", "d~>q", "f>mend!error", "d>x", "e>s"]
    assert lost_ways(pending.ways_on, there) == ["d!error", "e=>r", "e~>s"]
