"""Metadata and figures of one's own: sealed, counted once, the same after a recovery,
found by columns.
"""

import io
import json
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction

from checkpoints import bundle, timeline
from checkpoints.bundle.verifier import Contents
from checkpoints.core.status import Status
from checkpoints.ledger import notes
from checkpoints.models import RunMetadata, TaskFigure
from checkpoints.retention.whole_runs import PARTS
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Graph, Send
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.step.notes import figure_number
from tests.support.bundles import forgotten
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import advanced, graph, registered

pytestmark = pytest.mark.django_db(transaction=True)

CUSTOMER = {"customer": "ACME", "tries": 3, "vip": True, "share": 0.5}


def counting(
    name: str = "counting",
    *,
    fails: list[bool] | None = None,
    effect: str = "pure",
    **settings: Any,
) -> Graph:
    """call notes tokens and a model; check fails while `fails` has a True; then it
    ends.
    """
    flow = graph(name, **settings)

    def call(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.figure("tokens", 1234)
        ctx.figure("tokens", 1)
        ctx.figure("cost", Decimal("0.25"))
        ctx.metadata("model", "large")
        return {"notes": ["called"]}

    def check(state: Any, ctx: Any) -> None:
        if fails and fails.pop(0):
            raise RuntimeError("not now")
        ctx.figure("tokens", 10)

    flow.node("call", effect=effect)(call)
    flow.node("check")(check)
    for source in ("call", "check"):
        flow.edge(START, source)
        flow.edge(source, END)
    return flow


def sums(run: Any) -> dict[str, Decimal]:
    """The figures of a run."""
    return {
        name: figure_number(value)
        for name, value in notes.figures_of_run(run.id).items()
    }


def started_with(flow: Graph, metadata: Any = CUSTOMER, **how: Any) -> Any:
    registered(flow)
    return runs.start(flow.name, {}, metadata=metadata, **how)


# Metadata of a run


def test_a_run_keeps_the_metadata_that_it_was_started_with_and_it_is_sealed() -> None:
    run = started_with(counting())
    assert notes.metadata_of(run) == CUSTOMER
    assert verify_run(run.id) == []


@pytest.mark.parametrize(
    ("metadata", "place"),
    [
        ({"a b": 1}, "'a b' is no name in metadata"),
        ({"a": None}, "metadata.a is a NoneType; give text, a number"),
        ({"a": [1]}, "metadata.a is a list"),
        ({"a": "x" * 201}, "metadata.a has more than 200 characters"),
        ({"a": "\x00"}, "metadata.a"),
        ({"a": float("nan")}, "metadata.a"),
        ({"a": 2**53}, "metadata.a"),
        ({f"n{n}": 1 for n in range(21)}, "metadata has 21 names; at most 20"),
        ("customer", "metadata must be an object"),
    ],
)
def test_metadata_that_cannot_be_kept_is_refused_by_name_and_nothing_starts(
    metadata: Any, place: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        started_with(counting(), metadata)
    assert place in refused.value.message
    assert not RunMetadata.objects.exists()


def test_the_same_key_gives_the_run_with_the_metadata_that_it_has() -> None:
    first = started_with(counting(), {"a": 1}, key="k")
    again = runs.start("counting", {}, key="k", metadata={"a": 2})
    assert again.id == first.id
    assert notes.metadata_of(again) == {"a": 1}


def test_a_fork_and_a_replay_have_the_metadata_of_their_origin_and_may_be_removed_apart() -> (
    None
):
    run = started_with(counting())
    runs.advance(run.id)
    fork = runs.fork(f"{run.key}:initial")
    replay = runs.replay(f"{fork.key}:initial")
    assert notes.metadata_of(fork) == notes.metadata_of(replay) == CUSTOMER
    assert verify_run(fork.id) == verify_run(replay.id) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: rows.filter(name="tries").update(name="times"),
        lambda rows: rows.filter(name="tries").update(text="9"),
        lambda rows: rows.filter(name="tries").delete(),
        lambda rows: rows.all().delete(),
        lambda rows: rows.filter(name="tries").update(seq=0),
    ],
)
def test_metadata_that_is_changed_or_gone_shows(damage: Any) -> None:
    run = started_with(counting())
    damage(RunMetadata.objects)
    assert verify_run(run.id) != []


def test_runs_are_found_by_their_metadata_and_by_nothing_else() -> None:
    mine = started_with(counting(), {"customer": "ACME", "tries": 3, "vip": True})
    other = started_with(counting(), {"customer": "Other", "supplier": "ACME"})
    everything = type(mine).objects.all()
    assert list(notes.with_metadata(everything, {"customer": "ACME"})) == [mine]
    assert list(
        notes.with_metadata(
            everything, {"customer": "ACME", "tries": "3", "vip": "true"}
        )
    ) == [mine]
    assert list(notes.with_metadata(everything, {"supplier": "ACME"})) == [other]
    assert not notes.with_metadata(
        everything, {"customer": "ACME", "tries": "4"}
    ).exists()


def test_a_filter_reads_the_index_of_metadata_alone() -> None:
    run = started_with(counting())
    matches = notes.with_metadata(
        type(run).objects.order_by("id"), {"customer": "ACME"}
    )
    if connection.vendor == "sqlite":
        assert "run_metadata_found (name=? AND text=? AND seq=?)" in matches.explain()
    else:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
            assert "run_metadata_found" in matches.explain()


def test_in_an_encrypted_run_only_indexed_metadata_is_readable_and_found(
    settings: Any,
) -> None:
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, **ONE_KEY}
    run = started_with(
        counting("secret", encrypted=True, indexed_metadata=["customer"])
    )
    assert notes.metadata_of(run) == CUSTOMER
    texts = dict(RunMetadata.objects.values_list("name", "text"))
    assert texts == {"customer": "ACME", "tries": "", "vip": "", "share": ""}
    everything = type(run).objects.all()
    assert notes.with_metadata(everything, {"customer": "ACME"}).exists()
    assert not notes.with_metadata(everything, {"vip": "true"}).exists()
    assert not notes.with_metadata(everything, {"vip": ""}).exists()
    assert verify_run(run.id) == []


# What nodes note


def test_what_a_node_notes_is_kept_with_its_checkpoint_and_sealed() -> None:
    run = advanced(counting())
    assert run.status == Status.COMPLETED
    assert sums(run) == {"cost": Decimal("0.25"), "tokens": 1245}
    assert notes.metadata_at(run, [0, 1]) == {1: {"model": "large"}}
    assert notes.figures_at(run, 1)["call"] == {
        "cost": 250_000,
        "tokens": 1_235_000_000,
    }
    noted = timeline.checkpoint_lines(run)
    assert [
        row.seq
        for row in notes.checkpoints_with_metadata(run.id, noted, {"model": "large"})
    ] == [1]
    assert not notes.checkpoints_with_metadata(
        run.id, noted, {"model": "small"}
    ).exists()
    assert verify_run(run.id) == []


@pytest.mark.parametrize(
    ("number", "place"),
    [
        (1.5, "give a whole number or a Decimal"),
        (True, "give a whole number or a Decimal"),
        ("7", "give a whole number or a Decimal"),
        (Decimal("NaN"), "must lie within"),
        (Decimal("Infinity"), "must lie within"),
        (10**9 + 1, "must lie within"),
        (Decimal("0.0000001"), "finer than millionths"),
    ],
)
def test_a_figure_that_cannot_be_added_up_fails_its_task_by_name(
    number: Any, place: str
) -> None:
    flow = graph("wrong")
    flow.node("call")(lambda state, ctx: ctx.figure("tokens", number))
    flow.edge(START, "call")
    flow.edge("call", END)
    run = advanced(flow)
    assert run.status == Status.FAILED
    assert place in read_value(run, "error")["message"]


@pytest.mark.parametrize("effect", ["pure", "external"])
def test_a_task_is_counted_once_however_often_its_superstep_is_resumed(
    effect: str,
) -> None:
    run = advanced(counting(fails=[True, True, False], effect=effect))
    for _ in range(2):
        assert run.status == Status.FAILED
        assert sums(run) == {"cost": Decimal("0.25"), "tokens": 1235}
        runs.resume(run.id)
        run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert sums(run) == {"cost": Decimal("0.25"), "tokens": 1245}
    assert verify_run(run.id) == []


def test_a_fork_or_a_rewind_of_an_open_superstep_counts_only_what_runs_anew() -> None:
    run = advanced(counting(fails=[True, False, False]))
    fork = runs.fork(f"{run.key}:at-{run.head_seq}")
    runs.advance(fork.id)
    assert sums(fork) == {"tokens": 10}
    runs.rewind(run.id, f"{run.key}:at-{run.head_seq}")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert sums(run) == {"cost": Decimal("0.25"), "tokens": 1245}
    assert verify_run(run.id) == verify_run(fork.id) == []


def test_a_rewind_to_before_a_task_counts_it_again_for_it_runs_again() -> None:
    run = advanced(counting())
    runs.rewind(run.id, f"{run.key}:initial")
    run = runs.advance(run.id)
    assert sums(run)["tokens"] == 2 * 1245
    assert verify_run(run.id) == []


def test_a_replay_counts_what_runs_again_and_nothing_that_was_recorded() -> None:
    run = advanced(counting(effect="external"))
    replay = runs.advance(runs.replay(f"{run.key}:initial").id)
    assert replay.status == Status.COMPLETED
    assert sums(replay) == {"tokens": 10}
    assert verify_run(replay.id) == []


def test_the_last_task_in_declared_order_wins_a_noted_name() -> None:
    flow = graph("fan")
    flow.node("split", sends="work")(
        lambda state, ctx: [Send("work", n) for n in range(3)]
    )
    flow.node("work")(lambda state, ctx: ctx.metadata("last", ctx.payload))
    flow.edge(START, "split")
    flow.edge("split", END)
    flow.edge("work", END)
    run = advanced(flow)
    assert notes.metadata_at(run, [run.head_seq]) == {run.head_seq: {"last": 2}}


@pytest.mark.parametrize(
    "damage",
    [
        lambda: TaskFigure.objects.filter(name="cost").update(millionths=1),
        lambda: TaskFigure.objects.filter(name="cost").update(day="2020-01-01"),
        lambda: TaskFigure.objects.filter(name="cost").delete(),
        lambda: TaskFigure.objects.all().delete(),
        lambda: RunMetadata.objects.all().delete(),
    ],
)
def test_a_figure_or_a_note_that_is_changed_or_gone_shows(damage: Any) -> None:
    run = advanced(counting())
    damage()
    assert verify_run(run.id) != []


def test_a_note_that_was_slipped_in_shows() -> None:
    run = advanced(graph_without_notes())
    of_run = notes.OfRun(run.id, run.graph, notes.protection_of(run))
    notes.insert_metadata(of_run, 1, {"a": 1}, run.created_at)
    assert "of which its log does not tell" in verify_run(run.id)[0].reason


def test_a_figure_that_was_changed_is_refused_in_the_sum_of_its_node_and_others_are_shown() -> (
    None
):
    run = advanced(counting())
    TaskFigure.objects.filter(name="cost").update(millionths=1)
    shown = notes.figures_at(run, 1)
    assert list(shown["call"]["cost"]) == ["refused"]
    assert shown["call"]["tokens"] == 1_235_000_000
    assert shown["check"]["tokens"] == 10_000_000


def graph_without_notes() -> Graph:
    flow = graph("plain")
    flow.node("step")(lambda state, ctx: None)
    flow.edge(START, "step")
    flow.edge("step", END)
    return flow


def test_a_secret_in_metadata_is_masked(settings: Any) -> None:
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, "SECRETS": {"bank": "hunter2"}}
    flow = graph("secretive")
    flow.node("call")(lambda state, ctx: ctx.metadata("seen", ctx.secrets["bank"]))
    flow.edge(START, "call")
    flow.edge("call", END)
    run = advanced(flow)
    assert notes.metadata_at(run, [1]) == {1: {"seen": "•••"}}


# Bundles


def bundled(run: Any) -> list[dict[str, Any]]:
    """The bodies of the lines of the run's bundle."""
    out = io.BytesIO()
    bundle.export(run.id, out)
    return [json.loads(line)["body"] for line in out.getvalue().splitlines()]


def verdict(bodies: list[dict[str, Any]]) -> str:
    """Return why the contents of these lines do not fit each other; empty where they
    do.
    """
    contents = Contents()
    try:
        for number, body in enumerate(bodies, 1):
            contents.take(body, number)
    except ValueError as error:
        return str(error)
    return ""


def test_a_bundle_carries_metadata_and_figures_and_comes_in_with_them(
    tmp_path: Any,
) -> None:
    run = advanced(counting())
    withdrawn = started_with(counting())
    runs.advance(withdrawn.id)
    out = io.BytesIO()
    bundle.export(withdrawn.id, out)
    out.seek(0)
    assert bundle.verify(io.BytesIO(out.getvalue()), bundle.public_key()).ok
    before = sums(withdrawn)
    forgotten(withdrawn)
    imported = bundle.load(out)
    assert sums(imported) == before == sums(run)
    assert notes.metadata_of(imported) == CUSTOMER
    assert (
        notes.with_metadata(type(run).objects.all(), {"customer": "ACME"}).get()
        == imported
    )
    assert verify_run(imported.id) == []


@pytest.mark.parametrize(
    ("kind", "column", "value", "reason"),
    [
        ("figure", "millionths", 1, "the log says other totals of the figures"),
        ("metadata", "value", '"Other"', "the log says another hash of the metadata"),
        ("metadata", "seq", 99, "the log says another hash of the metadata"),
    ],
)
def test_the_offline_verifier_compares_metadata_and_figures_with_the_log(
    kind: str, column: str, value: Any, reason: str
) -> None:
    run = started_with(counting())
    runs.advance(run.id)
    bodies = bundled(run)
    assert verdict(bodies) == ""
    next(body for body in bodies if body["kind"] == kind)["row"][column] = value
    assert verdict(bodies) == reason


def test_a_bundle_without_notes_says_nothing_of_them_so_that_earlier_verifiers_take_it_in() -> (
    None
):
    run = advanced(graph_without_notes())
    counts = next(body for body in bundled(run) if body["kind"] == "counts")["counts"]
    assert not {"metadata", "figure"} & counts.keys()


def test_a_run_that_is_removed_takes_its_notes_with_it() -> None:
    assert {RunMetadata, TaskFigure} <= {*PARTS}
