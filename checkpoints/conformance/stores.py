"""The rules of a store. Each is a function of one store; keys of runs in it are used
once and never again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from checkpoints.conformance.rule import must, refusing, run
from checkpoints.core.ids import uuid7
from checkpoints.core.records import Snapshot, Stored
from orchestrator.engine.errors import InvalidValue, KeyConflict, UnknownThing


class Store(Protocol):
    """The eight verbs."""

    def save(
        self, run: UUID | str, state: Mapping[str, Any], **about: Any
    ) -> Stored: ...
    def get(self, checkpoint: UUID | str) -> Snapshot: ...
    def load(
        self, run: UUID | str, node: str | None = None, superstep: int | None = None
    ) -> Snapshot: ...
    def latest(self, run: UUID | str) -> Stored | None: ...
    def delete(self, checkpoint: UUID | str) -> None: ...
    def clear(self, run: UUID | str) -> int: ...
    def fork(
        self, checkpoint: UUID | str, patch: Mapping[str, Any] | None = None
    ) -> Stored: ...
    def list(
        self,
        graph: str | None = None,
        run: UUID | str | None = None,
        limit: int = 50,
        before: UUID | str | None = None,
        after: UUID | str | None = None,
        ascending: bool = False,
    ) -> Sequence[Stored]: ...


EMPTY: dict[str, dict[str, Any]] = {
    "input": {},
    "scratch": {},
    "artifacts": {},
    "diagnostics": {},
}
# Values at the limits of the canonical form, and keys that look like paths.
STATES: tuple[dict[str, Any], ...] = (
    {},
    {
        "scratch": {
            "n": 2**53 - 1,
            "x": -0.5,
            "no": None,
            "yes": True,
            "deep": {"a": [1, [2, {}], ""]},
        }
    },
    {
        "scratch": {"text": "ä 漢字 \u2028 \U0001f600"},
        "artifacts": {"report": "x" * 20_000},
    },
    {
        "input": {"claim": "C-1"},
        "diagnostics": {"supersteps": 3},
        "scratch": {"": 1, "a.b": 2, "a/b": 3},
    },
)
# Values without a canonical form, and states that have no partitions.
REFUSED: tuple[Any, ...] = (
    {"scratch": {"n": float("nan")}},
    {"scratch": {"n": 2**70}},
    {"scratch": {"n": "\ud800"}},
    {"scratch": {"n": "a\x00b"}},
    {"scratch": {"n": {1: 2}}},
    {"scratch": {"n": object()}},
    {"scratch": [1]},
    {"pockets": {}},
    "scratch",
)


def what_is_saved_is_loaded(store: Store) -> None:
    key = _key()
    for state in STATES:
        saved = store.save(key, state)
        for loaded in (store.get(saved.id), store.get(str(saved.id)), store.load(key)):
            must(
                loaded.meta == saved,
                "a checkpoint comes back with other metadata than save gave",
            )
            must(
                loaded.state == {**EMPTY, **state},
                f"a state comes back as {loaded.state!r:.200}",
            )


def a_value_that_cannot_be_kept_is_refused_and_nothing_is_saved(store: Store) -> None:
    key = _key()
    for state in REFUSED:
        with refusing(InvalidValue, words=f"save of {state!r:.60}"):
            store.save(key, state)
    for about in (
        {"graph": "g" * 201},
        {"version": 3},
        {"superstep": -1},
        {"superstep": 1.5},
        {"node": [3]},
    ):
        with refusing(InvalidValue, words=f"save with {about!r:.60}"):
            store.save(key, {}, **about)
    # Deeper than Python recurses: a refusal, not a `RecursionError`.
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    with refusing(InvalidValue, words="save of a value 10,000 deep"):
        store.save(key, {"scratch": {"n": deep}})
    must(store.latest(key) is None, "a refused save left a checkpoint")


def what_callers_do_to_their_objects_is_not_seen(store: Store) -> None:
    key = _key()
    state = {"scratch": {"notes": ["one"]}}
    saved = store.save(key, state)
    state["scratch"]["notes"].append("two")
    first = store.get(saved.id)
    first.state["scratch"]["notes"].append("three")
    must(
        store.get(saved.id).state["scratch"] == {"notes": ["one"]},
        "a caller's object is the store's own",
    )


def ids_sort_by_time_and_counts_are_in_order(store: Store) -> None:
    key = _key()
    # Enough rows for several to fall within one millisecond.
    saves = [store.save(key, {"scratch": {"n": n}}) for n in range(50)]
    must([meta.id.version for meta in saves] == [7] * 50, "ids are no UUIDv7")
    must(
        sorted(meta.id for meta in saves) == [meta.id for meta in saves],
        "ids do not rise",
    )
    must([meta.seq for meta in saves] == [*range(50)], "seq does not count from 0")
    must(
        [meta.superstep for meta in saves] == [*range(50)], "supersteps do not count on"
    )
    must(
        [meta.parent for meta in saves] == [None, *(meta.id for meta in saves[:-1])],
        "parents are not the ones before",
    )
    must(
        store.latest(key) == saves[-1],
        "latest is not the newest of saves within a millisecond",
    )
    must(
        store.load(key).meta == saves[-1],
        "load is not the newest of saves within a millisecond",
    )


def lists_give_metadata_newest_first(store: Store) -> None:
    key = _key()
    other = _key()
    graph = _key()
    saves = []
    for n in range(5):
        saves.append(store.save(key, {"scratch": {"n": n}}, graph=graph))
        # Between the others, so that an order by time alone shows.
        store.save(other, {}, graph="another")
    newest = saves[::-1]
    must(
        list(store.list(run=key)) == newest,
        "list(run=) is not the run's checkpoints, newest first",
    )
    must(
        list(store.list(graph=graph)) == newest,
        "list(graph=) is not the graph's checkpoints, newest first",
    )
    must(
        list(store.list(graph="another", run=key)) == [],
        "list(graph=, run=) gives what fits only one of both",
    )
    must(list(store.list(run=key, limit=2)) == newest[:2], "limit is not kept")
    for page in (
        store.list(run=key, before=newest[1].id),
        store.list(graph, before=newest[1].id),
    ):
        must(
            list(page) == newest[2:],
            "before= gives another page than what comes before it",
        )
    must(
        list(store.list(run=key, before=f"{key}:at-3", limit=2)) == newest[2:4],
        "before= does not take an alias",
    )
    must(
        not any(hasattr(meta, "state") for meta in store.list(run=key)),
        "a list gives states",
    )
    must(
        {meta.id for meta in store.list(limit=10)} >= {newest[0].id},
        "a list of all misses the newest",
    )


def lists_give_the_oldest_first_where_they_are_asked_to(store: Store) -> None:
    key = _key()
    graph = _key()
    saves = [store.save(key, {"scratch": {"n": n}}, graph=graph) for n in range(5)]
    must(
        list(store.list(run=key, ascending=True)) == saves,
        "list(ascending=) of a run is not its oldest first",
    )
    must(
        list(store.list(graph, ascending=True, limit=2)) == saves[:2],
        "a limit takes other than the oldest",
    )
    for listed in (
        store.list(run=key, after=saves[1].id, ascending=True),
        store.list(graph, after=saves[1].id, limit=3),
    ):
        must(
            {meta.id for meta in listed} == {meta.id for meta in saves[2:]},
            "after= gives other than what comes after it",
        )
    between = store.list(
        run=key, after=f"{key}:initial", before=f"{key}:step-3", ascending=True
    )
    must(
        list(between) == saves[1:3],
        "after= and before= do not give what is between them",
    )


def a_save_with_the_same_id_is_one_checkpoint(store: Store) -> None:
    key = _key()
    id = uuid7()
    store.save(key, {"scratch": {"n": 0}})
    saved = store.save(key, {"scratch": {"n": 1}}, id=id, node="a")
    must(saved.id == id, "a checkpoint has another id than it was saved with")
    for again in (id, str(id)):
        must(
            store.save(key, {"scratch": {"n": 1}}, id=again) == saved,
            "a repeated save is another checkpoint",
        )
    must(
        [meta.seq for meta in store.list(run=key)] == [1, 0],
        "a repeated save is kept twice",
    )
    # An id that is sent again is the same save only with the same run and state.
    for run_, state in ((key, {"scratch": {"n": 2}}), (_key(), {"scratch": {"n": 1}})):
        with refusing(
            KeyConflict,
            words="save of another state, or of another run, under an id that is there",
        ):
            store.save(run_, state, id=id)
    must(
        store.get(id).state["scratch"] == {"n": 1},
        "a refused save changed what is there",
    )
    for wrong in ("", "x", 7):
        with refusing(InvalidValue, words=f"save with the id {wrong!r}"):
            store.save(key, {}, id=wrong)


def lists_refuse_what_is_no_limit_and_no_place(store: Store) -> None:
    for limit in (0, -1, 1001, True, "2"):
        with refusing(InvalidValue, words=f"limit={limit!r}"):
            store.list(limit=limit)  # type: ignore[arg-type]
    with refusing(UnknownThing, words="before= an unknown checkpoint"):
        store.list(before=uuid7())
    with refusing(UnknownThing, words="after= an unknown checkpoint"):
        store.list(after=uuid7())


def load_finds_the_newest_of_a_node_or_a_superstep(store: Store) -> None:
    key = _key()
    first = store.save(key, {"scratch": {"n": 1}}, node="a", superstep=1)
    store.save(key, {"scratch": {"n": 2}}, node=["b", "c"], superstep=2)
    again = store.save(key, {"scratch": {"n": 3}}, node="a", superstep=2)
    must(
        store.load(key, node="a").meta == again, "load(node=) is not the node's newest"
    )
    must(
        store.load(key, node="c").state["scratch"] == {"n": 2},
        "load(node=) misses one of several nodes",
    )
    must(store.load(key, superstep=1).meta == first, "load(superstep=) is another one")
    must(
        store.load(key, superstep=2).meta == again,
        "load(superstep=) is not the newest of the superstep",
    )
    must(
        store.load(key, node="b", superstep=2).state["scratch"] == {"n": 2},
        "load(node=, superstep=) mixes them up",
    )
    for conditions in ({"node": "z"}, {"superstep": 9}, {"node": "b", "superstep": 1}):
        with refusing(UnknownThing, words=f"load of {conditions}"):
            store.load(key, **conditions)


def aliases_name_checkpoints(store: Store) -> None:
    key = _key()
    saves = [
        store.save(key, {"scratch": {"n": n}}, superstep=step)
        for n, step in enumerate((0, 1, 1, 2))
    ]
    # If a superstep has two rows, its alias names the newer one.
    place_of_alias = {
        "initial": 0,
        "at-0": 0,
        "at-1": 1,
        "at-2": 2,
        "step-1": 2,
        "line-1:step-1": 2,
        "step-2": 3,
    }
    for alias, n in place_of_alias.items():
        must(
            store.get(f"{key}:{alias}").meta == saves[n],
            f"alias {alias} is another checkpoint",
        )
    for alias in (
        "at-9",
        "step-9",
        "line-2:step-1",
        "line-0:step-1",
        "last",
        "",
        "at--1",
    ):
        with refusing(UnknownThing, words=f"alias {alias!r}"):
            store.get(f"{key}:{alias}")


def what_is_not_there_is_named_and_deleting_it_is_no_error(store: Store) -> None:
    key = _key()
    for checkpoint in (uuid7(), str(uuid7()), f"{key}:initial", "nothing", ""):
        store.delete(checkpoint)
        for verb in (store.get, store.fork):
            with refusing(UnknownThing, words=f"{verb.__name__} of {checkpoint!r}"):
                verb(checkpoint)
    with refusing(UnknownThing, words="load of an unknown run"):
        store.load(key)
    must(store.latest(key) is None, "latest of an unknown run is not None")
    must(list(store.list(run=key)) == [], "an unknown run has checkpoints")
    must(store.clear(key) == 0, "clear of an unknown run counts some")


def delete_takes_one_and_no_other(store: Store) -> None:
    key = _key()
    saves = [store.save(key, {"scratch": {"n": n}}) for n in range(3)]
    store.delete(saves[1].id)
    store.delete(saves[1].id)
    must(
        [meta.id for meta in store.list(run=key)] == [saves[2].id, saves[0].id],
        "delete took another one, or none",
    )
    must(
        store.get(saves[2].id).state["scratch"] == {"n": 2},
        "a checkpoint cannot be read without its parent",
    )
    with refusing(UnknownThing, words="get of a deleted checkpoint"):
        store.get(saves[1].id)
    # An alias by number would otherwise name another checkpoint than before.
    after = store.save(key, {})
    must(after.seq == 3, "a seq is used twice")


def clear_takes_one_run_and_no_other(store: Store) -> None:
    key = _key()
    # Keys that begin or end alike, or differ in case, and wildcards of LIKE patterns.
    keys = [
        key,
        f"{key}%",
        f"{key}_",
        f"{key}x",
        f"%{key}",
        f"{key}~1",
        key.upper(),
        f"{key} ",
    ]
    for each_key in keys:
        store.save(each_key, {"scratch": {"key": each_key}})
        store.save(each_key, {"scratch": {"key": each_key}})
    for cleared in (f"{key}%", f"{key}_"):
        must(store.clear(cleared) == 2, "clear gives another number than there were")
    for each_key in keys:
        remaining = 0 if each_key in (f"{key}%", f"{key}_") else 2
        must(
            len(store.list(run=each_key)) == remaining,
            f"clear of another run's key changed {each_key!r}, or left its own",
        )
        if remaining:
            must(
                store.load(each_key).state["scratch"] == {"key": each_key},
                f"the run of {each_key!r} has another's state",
            )


def runs_are_named_by_id_or_key(store: Store) -> None:
    id = uuid7()
    saved = store.save(id, {"scratch": {"n": 1}})
    must(saved.run == id, "a run that is named by its id gets another")
    must(store.latest(str(id)) == saved, "a run's id as text names another run")
    # A key with a colon or slash would be read as an alias or a path.
    for wrong in ("", "a/b", "a:b", "x" * 201, "a\x00", 7):
        verbs: dict[str, Callable[[Any], Any]] = {
            "save": lambda run_: store.save(run_, {}),
            "load": store.load,
            "latest": store.latest,
            "list": lambda run_: store.list(run=run_),
            "clear": store.clear,
        }
        for name, verb in verbs.items():
            with refusing(InvalidValue, words=f"{name} of a run called {wrong!r}"):
                verb(wrong)


def a_fork_begins_a_run_of_its_own(store: Store) -> None:
    key = _key()
    store.save(key, {}, graph="g", version="3", fingerprint="f" * 64)
    about = {"graph": "g", "version": "3", "fingerprint": "f" * 64, "superstep": 7}
    origin = store.save(
        key, {"input": {"a": 1}, "scratch": {"n": 1}, "artifacts": {"r": "x"}}, **about
    )
    before = store.get(origin.id)
    forked = store.fork(origin.id)
    must(
        forked.run != origin.run and forked.id != origin.id,
        "a fork has its origin's run or id",
    )
    must(
        (forked.seq, forked.superstep, forked.source) == (0, 7, "fork"),
        "a fork begins elsewhere",
    )
    must(forked.parent == origin.id, "a fork does not know its origin")
    same = (forked.graph, forked.version, forked.fingerprint) == ("g", "3", "f" * 64)
    must(same, "a fork is of another graph")
    must(
        store.get(forked.id).state == before.state,
        "a fork without a patch has another state",
    )
    store.save(forked.run, {"scratch": {"n": 2}})
    must(store.get(origin.id) == before, "a fork changed its origin")
    must(store.latest(key) == origin, "a fork's history is its origin's")
    again = store.fork(f"{forked.run}:at-1")
    must(
        store.get(again.id).state["scratch"] == {"n": 2},
        "a fork of a fork begins elsewhere",
    )
    # A fork begins with a snapshot, and needs no row of its origin.
    store.clear(key)
    must(store.get(forked.id).state == before.state, "a fork is gone with its origin")


def a_fork_can_be_patched(store: Store) -> None:
    saved = store.save(
        _key(),
        {
            "scratch": {"n": 1, "old": 2, "list": ["a"]},
            "artifacts": {"r": {"x": 1, "y": 2}},
        },
    )
    patch = {
        "scratch": {"n": 5, "old": None},
        "artifacts": [{"op": "replace", "path": "/r/x", "value": 9}],
    }
    state = store.get(store.fork(saved.id, patch).id).state
    must(
        state["scratch"] == {"n": 5, "list": ["a"]},
        "a merge patch is not applied as RFC 7396 says",
    )
    must(
        state["artifacts"] == {"r": {"x": 9, "y": 2}},
        "operations are not applied as RFC 6902 says",
    )
    must(
        store.get(saved.id).state["scratch"] == {"n": 1, "old": 2, "list": ["a"]},
        "a patch changed the origin",
    )


def a_patch_that_does_not_fit_is_refused_and_nothing_is_saved(store: Store) -> None:
    graph = _key()
    saved = store.save(_key(), {"scratch": {"n": 1}}, graph=graph)
    unfit: tuple[Any, ...] = (
        {"input": {"a": 1}},
        {"diagnostics": {"a": 1}},
        {"pockets": {}},
        {"scratch": 3},
        {"scratch": [{"op": "remove", "path": "/none"}]},
        {"scratch": [{"op": "test", "path": "/n", "value": 2}]},
        {"scratch": {"n": float("inf")}},
    )
    for patch in unfit:
        with refusing(InvalidValue, words=f"fork with {patch!r:.60}"):
            store.fork(saved.id, patch)
    must(len(store.list(graph=graph)) == 1, "a refused fork left a checkpoint")


STORE_RULES: tuple[Callable[[Store], None], ...] = (
    what_is_saved_is_loaded,
    a_value_that_cannot_be_kept_is_refused_and_nothing_is_saved,
    what_callers_do_to_their_objects_is_not_seen,
    ids_sort_by_time_and_counts_are_in_order,
    lists_give_metadata_newest_first,
    lists_give_the_oldest_first_where_they_are_asked_to,
    a_save_with_the_same_id_is_one_checkpoint,
    lists_refuse_what_is_no_limit_and_no_place,
    load_finds_the_newest_of_a_node_or_a_superstep,
    aliases_name_checkpoints,
    what_is_not_there_is_named_and_deleting_it_is_no_error,
    delete_takes_one_and_no_other,
    clear_takes_one_run_and_no_other,
    runs_are_named_by_id_or_key,
    a_fork_begins_a_run_of_its_own,
    a_fork_can_be_patched,
    a_patch_that_does_not_fit_is_refused_and_nothing_is_saved,
)


def check_store(make: Callable[[], Store]) -> None:
    """Check that a store keeps the rules of the eight verbs. `make` returns a store.
    Raises `Broken`, naming the rule.
    """
    run(STORE_RULES, make)


def _key() -> str:
    return f"key-{uuid7()}"
