"""The eight verbs: one suite over every store and backend, and what the rows' store
promises beyond it.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints.models import Checkpoint, Run
from checkpoints.payloads import FilePayloads, MemoryPayloads, SealedPayloads
from checkpoints.store import CheckpointStore, MemoryStore, Stored, conformance
from orchestrator.engine.errors import (
    InvalidValue,
    SaveFailed,
    UnknownThing,
    WrongStatus,
)
from tests.support.payload_backends import Full
from tests.support.payload_runs import chain, kept_files
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    "rule", conformance.STORE_RULES, ids=lambda rule: rule.__name__
)
def test_the_store_in_the_database_keeps_the_contract(
    rule: Callable[[Any], None],
) -> None:
    rule(CheckpointStore())


def test_the_store_over_files_keeps_the_contract(cellar: Path) -> None:
    conformance.check_store(lambda: CheckpointStore("cellar"))


def test_the_store_over_sealed_files_keeps_the_contract(tmp_path: Path) -> None:
    conformance.check_store(
        lambda: CheckpointStore(SealedPayloads(FilePayloads(location=tmp_path)))
    )


def test_the_store_over_a_backend_of_ones_own_keeps_the_contract() -> None:
    backend = MemoryPayloads()
    conformance.check_store(lambda: CheckpointStore(backend, name="mine"))


# The suite itself


# Rows


def test_a_list_reads_no_payload_and_asks_once() -> None:
    store = CheckpointStore()
    for n in range(5):
        store.save("listed", {"scratch": {"n": n}}, graph="g")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert len(store.list(graph="g")) == 5
    assert len(queries) == 1
    assert 'snapshot"' not in queries[0]["sql"]
    assert '"change"' not in queries[0]["sql"]


def test_what_is_saved_lies_in_the_backend_and_goes_with_its_row(cellar: Path) -> None:
    store = CheckpointStore("cellar")
    saved = store.save("kept", {"scratch": {"n": 1}})
    assert len(kept_files(cellar)) == 2
    store.delete(saved.id)
    assert kept_files(cellar) == []
    store.save("kept", {})
    store.save("kept", {})
    store.clear("kept")
    assert kept_files(cellar) == []


def test_a_save_that_the_backend_refuses_leaves_no_row(cellar: Path) -> None:
    Full.left = 0
    with pytest.raises(SaveFailed):
        CheckpointStore("cellar").save("full", {})
    assert not Checkpoint.objects.exists()


def test_saves_at_the_same_moment_all_find_their_place() -> None:
    store = CheckpointStore()

    def save(n: int) -> Stored:
        try:
            return store.save("crowded", {"scratch": {"n": n}})
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        saved = list(pool.map(save, range(24)))
    assert sorted(one.seq for one in saved) == [*range(24)]
    assert len(store.list(run="crowded")) == 24


def test_a_run_of_the_installation_can_be_read_and_forked_but_not_written_to() -> None:
    run = advanced(chain("readable", "a", "b", payloads="database"))
    store = CheckpointStore()
    for name in (run.id, str(run.id), run.key):
        assert store.load(name).state["scratch"]["notes"] == ["a", "b"]
    assert [one.superstep for one in store.list(run=run.key)] == [2, 1, 0]
    assert store.load(run.id, node="a").meta.superstep == 1
    assert store.get(f"{run.key}:step-1").state["scratch"]["notes"] == ["a"]
    assert store.get(f"{run.key}:initial").state["input"] == {"folder": ""}
    newest = store.latest(run.id)
    assert newest is not None
    for act in (
        lambda: store.save(run.key, {}),
        lambda: store.delete(newest.id),
        lambda: store.clear(run.key),
    ):
        with pytest.raises(WrongStatus, match="retention removes it; it can be forked"):
            act()
    assert Checkpoint.objects.filter(run=run).count() == 3


def test_a_recovery_point_is_no_checkpoint_of_a_store() -> None:
    from tests.support.small_graphs import slice_of, started

    run = started(chain("hidden", "a", "b", payloads="database", checkpoints="none"))
    run = slice_of(run, draining=Checkpoint.objects.filter(run=run, kept=False).exists)
    hidden = Checkpoint.objects.get(run=run, kept=False)
    store = CheckpointStore()
    assert [one.superstep for one in store.list(run=run.id)] == [0]
    with pytest.raises(UnknownThing):
        store.get(hidden.id)


def test_a_fork_of_a_run_carries_its_input_and_leaves_its_rows_as_they_are() -> None:
    run = advanced(chain("forked", "a", "b", payloads="database"))
    store = CheckpointStore()
    before = list(Checkpoint.objects.filter(run=run).order_by("seq").values())
    forked = store.fork(f"{run.key}:step-1", {"scratch": {"total": 7}})
    row = store.get(forked.id)
    assert row.state["input"] == {"folder": ""}
    assert row.state["scratch"]["notes"] == ["a"]
    assert row.state["scratch"]["total"] == 7
    assert list(Checkpoint.objects.filter(run=run).order_by("seq").values()) == before
    assert not Run.objects.filter(id=forked.run).exists()


def test_a_patch_of_a_fork_must_fit_the_graph_that_is_registered_here() -> None:
    run = advanced(chain("typed", "a", payloads="database"))
    store = CheckpointStore()
    for patch in ({"scratch": {"total": "many"}}, {"scratch": {"colour": 1}}):
        with pytest.raises(InvalidValue):
            store.fork(f"{run.key}:step-1", patch)
    assert Checkpoint.objects.filter(source="fork").count() == 0
    forked = store.fork(f"{run.key}:step-1", {"scratch": {"notes": None}})
    assert store.get(forked.id).state["scratch"]["notes"] == []


def test_a_lent_backend_cannot_take_a_name_of_the_settings(
    cellar: Path, tmp_path: Path
) -> None:
    with pytest.raises(ImproperlyConfigured, match="'cellar'"):
        CheckpointStore(FilePayloads(location=tmp_path), name="cellar")


# The same in memory and in rows, whatever one does

KEYS = st.sampled_from(["a", "a%", "a_", "A"])
VALUES = st.dictionaries(
    st.sampled_from(["n", "m"]),
    st.integers(0, 3) | st.text("ab%", max_size=2),
    max_size=2,
)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), KEYS, VALUES),
        st.tuples(st.just("delete"), KEYS, st.integers(0, 4)),
        st.tuples(st.just("clear"), KEYS, st.none()),
        st.tuples(st.just("fork"), KEYS, VALUES),
    ),
    max_size=12,
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(ACTS)
def test_any_order_of_acts_leaves_the_same_in_memory_and_in_rows(
    acts: list[Any],
) -> None:
    Checkpoint.objects.all().delete()
    outcomes = [_done(store, acts) for store in (MemoryStore(), CheckpointStore())]
    assert outcomes[0] == outcomes[1]


def _done(store: Any, acts: list[Any]) -> list[Any]:
    content: list[Any] = []
    for verb, key, what in acts:
        try:
            if verb == "save":
                made = store.save(key, {"scratch": what})
                content.append(
                    (made.seq, made.superstep, made.source, made.stored_size > 0)
                )
            elif verb == "fork":
                made = store.fork(f"{key}:initial", {"scratch": what})
                content.append((made.seq, made.superstep, store.get(made.id).state))
            elif verb == "delete":
                store.delete(f"{key}:at-{what}")
            else:
                content.append(store.clear(key))
        except UnknownThing as error:
            content.append(error.code)
    keys = ("a", "a%", "a_", "A")
    return [
        content,
        [
            [(one.seq, store.get(one.id).state) for one in store.list(run=key)]
            for key in keys
        ],
    ]


def test_a_checkpoint_is_read_by_its_id_in_two_queries() -> None:
    store = CheckpointStore()
    saved = store.save("read", {"scratch": {"n": 1}})
    for ident in (saved.id, str(saved.id), saved.id.hex):
        with CaptureQueriesContext(connection) as queries:
            assert store.get(ident).state["scratch"] == {"n": 1}
        assert len(queries) == 2
    with CaptureQueriesContext(connection) as queries:
        assert store.get("read:initial").meta.id == saved.id
    assert len(queries) <= 4
