"""The rule of rights in Python: a verb acts with the rights of the person, or as the
system; none takes a name.

`docs/api.md` has the table, which is compared with `RIGHTS` here.
"""

import inspect
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User

from checkpoints import bundle, retention, threads
from checkpoints.core.ids import uuid7
from checkpoints.models import AuditLine, Checkpoint, RetentionPolicy, Run
from orchestrator import runs
from orchestrator.engine import END, START, Graph
from orchestrator.engine.errors import (
    CountersignError,
    Forbidden,
    InvalidValue,
    KeyConflict,
    UnknownThing,
)
from tests.support import cast
from tests.support.histories import policy
from tests.support.small_graphs import advanced, graph
from tests.support.table_contents import contents

pytestmark = pytest.mark.django_db(transaction=True)

RIGHTS = {
    "runs.start": "start_run",
    **dict.fromkeys(
        ("runs.resume", "runs.cancel", "runs.fork", "runs.replay", "runs.rewind"),
        "steer_run",
    ),
    "runs.fork_many": "steer_run",
    "runs.settle": "settle_task",
    "bundle.export": "export_run",
    **dict.fromkeys(("bundle.load", "bundle.load_or_find"), "import_run"),
    **dict.fromkeys(
        (f"retention.{verb}" for verb in ("hold", "release_hold", "pin", "unpin")),
        "manage_retention",
    ),
    **dict.fromkeys(
        (f"retention.{verb}" for verb in ("prune", "erase", "begin_erasure")),
        "manage_retention",
    ),
    **dict.fromkeys(
        (
            f"retention.{verb}"
            for verb in ("remove_thread", "prune_threads", "remove_made_by")
        ),
        "manage_retention",
    ),
    **dict.fromkeys(
        (
            f"retention.{verb}"
            for verb in ("save_policy", "delete_policy", "confirm_policy")
        ),
        "manage_retention",
    ),
}
"""The right of each verb that takes a person."""

TABLE = Path("docs/api.md")


def no_needs(point: Any) -> tuple[str, ...]:
    """An engine that rebuilds nothing from earlier checkpoints."""
    return ()


def failing(**options: Any) -> Graph:
    """A graph of one node that fails; where that has an effect, nobody knows whether it
    happened.
    """
    flow = graph(f"failing_{options.get('effect', 'pure')}")

    def fail(state: Any, ctx: Any) -> None:
        raise RuntimeError("no line")

    flow.node("step", **options)(fail)
    flow.edge(START, "step")
    flow.edge("step", END)
    return flow


@pytest.fixture
def run() -> Run:
    return advanced(failing())


@pytest.fixture
def verbs(run: Run) -> dict[str, Callable[..., Any]]:
    """Each verb, ready to be called with `by`."""
    unknown = advanced(failing(effect="external", timeout=5))
    head = run.head or ""
    rule = policy(run.graph, keep_last=1)
    first = Checkpoint.objects.get(run=run, seq=0).id
    held = retention.hold(unknown.id, "a court asked", by=None)
    exported = BytesIO()
    retention.pin(first, by=None)
    bundle.export(run.id, exported)
    write = threads.ThreadWrite("task", "", 0, "channel", ("text", b"a"), "a")
    threads.save_writes("thread", "", "1", [write], threads.ThreadOrigin("others"))
    return {
        "runs.start": partial(runs.start, run.graph, {}),
        "runs.resume": partial(runs.resume, run.id),
        "runs.fork": partial(runs.fork, head),
        "runs.replay": partial(runs.replay, head),
        "runs.fork_many": partial(runs.fork_many, [head]),
        "runs.rewind": partial(runs.rewind, run.id, first),
        "runs.settle": partial(
            runs.settle,
            unknown.id,
            "step:1:0",
            happened=True,
            reason="the bank says so",
        ),
        "runs.cancel": partial(runs.cancel, run.id),
        "bundle.export": lambda by: bundle.export(run.id, BytesIO(), by=by),
        "bundle.load": lambda by: bundle.load(BytesIO(exported.getvalue()), by=by),
        "bundle.load_or_find": lambda by: bundle.load_or_find(
            BytesIO(exported.getvalue()), by=by
        ),
        "retention.save_policy": partial(retention.save_policy, rule),
        "retention.confirm_policy": partial(
            retention.confirm_policy, rule, confirmed=0
        ),
        "retention.hold": partial(retention.hold, run.id, "another court asked"),
        "retention.release_hold": partial(retention.release_hold, held.id),
        "retention.pin": partial(retention.pin, head),
        "retention.unpin": partial(retention.unpin, first),
        "retention.prune": partial(retention.prune, rule),
        "retention.remove_thread": partial(
            retention.remove_thread, threads.find_thread("thread")
        ),
        "retention.prune_threads": partial(
            retention.prune_threads, [threads.find_thread("thread")], needs=no_needs
        ),
        "retention.remove_made_by": partial(
            retention.remove_made_by, ["run-1"], graph="plain", needs=no_needs
        ),
        "retention.delete_policy": partial(
            retention.delete_policy, RetentionPolicy(graph="nothing")
        ),
        "retention.begin_erasure": partial(retention.begin_erasure, run.id),
        "retention.erase": partial(retention.erase, run.id),
    }


@pytest.fixture
def asks(configure: Any) -> None:
    """The verbs of runs and bundles ask for rights too."""
    configure(VERBS_ASK_RIGHTS=True)


def _takes_person(module: ModuleType) -> set[str]:
    name = module.__name__.rpartition(".")[2]
    functions = {
        name: getattr(module, name)
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
    }
    return {
        f"{name}.{verb}"
        for verb, function in functions.items()
        if "by" in inspect.signature(function).parameters
    }


def test_every_verb_that_takes_a_person_has_its_right_in_the_table(verbs: Any) -> None:
    public = _takes_person(runs) | _takes_person(bundle) | _takes_person(retention)
    assert public | {"bundle.load_or_find"} == {*RIGHTS} == {*verbs}
    section = (
        TABLE.read_text().partition("## Rights in Python")[2].partition("\n## ")[0]
    )
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    documented = {
        verb.strip(" `").partition("(")[0]: row
        for row in rows
        for verb in row.split("|")[1].split(",")
    }
    assert {
        verb: f"checkpoints.{RIGHTS[verb]}" in documented.get(verb, "")
        for verb in RIGHTS
    } == dict.fromkeys(RIGHTS, True)


def test_each_verb_refuses_whoever_lacks_its_right_and_changes_nothing(
    asks: None, verbs: dict[str, Callable[..., Any]], people: cast.People
) -> None:
    before = contents()
    for name, verb in verbs.items():
        with pytest.raises(Forbidden) as refused:
            verb(by=people.reviewer)
        assert name == name
        assert refused.value.facts["right"] == RIGHTS[name]
    assert contents() == before


def test_no_verb_takes_a_name_in_the_place_of_a_person_whether_it_asks_for_rights_or_not(
    verbs: dict[str, Callable[..., Any]], people: cast.People, configure: Any
) -> None:
    people.steward  # noqa: B018  there is somebody of that name
    before = contents()
    for setting in (False, True):
        configure(VERBS_ASK_RIGHTS=setting)
        for verb in verbs.values():
            for nobody in ("stella", 7, AnonymousUser(), User(username="unsaved")):
                with pytest.raises(InvalidValue, match="by is a user"):
                    verb(by=nobody)
    assert contents() == before


WAIT_FOR = ("bundle.load", "bundle.load_or_find")
"""Verbs that go on to refuse a run that is here already."""
ENDS = (
    "retention.confirm_policy",
    "retention.delete_policy",
    "retention.erase",
    "retention.begin_erasure",
)
"""Verbs whose other refusals come behind the right; their own tests show what they do.
"""


def test_each_verb_works_as_the_system_and_is_recorded_as_such(
    asks: None, verbs: dict[str, Callable[..., Any]]
) -> None:
    for name, verb in verbs.items():
        if name in WAIT_FOR:
            with pytest.raises(KeyConflict):
                verb(by=None)
        elif name not in ENDS:
            verb(by=None)
    assert {*AuditLine.objects.values_list("actor_name", flat=True)} == {""}
    assert not Run.objects.exclude(started_by=None).exists()


def test_whoever_holds_the_right_acts_with_it_under_his_own_name(
    asks: None, verbs: dict[str, Callable[..., Any]], people: cast.People
) -> None:
    forked = verbs["runs.fork"](by=people.starter)
    assert forked.started_by == people.starter
    assert AuditLine.objects.get(kind="forked").actor == people.starter
    assert verbs["retention.hold"](by=people.steward).by == people.steward


@pytest.fixture
def outsider(people: cast.People) -> User:
    """A person who may steer runs, but sees none of them."""
    rights = ("start_run", "steer_run", "settle_task")
    people.nobody.user_permissions.set(Permission.objects.filter(codename__in=rights))
    return people.nobody


def _refusal(verb: Callable[..., Any], name: object, *, by: User) -> tuple[Any, ...]:
    """Return how a verb refuses what is named, with X in the place of that name."""
    with pytest.raises(CountersignError) as refused:
        verb(name, by=by)
    text = f"{refused.value} {refused.value.facts}".replace(str(name), "X")
    return type(refused.value), text


VERBS_ON_RUNS: dict[str, Callable[..., Any]] = {
    "resume": runs.resume,
    "cancel": runs.cancel,
    "settle": partial(runs.settle, task="step:1:0", happened=True),
    "rewind": lambda name, by: runs.rewind(name, uuid7(), by=by),
}
VERBS_ON_CHECKPOINTS: dict[str, Callable[..., Any]] = {
    "fork": runs.fork,
    "replay": runs.replay,
    "resume": runs.resume,
}


@pytest.mark.parametrize("verb", VERBS_ON_RUNS)
def test_a_run_that_a_person_may_not_see_is_one_that_there_is_not(
    asks: None, run: Run, outsider: User, verb: str
) -> None:
    act = VERBS_ON_RUNS[verb]
    named = runs.start(run.graph, {}, key="CLM-1")
    absent = _refusal(act, uuid7(), by=outsider)
    assert absent[0] is UnknownThing
    assert _refusal(act, run.id, by=outsider) == absent
    assert _refusal(act, named.key, by=outsider) == absent


@pytest.mark.parametrize("erased", [False, True])
@pytest.mark.parametrize("verb", VERBS_ON_CHECKPOINTS)
def test_a_checkpoint_of_a_run_that_a_person_may_not_see_is_one_that_there_is_not(
    asks: None, run: Run, outsider: User, verb: str, erased: bool
) -> None:
    act = VERBS_ON_CHECKPOINTS[verb]
    if erased:
        runs.cancel(run.id)
        retention.erase(run.id, reason="a person asked", by=None)
    first = Checkpoint.objects.get(run=run, seq=0)
    absent = _refusal(act, "CLM-0:initial", by=outsider)
    assert absent[0] is UnknownThing
    for name in (first.id, run.head, f"{run.key}:initial"):
        assert _refusal(act, name, by=outsider) == absent


@pytest.mark.parametrize("erased", [False, True])
def test_a_run_is_not_rewound_to_a_checkpoint_that_a_person_may_not_see(
    asks: None, run: Run, outsider: User, erased: bool
) -> None:
    own = runs.start(run.graph, {}, by=outsider)
    if erased:
        runs.cancel(run.id)
        retention.erase(run.id, reason="a person asked", by=None)

    def rewind(name: object, by: User) -> Run:
        return runs.rewind(own.id, str(name), by=by)

    absent = _refusal(rewind, "CLM-0:initial", by=outsider)
    assert absent[0] is UnknownThing
    assert _refusal(rewind, f"{run.key}:initial", by=outsider) == absent


def test_whoever_lacks_the_right_learns_of_no_run_or_checkpoint(
    asks: None, run: Run, people: cast.People
) -> None:
    for act in (*VERBS_ON_RUNS.values(), *VERBS_ON_CHECKPOINTS.values()):
        absent = _refusal(act, uuid7(), by=people.nobody)
        assert absent[0] is Forbidden
        assert _refusal(act, run.id, by=people.nobody) == absent


def test_a_key_of_a_run_that_a_person_may_not_see_is_taken_without_facts(
    asks: None, run: Run, outsider: User
) -> None:
    taken = runs.start(run.graph, {}, key="CLM-1").key
    with pytest.raises(KeyConflict, match="this key is taken") as refused:
        runs.start(run.graph, {}, key=taken, by=outsider)
    assert "run" not in refused.value.facts


def test_without_the_setting_a_person_without_rights_starts_and_steers_by_code(
    run: Run, people: cast.People
) -> None:
    assert runs.start(run.graph, {}, by=people.nobody).started_by == people.nobody
    assert runs.fork(run.head or "", by=people.nobody).started_by == people.nobody
