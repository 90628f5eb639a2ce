"""A run that nobody touched verifies, whatever happened in it; and the command says so."""

import json
import threading
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from checkpoints import timeline
from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.db.pages import pages
from checkpoints.models import AuditLine, Checkpoint, Job, Run
from checkpoints.queue import jobs as job_queue
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from checkpoints.verification.log import log
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.jobs import integrity, kinds
from tests.graphs_app import graphs
from tests.support import cast, run_actions
from tests.support import small_graphs as small
from tests.support.forging import rewrite
from tests.support.small_graphs import slice_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    "graph", ["effects", "loop_every", "loop_none", "loop_third", "flaky"]
)
def test_a_run_that_completed_verifies(graph: str, tmp_path: Path) -> None:
    run = run_actions.start(graph, tmp_path)
    assert run.status == "completed"
    assert verify_run(run.id) == []


def test_the_log_says_which_change_each_checkpoint_made(tmp_path: Path) -> None:
    run = run_actions.start("effects", tmp_path)
    rows = Checkpoint.objects.filter(run=run)
    content = {
        facts["checkpoint"]: facts["change"]
        for facts in (
            read_value(line, "payload") for line in timeline.events_after(run.id, 0)
        )
        if "change" in facts
    }
    assert content == {str(row.id): row.change_hash for row in rows}
    rewrite(rows.order_by("-seq")[0], change_hash="0" * 64)
    assert any("changed otherwise" in fault.reason for fault in verify_run(run.id))


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_change_is_compared_also_where_a_later_page_of_the_log_says_that_it_stays(
    size: int, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = runs.start("loop_none", {})
    slice_of(run)
    run = runs.cancel(slice_of(run).id)
    monkeypatch.setitem(log.__globals__, "pages", partial(pages, size=size))
    assert verify_run(run.id) == []
    rewrite(Checkpoint.objects.get(id=run.head), change_hash="0" * 64)
    assert any("changed otherwise" in fault.reason for fault in verify_run(run.id))


@pytest.mark.parametrize("graph", ["gated", "beside"])
def test_a_run_that_waits_for_people_verifies(graph: str, tmp_path: Path) -> None:
    run = run_actions.start(graph, tmp_path)
    assert run.status == "paused"
    assert verify_run(run.id) == []


@pytest.mark.parametrize(
    "verdicts",
    [
        ["approve"] * 4,
        ["reject"] * 4,
        [("edit", {"amount": "9"}), "reject", "approve", "approve"],
        ["approve", None] * 2,
    ],
)
def test_a_run_in_which_people_decided_verifies(
    verdicts: list[Any], tmp_path: Path, people: cast.People
) -> None:
    run = run_actions.start("gated", tmp_path)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), verdicts)
    assert verify_run(run.id) == []
    runs.advance(run.id)
    assert verify_run(run.id) == []


def test_a_run_whose_held_writes_were_based_anew_verifies(
    tmp_path: Path, people: cast.People
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run = run_actions.start("beside", tmp_path)
    run_actions.sign(run, rita, ["approve", "approve"])
    runs.advance(run.id)
    assert verify_run(run.id) == []


def test_a_run_that_failed_and_was_resumed_verifies(tmp_path: Path) -> None:
    graphs.BROKEN.add("fragile")
    try:
        run = run_actions.start("flaky", tmp_path)
        assert run.status == "failed"
        assert verify_run(run.id) == []
    finally:
        graphs.BROKEN.clear()
    runs.resume(run.id)
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert verify_run(run.id) == []


def test_the_command_counts_the_runs_and_ends_well(tmp_path: Path, capsys: Any) -> None:
    made = [
        run_actions.start("effects", tmp_path),
        run_actions.start("gated", tmp_path),
    ]
    call_command("verify_runs", "--json")
    assert json.loads(capsys.readouterr().out) == {"checked": len(made), "bad": []}
    call_command("verify_runs")
    assert capsys.readouterr().out.splitlines() == ["2 of 2 verified, 0 bad"]
    call_command("verify_runs", "--since", "2999-01-01")
    assert capsys.readouterr().out.splitlines() == ["0 of 0 verified, 0 bad"]


def test_a_name_that_no_graph_has_is_not_taken_for_nothing_to_verify(
    capsys: Any,
) -> None:
    with pytest.raises(CommandError, match="there is no graph gaited"):
        call_command("verify_runs", "--graph", "gaited")
    assert capsys.readouterr().out == ""


def test_what_is_bad_beside_the_runs_is_not_counted_as_a_run(tmp_path: Path) -> None:
    run_actions.start("effects", tmp_path)
    line = audit_log.record("refused_login", actor=None)
    audit_chain.chain_lines()
    AuditLine.objects.filter(id=line.id).update(kind="signed")
    with pytest.raises(
        CommandError,
        match="0 of 1 runs, and 1 things beside them are not as they were written",
    ):
        call_command("verify_runs")


def test_the_command_names_the_bad_run_the_checkpoint_and_the_reason_and_ends_with_1(
    tmp_path: Path, capsys: Any
) -> None:
    good = run_actions.start("effects", tmp_path)
    bad = run_actions.start("effects", tmp_path)
    third = Checkpoint.objects.get(run=bad, seq=2)
    Checkpoint.objects.filter(id=third.id).update(took_ms=70_000)
    with pytest.raises(
        CommandError, match="1 of 2 runs are not as they were written"
    ) as raised:
        call_command("verify_runs", "--json")
    assert raised.value.returncode == 1
    details = json.loads(capsys.readouterr().out)
    assert details["checked"] == 2
    [bad_run] = details["bad"]
    assert bad_run["run"] == str(bad.id)
    assert bad_run["checkpoint"] == str(third.id)
    assert bad_run["faults"] == 1
    assert (
        bad_run["reason"]
        == f"checkpoints_checkpoint {bad.id} {third.id} is not as it was sealed"
    )
    call_command("verify_runs", good.key)


def test_the_command_can_be_asked_about_some_runs_only(
    tmp_path: Path, capsys: Any
) -> None:
    run = run_actions.start("effects", tmp_path)
    run_actions.start("gated", tmp_path)
    for args, count in (
        ([run.key], 1),
        (["--graph", "gated"], 1),
        (["--since", "2999-01-01"], 0),
        ([], 2),
    ):
        call_command("verify_runs", *args, "--json")
        assert json.loads(capsys.readouterr().out)["checked"] == count


def test_only_with_mark_a_bad_run_is_stopped(tmp_path: Path) -> None:
    run = run_actions.start("gated", tmp_path)
    Checkpoint.objects.filter(run=run, seq=0).update(took_ms=99)
    for args, status in (((), "paused"), (("--mark",), "tampered")):
        with pytest.raises(CommandError):
            call_command("verify_runs", *args, verbosity=0)
        assert Run.objects.get(id=run.id).status == status


def test_a_verification_can_be_left_to_the_workers_and_says_its_result_in_the_audit_log(
    tmp_path: Path, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "BATCH", 1)
    good = run_actions.start("effects", tmp_path)
    bad = run_actions.start("gated", tmp_path)
    Checkpoint.objects.filter(run=bad, seq=0).update(took_ms=70_000)
    call_command("verify_runs", "--job", "--mark", "--by", people.steward.username)
    job = Job.objects.get(kind="verify_runs")
    slices = 0
    while epoch := job_queue.claim_one(job.id):
        kinds.run_job(job.id, epoch, draining=lambda: True)  # stopped after each run
        slices += 1
    job.refresh_from_db()
    assert job.status == "done"
    assert job.progress["done"] == 2
    assert job.progress["total"] == 2
    assert slices == 3
    line = AuditLine.objects.get(kind="runs_verified")
    assert line.actor == people.steward
    assert line.facts["checked"] == 2
    assert line.facts["failed"] == 1
    assert [fault["run"] for fault in line.facts["bad"]] == [str(bad.id)]
    assert Run.objects.get(id=bad.id).status == "tampered"
    assert Run.objects.get(id=good.id).status == "completed"


def test_a_run_that_goes_on_while_it_is_verified_is_never_called_bad(
    tmp_path: Path,
) -> None:
    collected = []
    stop = threading.Event()
    looked = [0]

    def look() -> None:
        try:
            while not stop.is_set():
                for run in Run.objects.values_list("id", flat=True):
                    collected.extend(verify_run(run))
                    looked[0] += 1
        finally:
            connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for graph in ("loop_every", "loop_third", "effects", "beside"):
            run_actions.start(graph, tmp_path)
    finally:
        stop.set()
        thread.join()
    assert collected == []
    assert looked[0] > 0


def _peak(steps: int) -> int:
    """The most memory, in bytes, that verifying a run of so many supersteps takes."""
    flow = small.graph(f"count_{steps}", max_supersteps=steps)
    flow.node("add")(lambda state, ctx: {"total": state.total + 1})
    flow.edge(START, "add")
    flow.branch(
        "add",
        lambda state: "again" if state.total < steps else "done",
        {"again": "add", "done": END},
    )
    run = small.advanced(flow)
    assert run.superstep == steps
    verify_run(run.id)
    tracemalloc.start()
    try:
        assert verify_run(run.id) == []
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_run_five_times_as_long_is_verified_in_the_same_memory() -> None:
    assert _peak(1000) < 1.5 * _peak(200)


def test_a_run_whose_key_or_storage_is_away_is_named_and_never_marked(
    tmp_path: Path, settings: Any
) -> None:
    run = run_actions.start("gated", tmp_path)
    settings.SECRET_KEY = "another secret key"
    with pytest.raises(CommandError):
        call_command("verify_runs", "--mark", verbosity=0)
    assert Run.objects.get(id=run.id).status == "paused"


def test_a_backend_that_is_away_is_no_tampering(
    tmp_path: Path, settings: Any, configure: Any
) -> None:
    here = {
        "PAYLOADS": {
            "here": {
                "backend": "files",
                "options": {"location": str(tmp_path / "payloads")},
            }
        }
    }
    configure(**here)
    flow = small.graph("elsewhere", payloads="here")
    flow.node("add")(lambda state, ctx: {"total": 1})
    flow.edge(START, "add")
    flow.edge("add", END)
    run = small.advanced(flow)
    assert verify_run(run.id) == []
    settings.COUNTERSIGN = {
        name: value
        for name, value in settings.COUNTERSIGN.items()
        if name != "PAYLOADS"
    }
    assert {fault.code for fault in verify_run(run.id)} == {"unknown_backend"}
    configure(**here)
    for file in (tmp_path / "payloads").rglob("*.payload"):
        file.unlink()
    assert {fault.code for fault in verify_run(run.id)} == {"payload_lost"}
