"""The Python surface with nonsense in every parameter: only documented errors come out,
and nothing is changed.

The parameters are read from the signatures; the list of functions is held complete.
COUNTERSIGN_EXAMPLES=1000 tries every value in every parameter of each, fewer a share
that is drawn by COUNTERSIGN_SEED.
"""

import inspect
import io
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from random import Random
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import connection, transaction

from approvals import reviews
from approvals.exported_receipt import export_receipt
from checkpoints import bundle, retention, timeline, uploads
from checkpoints.models import PendingWrite, Run
from checkpoints.queue import jobs
from checkpoints.store import CheckpointStore
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import CountersignError
from tests.properties.drawing import EXAMPLES, SEED
from tests.properties.nonsense import TEXTS, VALUES
from tests.support import claims
from tests.support.authenticators import SESSION, SITE
from tests.support.cast import People
from tests.support.table_contents import contents

SHARE = 25
"""Calls for each example of COUNTERSIGN_EXAMPLES."""
ODD: list[Any] = [
    *TEXTS,
    *VALUES,
    object(),
    b"\x00",
    (),
    {1: 2},
    {1, 2},
    float("nan"),
    float("inf"),
    datetime.max,
    datetime.min,
    AnonymousUser(),
    UUID(int=0),
    [{}],
    [{"write": None}],
    [{1: 2}],
    [{"\ud800": 1, 2: 3}],
]


def _surface(
    run: Run, other: Run, receipt_of: Mapping[str, Any], by: Any
) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Name -> function and arguments that are fine."""
    here = {"run_id": run.id}
    there = {"checkpoint_id": run.head}
    return (
        _travels(run, other)
        | _leaving(run)
        | _stored(run)
        | {
            "runs.start": (
                runs.start,
                {
                    "graph": "page_claim",
                    "input": {"claim_id": "C", "amount": "1"},
                    "key": "C",
                },
            ),
            "runs.get": (runs.get, here),
            "runs.resume": (runs.resume, here),
            "runs.cancel": (runs.cancel, here),
            "runs.settle": (
                runs.settle,
                {**here, "task": "pay:1:0", "happened": True, "reason": "r"},
            ),
            "timeline.find_checkpoint": (
                timeline.find_checkpoint,
                {"id_or_alias": run.head},
            ),
            "reviews.sign": (
                reviews.sign,
                {**here, "decisions": [receipt_of], "by": by},
            ),
            "reviews.passkey_challenge": (
                reviews.passkey_challenge,
                {
                    **here,
                    "decisions": [receipt_of],
                    "by": by,
                    "site": SITE,
                    "session": SESSION,
                },
            ),
            "reviews.decide": (
                reviews.decide,
                {
                    "request_id": run.requests.get().id,
                    "decisions": [receipt_of],
                    "by": by,
                },
            ),
            "timeline.list_checkpoints": (timeline.list_checkpoints, here),
            "timeline.get_checkpoint": (
                timeline.get_checkpoint,
                {"id_or_alias": run.head},
            ),
            "timeline.read_checkpoint": (
                timeline.read_checkpoint,
                {"id_or_alias": run.head},
            ),
            "timeline.open_checkpoint": (timeline.open_checkpoint, there),
            "timeline.state_at": (timeline.state_at, there),
            "timeline.head_state": (timeline.head_state, here),
            "timeline.diff": (timeline.diff, {"a": run.head, "b": run.head}),
            "timeline.events": (timeline.events, here),
            "timeline.events_after": (timeline.events_after, {**here, "seq": 0}),
            "verify_run": (verify_run, here),
            "jobs.add_job": (jobs.add_job, {"kind": "verify_runs"}),
            "jobs.cancel_job": (jobs.cancel_job, {"job_id": UUID(int=1)}),
            "jobs.cancel_jobs_of": (jobs.cancel_jobs_of, here),
            "uploads.save_upload": (
                lambda name, by: uploads.save_upload(
                    io.BytesIO(b"x"), name=name, by=by
                ),
                {"name": "a.txt", "by": None},
            ),
            "uploads.open_ref": (uploads.open_ref, {"ref": {"file": str(UUID(int=1))}}),
        }
    )


def _stored(run: Run) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """The same of a store."""
    store = CheckpointStore()
    return {
        "store.save": (store.save, {"run": "mine", "state": {"scratch": {"n": 1}}}),
        "store.get": (store.get, {"checkpoint": run.head}),
        "store.load": (store.load, {"run": run.key}),
        "store.latest": (store.latest, {"run": run.key}),
        "store.list": (store.list, {}),
        "store.delete": (store.delete, {"checkpoint": UUID(int=1)}),
        "store.clear": (store.clear, {"run": "mine"}),
        "store.fork": (store.fork, {"checkpoint": run.head}),
    }


def _leaving(run: Run) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """The same of what leaves the house, comes in, and is forgotten."""
    return {
        "retention.erase": (retention.erase, {"run_id": run.id, "reason": "r"}),
        "retention.plan_erasure": (retention.plan_erasure, {"run_id": run.id}),
        "bundle.export": (
            lambda run_id, by, as_is: bundle.export(
                run_id, io.BytesIO(), by=by, as_is=as_is
            ),
            {"run_id": run.id, "by": None, "as_is": False},
        ),
        "bundle.load": (lambda by: bundle.load(io.BytesIO(b"{}"), by=by), {"by": None}),
        "export_receipt": (export_receipt, {"decision_id": UUID(int=1)}),
    }


def _travels(
    run: Run, other: Run
) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """The same of going back in time."""
    here = {"run_id": run.id}
    there = {"checkpoint": run.head}
    return {
        "timeline.blame": (
            timeline.blame,
            {"checkpoint_id": run.head, "path": "notes[0]"},
        ),
        "timeline.history": (timeline.history, {**here, "path": "notes"}),
        "timeline.lineage": (timeline.lineage, here),
        "timeline.head_document": (timeline.head_document, here),
        "timeline.align": (timeline.align, {"run_a": run.id, "run_b": other.id}),
        "runs.fork": (runs.fork, there),
        "runs.fork_many": (runs.fork_many, {"graph": "page_claim", "status": "paused"}),
        "runs.plan": (runs.plan, there),
        "runs.replay": (runs.replay, there),
        "runs.replay_report": (runs.replay_report, here),
        "runs.rewind": (runs.rewind, {**here, **there}),
    }


NOT_HERE = {
    "timeline.input_of",
    "timeline.fault_of_run",
    "timeline.start_of_log",
    "timeline.parent_of",
    "runs.advance",
    "runs.input_of",
    "timeline.aliases",
    "timeline.alias_of",
    "timeline.snapshot_of",
    "timeline.neighbours",
    "timeline.node_outputs",
    "timeline.changes",
    "timeline.held_at",
    "timeline.results_at",
    "timeline.payload_of",
    "timeline.checkpoint_lines",
    "timeline.below_queries",
    "timeline.keep_setters",
    "timeline.read_step",
    "timeline.unlisted_setters",
}
"""They take rows that the others gave; `advance` works on the run, so it is tried with
ids alone, below.
"""


@pytest.fixture
def surface(
    people: People,
) -> Iterator[dict[str, tuple[Callable[..., Any], dict[str, Any]]]]:
    with claims.registered(claims.graph_of()):
        run = claims.paused("CLM-1", people.starter)
        row = PendingWrite.objects.filter(run=run).first()
        assert row is not None
        decision = {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
        yield _surface(
            run, claims.paused("CLM-2", people.starter), decision, people.reviewer
        )


def test_the_list_of_functions_is_complete(surface: Mapping[str, Any]) -> None:
    functions = {
        f"runs.{name}"
        for name in runs.__all__
        if inspect.isfunction(getattr(runs, name))
    }
    for name, module in (("timeline", timeline), ("reviews", reviews)):
        own = inspect.getmembers(module, inspect.isfunction)
        functions |= {
            f"{name}.{each}"
            for each, function in own
            if function.__module__.startswith(module.__name__) and each[0] != "_"
        }
    functions |= {
        f"store.{each}"
        for each, _ in inspect.getmembers(CheckpointStore, inspect.isfunction)
        if each[0] != "_"
    }
    assert functions - NOT_HERE <= {*surface}


def test_nonsense_in_any_parameter_raises_documented_errors_and_changes_nothing(
    surface: Mapping[str, Any],
) -> None:
    before = contents()
    wrong = []
    calls = [
        (name, parameter, value)
        for name, (function, _) in surface.items()
        for parameter in inspect.signature(function).parameters
        for value in ODD
        # `below` are rows that the others gave.
        if parameter not in ("facts", "below")
    ]
    Random(SEED).shuffle(calls)
    for name, parameter, value in calls[: EXAMPLES * SHARE]:
        function, fine = surface[name]
        said = f"{name}({parameter}={value!r:.60})"
        written = []

        def watch(
            execute: Any, sql: str, *rest: Any, written: list[str] = written
        ) -> Any:
            written += [sql] if sql.startswith(("INSERT", "UPDATE", "DELETE")) else []
            return execute(sql, *rest)

        with transaction.atomic():
            try:
                with transaction.atomic(), connection.execute_wrapper(watch):
                    function(**{**fine, parameter: value})
            except CountersignError:
                wrong += (
                    [f"{said} changed something"]
                    if written and contents() != before
                    else []
                )
            except Exception as error:
                wrong.append(f"{said}: {type(error).__name__}: {error!s:.120}")
            transaction.set_rollback(True)
    assert not wrong, f"{len(wrong)} of {len(calls)}:\n" + "\n".join(
        sorted(wrong)[:600]
    )


@pytest.mark.django_db
def test_what_is_no_id_is_no_run_to_work_on() -> None:
    for text in ("\x00", "\ud800", "x" * 1000, "9" * 5000, None, 7):
        with pytest.raises(CountersignError):
            runs.get(text)  # type: ignore[arg-type]
